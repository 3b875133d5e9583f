"""How spans refer to calls: names, contexts, links, and the attributes that identify a call."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, TraceFlags

from otel_toolcalls import conventions as c
from otel_toolcalls.ledger import Entry, TraceRef

__all__ = [
    "announced_by",
    "belongs",
    "call_attributes",
    "context_of",
    "entry_attributes",
    "named",
    "reference",
    "span_context",
    "span_name",
]


def span_name(operation: str, tool: str | None) -> str:
    """The operation, and the tool where its name is known."""
    return f"{operation} {tool}" if tool else operation


def reference(span: Span) -> TraceRef:
    """What to keep of a span, to refer to it later."""
    context = span.get_span_context()
    return TraceRef(context.trace_id, context.span_id, int(context.trace_flags))


def span_context(reference: TraceRef) -> SpanContext:
    """What a link takes."""
    return SpanContext(reference.trace_id, reference.span_id, is_remote=True, trace_flags=TraceFlags(reference.flags))


def context_of(reference: TraceRef) -> Context:
    """What a span takes for its parent."""
    return trace.set_span_in_context(NonRecordingSpan(span_context(reference)), Context())


def named(name: str | None, call_id: str | None) -> dict[str, str]:
    """The attributes of a name and an id, as far as they are known."""
    known = {c.TOOL_NAME: name, c.TOOL_CALL_ID: call_id}
    return {attribute: value for attribute, value in known.items() if value is not None}


def call_attributes(entry: Entry) -> dict[str, str]:
    """What identifies a call on a link or another span."""
    return {c.CALL_KEY: entry.key} | ({c.TOOL_CALL_ID: entry.call_id} if entry.call_id is not None else {})


def entry_attributes(entry: Entry) -> dict[str, Any]:
    """What one search over one span needs to know of the call."""
    optional = {c.REQUEST_MODEL: entry.model, c.RESPONSE_ID: entry.response_id}
    return (
        named(entry.name, entry.call_id)
        | {c.CALL_KEY: entry.key, c.PROVIDER_NAME: entry.provider}
        | {name: value for name, value in optional.items() if value is not None}
    )


def belongs(entry: Entry | None, current: Context) -> tuple[Context, list[Link]]:
    """Where the span of something that happens to a call goes: under the current span with a link to the call, or
    where there is none under the call itself."""
    if entry is None or not entry.trace.span_id:
        return current, []
    if not trace.get_current_span(current).get_span_context().is_valid:
        return context_of(entry.trace), []
    return current, [Link(span_context(entry.trace), announced_by(entry))]


def announced_by(entry: Entry) -> dict[str, str]:
    """Attributes of a link to the call."""
    return call_attributes(entry) | {c.LINK_TYPE: c.LINK_ANNOUNCED_BY}
