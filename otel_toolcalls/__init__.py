"""OpenTelemetry spans for every tool call a language model announces, and an alert for each one that never ran.

``otel_toolcalls.instrument()`` observes the model SDKs of the process; ``uninstrument()`` undoes it.
"""

from otel_toolcalls._version import __version__
from otel_toolcalls.accumulator import ProtocolError
from otel_toolcalls.config import SettingsError
from otel_toolcalls.instrumentor import ToolCallsInstrumentor, instrument, shutdown, uninstrument

__all__ = [
    "ProtocolError",
    "SettingsError",
    "ToolCallsInstrumentor",
    "__version__",
    "instrument",
    "shutdown",
    "uninstrument",
]
