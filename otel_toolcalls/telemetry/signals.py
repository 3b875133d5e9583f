"""What the parts of the telemetry share: the providers' tracer and logger, the instruments, and the gate of content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry._logs import LoggerProvider, get_logger_provider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from otel_toolcalls import conventions as c
from otel_toolcalls._version import __version__
from otel_toolcalls.config import Settings
from otel_toolcalls.guard import guarded
from otel_toolcalls.telemetry.tally import counter, up_down_counter

__all__ = ["Signals"]


class Signals:
    """Takes providers, or the global ones where none is given."""

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
        self._metrics = Instruments(meter_provider)

    def provider(self) -> object:
        """The tracer provider in use."""
        return self._provider or trace.get_tracer_provider()

    @staticmethod
    def here() -> Context:
        """The current context, as an opaque value."""
        return otel_context.get_current()

    def internal_error(self, where: str) -> None:
        """An error of ours was caught at ``where``."""
        self._metrics.internal_errors.add(1, {c.ERROR_WHERE: where})

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


class Instruments:
    """Every metric. What is counted per call is counted in plain integers (:mod:`~otel_toolcalls.telemetry.tally`)."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter(c.SCOPE, __version__, provider)
        call = "{tool_call}"

        def seconds(name: str, description: str, buckets: Sequence[float] = c.SECONDS_BUCKETS) -> metrics.Histogram:
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=list(buckets))

        announced = (c.TOOL_NAME, c.PROVIDER_NAME, c.REQUEST_MODEL, c.CALL_KIND)
        self.announced = counter(provider, c.ANNOUNCED_CALLS, call, "Tool calls that a model announced", *announced)
        self.finished = counter(
            provider, c.FINISHED_CALLS, call, "Announced calls by outcome", *announced, c.CALL_OUTCOME, c.ERROR_TYPE
        )
        self.dispatched = counter(
            provider, c.DISPATCHED_CALLS, call, "Tool calls that began to run", c.TOOL_NAME, c.DISPATCH_MATCH
        )
        self.settled = counter(
            provider, c.SETTLED_CALLS, call, "Completed calls that wait no more", c.TOOL_NAME, c.SETTLED_BY
        )
        self.undispatched = counter(
            provider, c.UNDISPATCHED_CALLS, call, "Completed calls judged lost", c.TOOL_NAME, c.UNDISPATCHED_REASON
        )
        self.pending = up_down_counter(provider, c.PENDING_CALLS, call, "Completed calls that wait", c.TOOL_NAME)
        self.violations = meter.create_counter(c.VIOLATIONS, "{violation}", "Events that contradict the protocol")
        self.internal_errors = meter.create_counter(
            c.INTERNAL_ERRORS, "{error}", "Errors of the instrumentation itself"
        )
        self.duration = seconds(c.ANNOUNCE_DURATION, "From the announcement of a call to its end")
        self.size = meter.create_histogram(c.ARGUMENTS_SIZE_METRIC, "By", "Size of the arguments of a call")
        self.delay = seconds(c.DISPATCH_DELAY_METRIC, "From a call's completion to its dispatch", c.DELAY_BUCKETS)
        self.execution = seconds(c.EXECUTE_TOOL_DURATION, "While the body of a tool runs")
        self.inference = seconds(c.INFERENCE_DURATION, "From the request to the end of the response")
        self.first_chunk = seconds(c.TIME_TO_FIRST_CHUNK, "From the request to the first event of the response")
