"""OpenTelemetry spans for every tool call a language model announces, and an alert for each one that never ran.

``instrument()`` observes the model SDKs of the process, ``uninstrument()`` undoes it, ``shutdown()`` ends what is open.
``dispatch()`` goes around the code that runs a tool, ``acknowledge()`` says that a call runs elsewhere, ``pending()``
tells what waits; none of them is needed for calls whose results the app sends back.
"""

from otel_toolcalls._version import __version__
from otel_toolcalls.accumulator import ProtocolError
from otel_toolcalls.config import SettingsError
from otel_toolcalls.dispatch import Execution, acknowledge, dispatch
from otel_toolcalls.instrumentor import ToolCallsInstrumentor, instrument, pending, shutdown, uninstrument
from otel_toolcalls.ledger import Entry

__all__ = [
    "Entry",
    "Execution",
    "ProtocolError",
    "SettingsError",
    "ToolCallsInstrumentor",
    "__version__",
    "acknowledge",
    "dispatch",
    "instrument",
    "pending",
    "shutdown",
    "uninstrument",
]
