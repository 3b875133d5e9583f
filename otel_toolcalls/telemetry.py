"""Spans, metrics and log events made of the facts: the one observer that knows OpenTelemetry.

Nothing here attaches a context: every span gets its parent explicitly, so a stream may be read and dropped anywhere.
Metrics count from the facts and never from spans, so they do not depend on sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry._logs import LoggerProvider, get_logger_provider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider

from otel_toolcalls import conventions as c
from otel_toolcalls._version import __version__
from otel_toolcalls.accumulator import ProtocolError
from otel_toolcalls.config import Settings
from otel_toolcalls.turn import Call, Request, Turn

__all__ = ["Answered", "RequestTelemetry", "Telemetry"]

_INFERENCE_OPERATIONS = frozenset({c.OP_CHAT, c.OP_GENERATE_CONTENT, "text_completion"})
_INFERENCE_MARKS: Mapping[str, frozenset[object]] = {
    c.OPERATION_NAME: _INFERENCE_OPERATIONS,
    "openinference.span.kind": frozenset({"LLM"}),
    "llm.request.type": frozenset({"chat", "completion"}),
    "langfuse.observation.type": frozenset({"generation"}),
    "mlflow.spanType": frozenset({"CHAT_MODEL", '"CHAT_MODEL"', "LLM", '"LLM"'}),
}
"""Attributes by which the instrumentations of the field mark the span of one response of a model."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An announced call that a request carries the result of."""

    key: str
    call_id: str | None
    span_context: SpanContext


@dataclass(slots=True)
class RequestTelemetry:
    """What is kept between a request and its turn."""

    context: Context
    adopted: bool = False
    """Another library's span stands for this response."""
    links: list[Link] = field(default_factory=list)
    answered: int = 0


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
        self._first_chunk = seconds(c.TIME_TO_FIRST_CHUNK, "From the request to the first event of the response")

    def provider(self) -> object:
        """The tracer provider in use."""
        return self._provider or trace.get_tracer_provider()

    # ---- requests ---------------------------------------------------------------------------------------------------

    def request(self, request: Request, answered: Sequence[Answered] = ()) -> None:
        """A request is about to be sent: note where its turn belongs and which calls it answers."""
        current = otel_context.get_current()
        inference = trace.get_current_span(current)
        kept = RequestTelemetry(current, adopted=_is_inference(inference), answered=len(answered))
        for call in answered:
            if not call.span_context.is_valid:
                continue
            attributes = {c.LINK_TYPE: c.LINK_ANSWERS, c.CALL_KEY: call.key}
            if call.call_id is not None:
                attributes[c.TOOL_CALL_ID] = call.call_id
            if kept.adopted and self._settings.turn_span != "always":
                inference.add_link(call.span_context, attributes)
            else:
                kept.links.append(Link(call.span_context, attributes))
        request.telemetry = kept

    # ---- facts of a turn --------------------------------------------------------------------------------------------

    def begun(self, turn: Turn) -> None:
        """The first event of a response came, or its request failed."""
        request = turn.request
        if request.telemetry is None:
            self.request(request)
        kept: RequestTelemetry = request.telemetry
        mode = self._settings.turn_span
        if mode == "never" or (mode == "auto" and kept.adopted):
            turn.span = _Parent(None, kept.context)
            return
        attributes = {c.OPERATION_NAME: request.operation, c.PROVIDER_NAME: request.provider}
        if request.model is not None:
            attributes[c.REQUEST_MODEL] = request.model
        span = self._tracer.start_span(
            f"{request.operation} {request.model}" if request.model else request.operation,
            context=kept.context,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=kept.links,
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
            c.CALL_INDEX: call.index if isinstance(call.index, int) else None,
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
        if parent is None or parent.span is None:
            return
        span = parent.span
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
            c.TURN_ANSWERED: turn.request.telemetry.answered,
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
        if isinstance(error.position, int):
            attributes[c.CALL_INDEX] = error.position
        span = self._tracer.start_span(c.OP_ANNOUNCE, context=self._parent(turn), attributes=attributes, start_time=now)
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end(now)

    def internal_error(self, where: str) -> None:
        """An error of ours was caught at ``where``."""
        self._internal.add(1, {c.ERROR_WHERE: where})

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
        if call.outcome is c.Outcome.COMPLETED and self._exempt(call):
            attributes[c.CALL_EXEMPT] = True
        if call.text and self._settings.captures_on_spans:
            attributes[c.TOOL_CALL_ARGUMENTS], cut = self._content(call.name or "", call.text)
            if cut:
                attributes[c.ARGUMENTS_TRUNCATED] = True
        span.set_attributes(attributes)
        if call.error_type is not None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(call.turn.clock.wall(call.finished_ns))

    def _exempt(self, call: Call) -> bool:
        return call.kind is c.Kind.CLIENT and self._settings.exempt(call.name)

    def _content(self, tool: str, text: str) -> tuple[str, bool]:
        """Content that may leave, and whether it was cut at the cap."""
        if self._settings.redact is not None:
            text = self._settings.redact(tool, text)
        encoded = text.encode("utf-8", "replace")
        limit = self._settings.content_limit
        return (encoded[:limit].decode("utf-8", "ignore"), True) if len(encoded) > limit else (text, False)

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


def _span_name(operation: str, tool: str | None) -> str:
    return f"{operation} {tool}" if tool else operation


def _is_inference(span: Span) -> bool:
    """The span stands for one response of a model, by the marks that the instrumentations of the field set."""
    if not span.is_recording():
        return False
    attributes = getattr(span, "attributes", None)
    if not attributes:
        return False
    return any(attributes.get(name) in values for name, values in _INFERENCE_MARKS.items())
