"""Spans, metrics and log events made of the facts: the one observer that knows OpenTelemetry.

Nothing here attaches a context: every span gets its parent explicitly, so a stream may be read and dropped anywhere.
Metrics count from the facts and never from spans, so they do not depend on sampling.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import time_ns
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber, get_logger_provider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
)

from otel_toolcalls import conventions as c
from otel_toolcalls._version import __version__
from otel_toolcalls.accumulator import ProtocolError
from otel_toolcalls.config import Settings
from otel_toolcalls.guard import guarded
from otel_toolcalls.ledger import Entry, Judged, Settlement, TraceRef
from otel_toolcalls.turn import Call, Request, Turn

__all__ = ["RequestTelemetry", "Telemetry"]

_RESPONSES_KEPT = 1024
_INT64 = range(-(2**63), 2**63)
"""What an attribute can hold."""
_BY_LIMIT = 256
"""Characters of what `acknowledge(by=...)` was given."""

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


class Telemetry:
    """Observer of turns. Takes providers, or the global ones where none is given."""

    def __init__(
        self,
        settings: Settings,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
    ) -> None:
        self._settings = settings
        self._provider = tracer_provider
        self._tracer = trace.get_tracer(c.SCOPE, __version__, tracer_provider)
        self._logger = (logger_provider or get_logger_provider()).get_logger(c.SCOPE, __version__)
        meter = metrics.get_meter(c.SCOPE, __version__, meter_provider)

        def seconds(name: str, description: str, buckets: Sequence[float] = c.SECONDS_BUCKETS) -> metrics.Histogram:
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=list(buckets))

        self._announced = meter.create_counter(c.ANNOUNCED_CALLS, "{tool_call}", "Tool calls that a model announced")
        self._finished = meter.create_counter(c.FINISHED_CALLS, "{tool_call}", "Announced calls by outcome")
        self._violations = meter.create_counter(c.VIOLATIONS, "{violation}", "Events that contradict the protocol")
        self._internal = meter.create_counter(c.INTERNAL_ERRORS, "{error}", "Errors of the instrumentation itself")
        self._duration = seconds(c.ANNOUNCE_DURATION, "From the announcement of a call to its end")
        self._size = meter.create_histogram(c.ARGUMENTS_SIZE_METRIC, "By", "Size of the arguments of a call")
        self._inference = seconds(c.INFERENCE_DURATION, "From the request to the end of the response")
        self._execution = seconds(c.EXECUTE_TOOL_DURATION, "While the body of a tool runs")
        self._dispatched = meter.create_counter(c.DISPATCHED_CALLS, "{tool_call}", "Tool calls that began to run")
        self._delay = seconds(c.DISPATCH_DELAY_METRIC, "From a call's completion to its dispatch", c.DELAY_BUCKETS)
        self._settled = meter.create_counter(c.SETTLED_CALLS, "{tool_call}", "Completed calls that wait no more")
        self._undispatched = meter.create_counter(c.UNDISPATCHED_CALLS, "{tool_call}", "Completed calls judged lost")
        self._pending = meter.create_up_down_counter(c.PENDING_CALLS, "{tool_call}", "Completed calls that wait")
        self._lost_series: set[str] = set()
        self._responses: dict[str, TraceRef] = {}
        """Spans of recent responses that can be read again."""
        self._first_chunk = seconds(c.TIME_TO_FIRST_CHUNK, "From the request to the first event of the response")

    def provider(self) -> object:
        """The tracer provider in use."""
        return self._provider or trace.get_tracer_provider()

    # ---- requests ---------------------------------------------------------------------------------------------------

    @staticmethod
    def here() -> Context:
        """The current context, as an opaque value."""
        return otel_context.get_current()

    def request(self, request: Request) -> None:
        """A request is about to be sent: note where its turn belongs."""
        current = self.here()
        span = trace.get_current_span(current)
        if request.asked_in is not None and not span.is_recording():
            # An SDK that traces itself, to no provider, puts a mute copy over the span that was there.
            outer = trace.get_current_span(request.asked_in)
            if outer.get_span_context() == span.get_span_context():
                current, span = request.asked_in, outer
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
            attributes = _call_attributes(entry) | {c.LINK_TYPE: c.LINK_ANSWERS}
            if kept.adopted is not None:
                kept.adopted.add_link(_span_context(entry.trace), attributes)
            else:
                kept.links.append(Link(_span_context(entry.trace), attributes))
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
            turn.span = _Parent(None, kept.context if asked_for is None else _context_of(asked_for))
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
            self._announced.add(1, self._labels(call))
        call.span = self._tracer.start_span(
            _span_name(c.OP_ANNOUNCE, call.name),
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
            span.update_name(_span_name(c.OP_ANNOUNCE, call.name))
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
            self._responses[turn.response_id] = _reference(span)
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
        self._inference.record(max(0, turn.ended_ns - start) / 1e9, measured)
        if turn.request.streaming:
            self._first_chunk.record(max(0, turn.first_ns - start) / 1e9, measured)

    def violated(self, turn: Turn, error: ProtocolError, shown: bool) -> None:
        self._violations.add(1, {c.VIOLATION_KIND: error.kind.value, c.PROVIDER_NAME: turn.request.provider})
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

    def internal_error(self, where: str) -> None:
        """An error of ours was caught at ``where``."""
        self._internal.add(1, {c.ERROR_WHERE: where})

    # ---- facts of the ledger ----------------------------------------------------------------------------------------

    def trace_of(self, call: Call) -> TraceRef:
        """The span of an announced call."""
        return _reference(call.span)

    def waits(self, entry: Entry) -> None:
        if entry.tool not in self._lost_series:
            # A rate over a series that begins at 1 misses its first loss, so each begins at 0.
            self._lost_series.add(entry.tool)
            for reason in c.LostReason:
                self._undispatched.add(0, {c.TOOL_NAME: entry.tool, c.UNDISPATCHED_REASON: reason.value})
        self._pending.add(1, {c.TOOL_NAME: entry.tool})

    def settled(self, entry: Entry, by: c.SettledBy, *, waited: bool = True) -> None:
        self._settled.add(1, {c.TOOL_NAME: entry.tool, c.SETTLED_BY: by.value})
        if waited:
            self._pending.add(-1, {c.TOOL_NAME: entry.tool})

    def dropped(self, entry: Entry) -> None:
        """Its turn was abandoned: nobody is to be alerted, and the trace says why."""
        self.settled(entry, c.SettledBy.EXEMPT)
        self.acknowledged(entry, entry.call_id, entry.name, c.TURN_ABANDONED, Context(), time_ns())

    def lost(self, judged: Judged) -> None:
        entry, reason = judged.entry, judged.reason
        self._undispatched.add(1, {c.TOOL_NAME: entry.tool, c.UNDISPATCHED_REASON: reason.value})
        self._pending.add(-1, {c.TOOL_NAME: entry.tool})
        announced = _context_of(entry.trace)
        attributes = _entry_attributes(entry) | {
            c.UNDISPATCHED_REASON: reason.value,
            c.ERROR_TYPE: c.ErrorType.UNDISPATCHED,
        }
        start, end = int(entry.completed_at * 1e9), int(max(judged.at, entry.completed_at) * 1e9)
        span = self._tracer.start_span(
            _span_name(c.OP_AWAIT, entry.name),
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
        attributes.update(_entry_attributes(entry) if entry is not None else _named(name, call_id))
        context, links = self.belongs(entry, current)
        span = self._tracer.start_span(
            _span_name(c.OP_ACKNOWLEDGE, entry.name if entry is not None else name),
            context=context,
            attributes=attributes,
            links=links,
            start_time=at_ns,
        )
        span.end(at_ns)

    def belongs(self, entry: Entry | None, current: Context) -> tuple[Context, list[Link]]:
        """Where the span of something that happens to a call goes: under the current span with a link to the call, or
        where there is none under the call itself."""
        if entry is None or not entry.trace.span_id:
            return current, []
        if not trace.get_current_span(current).get_span_context().is_valid:
            return _context_of(entry.trace), []
        return current, [Link(_span_context(entry.trace), self.announced_by(entry))]

    @staticmethod
    def announced_by(entry: Entry) -> dict[str, str]:
        """Attributes of a link to the call."""
        return _call_attributes(entry) | {c.LINK_TYPE: c.LINK_ANNOUNCED_BY}

    # ---- executions -------------------------------------------------------------------------------------------------

    def execution(self, entry: Entry | None, call_id: str | None, name: str | None, tool_type: str) -> Span:
        """The span of a tool's body, which is about to run."""
        attributes: dict[str, Any] = {c.OPERATION_NAME: c.OP_EXECUTE, c.TOOL_TYPE: tool_type}
        attributes.update(_named(name or (entry.name if entry is not None else None), call_id))
        if entry is not None:
            attributes.update(_call_attributes(entry))
        context, links = self.belongs(entry, otel_context.get_current())
        return self._tracer.start_span(
            _span_name(c.OP_EXECUTE, attributes.get(c.TOOL_NAME)),
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
            self._delay.record(delay, {c.TOOL_NAME: entry.tool}, _context_of(entry.trace))
            if span is not None and not linked and entry.trace.span_id:
                span.add_link(_span_context(entry.trace), self.announced_by(entry))
        tool = settlement.entry.tool if settlement is not None else c.OTHER_TOOL
        self._dispatched.add(1, {c.TOOL_NAME: tool, c.DISPATCH_MATCH: match.value})
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
        self._execution.record(seconds, measured, trace.set_span_in_context(span))
        span.end(end_ns)

    def result(self, span: Span, tool: str, value: object) -> None:
        """What the tool returned, where the settings let it leave."""
        if not self._settings.captures_on_spans:
            return  # and do not make a text of it
        text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
        span.set_attributes(self._content(tool, text, c.TOOL_CALL_RESULT, c.RESULT_TRUNCATED))

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

    def _content(self, tool: str | None, text: str, attribute: str, flag: str) -> dict[str, Any]:
        """The one gate of content: what may leave of it, and the flag where it was cut at the cap."""
        if not self._settings.captures_on_spans:
            return {}
        if self._settings.redact is not None:
            redacted: object = guarded("redact", self._settings.redact, tool or "", text)
            if not isinstance(redacted, str):
                return {}  # what could not be redacted does not leave
            text = redacted
        encoded, limit = text.encode("utf-8", "replace"), self._settings.content_limit
        if len(encoded) <= limit:
            return {attribute: encoded.decode()}
        return {attribute: encoded[:limit].decode("utf-8", "ignore"), flag: True}

    def _count(self, call: Call) -> None:
        labels = self._labels(call)
        if call.unnamed:
            self._announced.add(1, labels)  # under the name it has by now
        tool, outcome = labels[c.TOOL_NAME], call.outcome.value if call.outcome else ""
        result = {**labels, c.CALL_OUTCOME: outcome}
        if call.error_type is not None:
            result[c.ERROR_TYPE] = call.error_type
        self._finished.add(1, result)
        self._duration.record(
            (call.finished_ns - call.announced_ns) / 1e9,
            {c.TOOL_NAME: tool, c.PROVIDER_NAME: labels[c.PROVIDER_NAME], c.CALL_OUTCOME: outcome},
            trace.set_span_in_context(call.span),  # an exemplar leads to the call
        )
        self._size.record(call.size, {c.TOOL_NAME: tool})

    def _labels(self, call: Call) -> dict[str, str]:
        request = call.turn.request
        labels = {
            c.TOOL_NAME: self.metric_tool(call),
            c.PROVIDER_NAME: request.provider,
            c.CALL_KIND: call.kind.value,
        }
        if request.model is not None:
            labels[c.REQUEST_MODEL] = request.model
        return labels

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


def _span_name(operation: str, tool: str | None) -> str:
    return f"{operation} {tool}" if tool else operation


def _reference(span: Span) -> TraceRef:
    context = span.get_span_context()
    return TraceRef(context.trace_id, context.span_id, int(context.trace_flags))


def _span_context(reference: TraceRef) -> SpanContext:
    return SpanContext(reference.trace_id, reference.span_id, is_remote=True, trace_flags=TraceFlags(reference.flags))


def _context_of(reference: TraceRef) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(_span_context(reference)), Context())


def _named(name: str | None, call_id: str | None) -> dict[str, str]:
    named = {c.TOOL_NAME: name, c.TOOL_CALL_ID: call_id}
    return {attribute: value for attribute, value in named.items() if value is not None}


def _call_attributes(entry: Entry) -> dict[str, str]:
    """What identifies a call on a link or another span."""
    return {c.CALL_KEY: entry.key} | ({c.TOOL_CALL_ID: entry.call_id} if entry.call_id is not None else {})


def _entry_attributes(entry: Entry) -> dict[str, Any]:
    """What one search over one span needs to know of the call."""
    optional = {c.REQUEST_MODEL: entry.model, c.RESPONSE_ID: entry.response_id}
    return (
        _named(entry.name, entry.call_id)
        | {c.CALL_KEY: entry.key, c.PROVIDER_NAME: entry.provider}
        | {name: value for name, value in optional.items() if value is not None}
    )


def _is_inference(span: Span) -> bool:
    """The span stands for one response of a model, by the marks that the instrumentations of the field set."""
    if not span.is_recording():
        return False
    attributes = getattr(span, "attributes", None)
    if not attributes:
        return False
    return any(attributes.get(name) in values for name, values in _INFERENCE_MARKS.items())
