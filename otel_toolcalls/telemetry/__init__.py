"""Spans, metrics and log events made of the facts: the part that knows OpenTelemetry.

Nothing here attaches a context: every span gets its parent explicitly, so a stream may be read and dropped anywhere.
Metrics count from the facts and never from spans, so they do not depend on sampling.
"""

from __future__ import annotations

from otel_toolcalls.telemetry.executions import ExecutionTelemetry
from otel_toolcalls.telemetry.turns import TurnTelemetry
from otel_toolcalls.telemetry.waiting import WaitingTelemetry

__all__ = ["Telemetry"]


class Telemetry(TurnTelemetry, WaitingTelemetry, ExecutionTelemetry):
    """Told every fact of turns, of the ledger and of executions. Takes providers, or the global ones where none is given."""
