"""What runs: the spans of tools' bodies, and what the ledger says of them."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

from otel_toolcalls import conventions as c
from otel_toolcalls.ledger import Entry, Settlement
from otel_toolcalls.telemetry.references import (
    announced_by,
    belongs,
    call_attributes,
    context_of,
    named,
    span_context,
    span_name,
)
from otel_toolcalls.telemetry.signals import Signals

__all__ = ["ExecutionTelemetry"]


class ExecutionTelemetry(Signals):
    """Told of dispatches, by whoever runs a tool."""

    def execution(self, entry: Entry | None, call_id: str | None, name: str | None, tool_type: str) -> Span:
        """The span of a tool's body, which is about to run."""
        attributes: dict[str, Any] = {c.OPERATION_NAME: c.OP_EXECUTE, c.TOOL_TYPE: tool_type}
        attributes.update(named(name or (entry.name if entry is not None else None), call_id))
        if entry is not None:
            attributes.update(call_attributes(entry))
        context, links = belongs(entry, otel_context.get_current())
        return self._tracer.start_span(
            span_name(c.OP_EXECUTE, attributes.get(c.TOOL_NAME)),
            context=context,
            attributes=attributes,
            links=links,
        )

    def dispatched(self, span: Span | None, settlement: Settlement | None, at: float, *, linked: bool) -> None:
        """A dispatch met this in the ledger. ``linked``: the span knows its call already."""
        match = c.Match.UNMATCHED
        attributes: dict[str, Any] = {}
        if settlement is not None:
            entry = settlement.entry
            match = c.Match.DUPLICATE if settlement.dispatches > 1 else c.Match.MATCHED
            delay = max(0.0, at - entry.completed_at)
            attributes = {c.DISPATCH_DELAY: delay, c.CALL_KEY: entry.key}
            if settlement.dispatches > 1:
                attributes[c.DISPATCH_COUNT] = settlement.dispatches
            if settlement.lost is not None:
                attributes[c.DISPATCH_LATE] = True
            if settlement.ambiguous:
                attributes[c.DISPATCH_AMBIGUOUS] = True
            self._metrics.delay.record(delay, {c.TOOL_NAME: entry.tool}, context_of(entry.trace))
            if span is not None and not linked and entry.trace.span_id:
                span.add_link(span_context(entry.trace), announced_by(entry))
        tool = settlement.entry.tool if settlement is not None else c.OTHER_TOOL
        self._metrics.dispatched.add(1, tool, match.value)
        if span is not None:
            span.set_attributes({**attributes, c.DISPATCH_MATCH: match.value})

    def executed(self, span: Span, seconds: float, error_type: str | None, end_ns: int) -> None:
        """The tool's body is over."""
        attributes = getattr(span, "attributes", None) or {}
        measured = {c.OPERATION_NAME: c.OP_EXECUTE}
        if error_type is not None:
            span.set_attribute(c.ERROR_TYPE, error_type)
            span.set_status(Status(StatusCode.ERROR))
            measured[c.ERROR_TYPE] = error_type
        if attributes.get(c.TOOL_NAME):
            measured[c.TOOL_NAME] = str(attributes[c.TOOL_NAME])
        self._metrics.execution.record(seconds, measured, trace.set_span_in_context(span))
        span.end(end_ns)

    def result(self, span: Span, tool: str, value: object) -> None:
        """What the tool returned, where the settings let it leave."""
        if not self._settings.captures_on_spans:
            return  # and do not make a text of it
        text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
        span.set_attributes(self._content(tool, text, c.TOOL_CALL_RESULT, c.RESULT_TRUNCATED))
