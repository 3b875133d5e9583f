"""Turns and their calls, made seen: the observer that is told what a response announced and how it ended."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from otel_toolcalls import conventions as c
from otel_toolcalls.accumulator import ProtocolError
from otel_toolcalls.guard import guarded
from otel_toolcalls.ledger import Entry, TraceRef
from otel_toolcalls.telemetry.references import call_attributes, context_of, reference, span_context, span_name
from otel_toolcalls.telemetry.signals import Signals
from otel_toolcalls.turn import Call, Request, Turn

__all__ = ["RequestTelemetry", "TurnTelemetry"]

_RESPONSES_KEPT = 1024
_INT64 = range(-(2**63), 2**63)
"""What an attribute can hold."""
_INFERENCE_OPERATIONS = frozenset({c.OP_CHAT, c.OP_GENERATE_CONTENT, "text_completion"})
_INFERENCE_MARKS: Mapping[str, frozenset[object]] = {
    c.OPERATION_NAME: _INFERENCE_OPERATIONS,
    "openinference.span.kind": frozenset({"LLM"}),
    "llm.request.type": frozenset({"chat", "completion"}),
    "langfuse.observation.type": frozenset({"generation"}),
    "mlflow.spanType": frozenset({"CHAT_MODEL", '"CHAT_MODEL"', "LLM", '"LLM"'}),
}
"""Attributes by which the instrumentations of the field mark the span of one response of a model."""


@dataclass(slots=True)
class RequestTelemetry:
    """What is kept between a request and the end of its turn."""

    context: Context
    adopted: Span | None = None
    """Another library's span that stands for this response."""
    links: list[Link] = field(default_factory=list)
    answered: int = 0
    parties: int = 1
    """How many have to arrive before the turn's span ends: the turn, and each answer that is still being looked up."""
    arrivals: Iterator[int] = field(default_factory=itertools.count)
    end: Callable[[], None] | None = None

    def arrive(self) -> None:
        """One is there; the last one ends the turn's span. Atomic without a lock."""
        if next(self.arrivals) == self.parties - 1 and self.end is not None:
            self.end()


class TurnTelemetry(Signals):
    """Observer of turns."""

    @functools.cached_property
    def _responses(self) -> dict[str, TraceRef]:
        """Spans of recent responses that can be read again."""
        return {}

    # ---- requests ---------------------------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        """A request is about to be sent: note where its turn belongs."""
        current = self.here()
        span = trace.get_current_span(current)
        if not _is_inference(span):
            current, span = _asked(request.asked_in, span) or (current, span)
        adopted = span if self._settings.turn_span != "always" and _is_inference(span) else None
        request.telemetry = RequestTelemetry(current, adopted)
        request.trace_id = span.get_span_context().trace_id

    def answers_expected(self, request: Request, count: int) -> None:
        kept: RequestTelemetry = request.telemetry
        kept.parties += count

    def answered(self, request: Request, entry: Entry | None) -> None:
        kept: RequestTelemetry = request.telemetry
        if entry is not None:
            kept.answered += 1
            attributes = call_attributes(entry) | {c.LINK_TYPE: c.LINK_ANSWERS}
            if kept.adopted is not None:
                kept.adopted.add_link(span_context(entry.trace), attributes)
            else:
                kept.links.append(Link(span_context(entry.trace), attributes))
        kept.arrive()

    # ---- facts of a turn --------------------------------------------------------------------------------------------

    def begun(self, turn: Turn) -> None:
        """The first event of a response came, or its request failed."""
        request = turn.request
        if request.telemetry is None:
            self.request(request)
        kept: RequestTelemetry = request.telemetry
        mode = self._settings.turn_span
        if mode == "never" or kept.adopted is not None:
            turn.span = _Parent(None, kept.context)
            return
        if mode == "auto" and request.resumes is not None:
            # The response has had its span when it was asked for: what is read of it later belongs there.
            asked_for = self._responses.get(request.resumes)
            turn.span = _Parent(None, kept.context if asked_for is None else context_of(asked_for))
            return
        attributes = {c.OPERATION_NAME: request.operation, c.PROVIDER_NAME: request.provider}
        if request.model is not None:
            attributes[c.REQUEST_MODEL] = request.model
        span = self._tracer.start_span(
            f"{request.operation} {request.model}" if request.model else request.operation,
            context=kept.context,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=turn.clock.wall(request.sent_ns),
        )
        turn.span = _Parent(span, trace.set_span_in_context(span, kept.context))

    def announced(self, call: Call) -> None:
        turn = call.turn
        attributes: dict[str, Any] = {
            c.OPERATION_NAME: c.OP_ANNOUNCE,
            c.TOOL_TYPE: call.tool_type.value,
            c.PROVIDER_NAME: turn.request.provider,
            c.CALL_KEY: call.key,
            c.CALL_ORDINAL: call.ordinal,
            c.CALL_KIND: call.kind.value,
        }
        optional = {
            c.TOOL_NAME: call.name,
            c.TOOL_CALL_ID: call.call_id,
            c.REQUEST_MODEL: turn.request.model,
            c.CALL_INDEX: call.index if isinstance(call.index, int) and call.index in _INT64 else None,
            c.CHOICE_INDEX: call.choice or None,
        }
        attributes.update((name, value) for name, value in optional.items() if value is not None)
        if not call.unnamed:
            self._count_announced(call)
        call.span = self._tracer.start_span(
            span_name(c.OP_ANNOUNCE, call.name),
            context=self._parent(turn),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=turn.clock.wall(call.announced_ns),
        )
        turn.span.open[call.key] = call

    def renamed(self, call: Call) -> None:
        span: Span | None = call.span
        if span is None:
            return
        if call.name is not None:
            span.update_name(span_name(c.OP_ANNOUNCE, call.name))
            span.set_attribute(c.TOOL_NAME, call.name)
        if call.call_id is not None:
            span.set_attribute(c.TOOL_CALL_ID, call.call_id)

    def finished(self, call: Call) -> None:
        try:
            if call.span is not None:
                self._end_call(call.span, call)
        finally:
            self._count(call)

    def ended(self, turn: Turn) -> None:
        parent: _Parent | None = turn.span
        if parent is None:
            return
        for call in list(parent.open.values()):  # a mishap of ours kept its span from being ended
            call.note(c.Anomaly.INTERNAL_ERROR)
            guarded("finished", self._end_call, call.span, call)
        if parent.span is None:
            return
        span, kept = parent.span, turn.request.telemetry
        if turn.resumable and turn.response_id is not None:
            while len(self._responses) >= _RESPONSES_KEPT:
                self._responses.pop(next(iter(self._responses)), None)
            self._responses[turn.response_id] = reference(span)
        kept.end = lambda: self._end_turn(turn, span, kept)
        kept.arrive()

    def _end_turn(self, turn: Turn, span: Span, kept: RequestTelemetry) -> None:
        for link in kept.links:
            span.add_link(link.context, link.attributes)
        attributes: dict[str, Any] = {
            c.TURN_ANNOUNCED: turn.announced,
            c.TURN_COMPLETED: turn.completed,
            c.TURN_FAILED: turn.failed,
        }
        optional = {
            c.RESPONSE_ID: turn.response_id,
            c.RESPONSE_MODEL: turn.response_model,
            c.RESPONSE_FINISH_REASONS: turn.finish_reasons,
            c.TURN_ANOMALIES: turn.anomalies,
            c.TURN_ANSWERED: kept.answered,
            c.ERROR_TYPE: turn.error_type,
        }
        attributes.update((name, value) for name, value in optional.items() if value)
        span.set_attributes(attributes)
        if turn.error_type is not None:
            span.set_status(Status(StatusCode.ERROR))
        start = turn.request.sent_ns
        span.end(turn.clock.wall(max(turn.ended_ns, start)))
        measured = {
            name: attributes[name] for name in (c.RESPONSE_MODEL, c.ERROR_TYPE) if attributes.get(name) is not None
        }
        measured.update({c.OPERATION_NAME: turn.request.operation, c.PROVIDER_NAME: turn.request.provider})
        if turn.request.model is not None:
            measured[c.REQUEST_MODEL] = turn.request.model
        self._metrics.inference.record(max(0, turn.ended_ns - start) / 1e9, measured)
        if turn.request.streaming:
            self._metrics.first_chunk.record(max(0, turn.first_ns - start) / 1e9, measured)

    def violated(self, turn: Turn, error: ProtocolError, shown: bool) -> None:
        self._metrics.violations.add(1, {c.VIOLATION_KIND: error.kind.value, c.PROVIDER_NAME: turn.request.provider})
        if shown:
            return
        now = turn.clock.wall(turn.seen_ns)
        attributes: dict[str, Any] = {
            c.OPERATION_NAME: c.OP_ANNOUNCE,
            c.PROVIDER_NAME: turn.request.provider,
            c.CALL_OUTCOME: c.Outcome.INVALID.value,
            c.ERROR_TYPE: c.ErrorType.PROTOCOL_VIOLATION,
            c.VIOLATION_KIND: error.kind.value,
        }
        if isinstance(error.position, int) and error.position in _INT64:
            attributes[c.CALL_INDEX] = error.position
        span = self._tracer.start_span(c.OP_ANNOUNCE, context=self._parent(turn), attributes=attributes, start_time=now)
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end(now)

    def trace_of(self, call: Call) -> TraceRef:
        """The span of an announced call."""
        return reference(call.span)

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _parent(self, turn: Turn) -> Context:
        if turn.span is None:
            self.begun(turn)
        parent: _Parent = turn.span
        return parent.context

    def _end_call(self, span: Span, call: Call) -> None:
        attributes: dict[str, Any] = {
            c.CALL_OUTCOME: call.outcome.value if call.outcome else None,
            c.ARGUMENTS_SIZE: call.size,
            c.ARGUMENTS_FRAGMENTS: call.fragments,
        }
        optional = {
            c.RESPONSE_ID: call.turn.response_id,
            c.RESPONSE_MODEL: call.turn.response_model,
            c.CALL_ANOMALIES: call.anomalies,
            c.ERROR_TYPE: call.error_type,
            c.ARGUMENTS_VALUES: call.values if call.values > 1 else None,
        }
        attributes.update((name, value) for name, value in optional.items() if value)
        try:
            if call.outcome is c.Outcome.COMPLETED and self._exempt(call):
                attributes[c.CALL_EXEMPT] = True
            if call.text:
                attributes.update(self._content(call.name, call.text, c.TOOL_CALL_ARGUMENTS, c.ARGUMENTS_TRUNCATED))
        finally:
            span.set_attributes(attributes)
            if call.error_type is not None:
                span.set_status(Status(StatusCode.ERROR))
            span.end(call.turn.clock.wall(call.finished_ns))
            call.turn.span.open.pop(call.key, None)

    def _exempt(self, call: Call) -> bool:
        return call.kind is c.Kind.CLIENT and self._settings.exempt(call.name)

    def _count_announced(self, call: Call) -> None:
        request = call.turn.request
        self._metrics.announced.add(1, self.metric_tool(call), request.provider, request.model, call.kind.value)

    def _count(self, call: Call) -> None:
        if call.unnamed:
            self._count_announced(call)  # under the name it has by now
        request, tool = call.turn.request, self.metric_tool(call)
        outcome = call.outcome.value if call.outcome else ""
        self._metrics.finished.add(1, tool, request.provider, request.model, call.kind.value, outcome, call.error_type)
        self._metrics.duration.record(
            (call.finished_ns - call.announced_ns) / 1e9,
            {c.TOOL_NAME: tool, c.PROVIDER_NAME: request.provider, c.CALL_OUTCOME: outcome},
            trace.set_span_in_context(call.span),  # an exemplar leads to the call
        )
        self._metrics.size.record(call.size, {c.TOOL_NAME: tool})

    @staticmethod
    def metric_tool(call: Call) -> str:
        """The tool's name as metrics carry it: names that the request did not list are the model's to invent."""
        tools = call.turn.request.tools
        return call.name if call.name is not None and tools is not None and call.name in tools else c.OTHER_TOOL


@dataclass(frozen=True, slots=True)
class _Parent:
    """Our own span of a turn, where there is one, and the context that its calls belong to."""

    span: Span | None
    context: Context
    open: dict[str, Call] = field(default_factory=dict)
    """The announced calls whose spans have not ended, by key."""


def _asked(contexts: Sequence[Context], span: Span) -> tuple[Context, Span] | None:
    """The context that the request belongs to, and its span, where that is not the current one.

    A helper may send its request when the span that another library made for it is not current any more; and an SDK
    that traces itself, to no provider, puts a mute copy over the span that was there.
    """
    asked = [(context, trace.get_current_span(context)) for context in contexts]
    for found in asked:
        if _is_inference(found[1]):
            return found
    if span.is_recording():
        return None
    return next((found for found in asked if found[1].get_span_context() == span.get_span_context()), None)


def _is_inference(span: Span) -> bool:
    """The span stands for one response of a model, by the marks that the instrumentations of the field set."""
    if not span.is_recording():
        return False
    attributes = getattr(span, "attributes", None)
    if not attributes:
        return False
    return any(attributes.get(name) in values for name, values in _INFERENCE_MARKS.items())
