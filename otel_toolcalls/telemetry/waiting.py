"""What the ledger finds out, made seen: calls that wait, that were settled, acknowledged, or judged lost."""

from __future__ import annotations

from time import time_ns
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode

from otel_toolcalls import conventions as c
from otel_toolcalls.ledger import Entry, Judged
from otel_toolcalls.telemetry.references import belongs, context_of, entry_attributes, named, span_name
from otel_toolcalls.telemetry.signals import Signals

__all__ = ["WaitingTelemetry"]

_BY_LIMIT = 256
"""Characters of what `acknowledge(by=...)` was given."""


class WaitingTelemetry(Signals):
    """Reporter of the ledger."""

    def waits(self, entry: Entry) -> None:
        # A rate over a series that begins at 1 misses its first loss, so each begins at 0.
        for reason in c.LostReason:
            self._metrics.undispatched.begin(entry.tool, reason.value)
        self._metrics.pending.add(1, entry.tool)

    def settled(self, entry: Entry, by: c.SettledBy, *, waited: bool = True) -> None:
        self._metrics.settled.add(1, entry.tool, by.value)
        if waited:
            self._metrics.pending.add(-1, entry.tool)

    def dropped(self, entry: Entry) -> None:
        """Its turn was abandoned: nobody is to be alerted, and the trace says why."""
        self.settled(entry, c.SettledBy.EXEMPT)
        self.acknowledged(entry, entry.call_id, entry.name, c.TURN_ABANDONED, Context(), time_ns())

    def lost(self, judged: Judged) -> None:
        entry, reason = judged.entry, judged.reason
        self._metrics.undispatched.add(1, entry.tool, reason.value)
        self._metrics.pending.add(-1, entry.tool)
        announced = context_of(entry.trace)
        attributes = entry_attributes(entry) | {
            c.UNDISPATCHED_REASON: reason.value,
            c.ERROR_TYPE: c.ErrorType.UNDISPATCHED,
        }
        start, end = int(entry.completed_at * 1e9), int(max(judged.at, entry.completed_at) * 1e9)
        span = self._tracer.start_span(
            span_name(c.OP_AWAIT, entry.name),
            context=announced,
            attributes={c.OPERATION_NAME: c.OP_AWAIT, **attributes},
            start_time=start,
        )
        span.set_status(Status(StatusCode.ERROR, f"announced and never dispatched ({reason.value})"))
        span.end(end)
        self._logger.emit(
            LogRecord(
                timestamp=end,
                context=announced,
                severity_number=SeverityNumber.WARN,
                severity_text="WARN",
                body=f"tool call {entry.name} was announced and never dispatched ({reason.value})",
                attributes=attributes,
                event_name=c.EVENT_UNDISPATCHED,
            )
        )

    def acknowledged(
        self,
        entry: Entry | None,
        call_id: str | None,
        name: str | None,
        by: str,
        current: Context,
        at_ns: int,
    ) -> None:
        """Somebody says that a call runs elsewhere; ``current`` is the context in which that was said."""
        attributes: dict[str, Any] = {c.OPERATION_NAME: c.OP_ACKNOWLEDGE, c.ACKNOWLEDGED_BY: by[:_BY_LIMIT]}
        attributes.update(entry_attributes(entry) if entry is not None else named(name, call_id))
        context, links = belongs(entry, current)
        span = self._tracer.start_span(
            span_name(c.OP_ACKNOWLEDGE, entry.name if entry is not None else name),
            context=context,
            attributes=attributes,
            links=links,
            start_time=at_ns,
        )
        span.end(at_ns)
