"""The providers that every contestant writes to: whole spans and metrics are made, and nothing is exported."""

from __future__ import annotations

from typing import Any

from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

__all__ = ["Telemetry"]


class Keeper(SpanProcessor):
    """Keeps finished spans while it is told to, else drops them at once."""

    def __init__(self) -> None:
        self.keeps = False
        self.spans: list[Any] = []

    def on_end(self, span: Any) -> None:
        if self.keeps:
            self.spans.append(span)


class _LogKeeper:
    """The same for log records, on whichever of the SDK's two interfaces."""

    def __init__(self) -> None:
        self.keeps = False
        self.records: list[Any] = []

    def on_emit(self, record: Any) -> None:
        if self.keeps:
            self.records.append(record)

    def shutdown(self) -> None:
        """Nothing to let go."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


class Telemetry:
    """One set of providers."""

    def __init__(self) -> None:
        self.keeper, self._logs = Keeper(), _LogKeeper()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(self.keeper)
        self.meter_provider = MeterProvider(metric_readers=[InMemoryMetricReader()])
        self.logger_provider = LoggerProvider()
        self.logger_provider.add_log_record_processor(self._logs)  # type: ignore[arg-type]

    def make_global(self) -> None:
        """For contestants that take no providers."""
        trace.set_tracer_provider(self.tracer_provider)
        metrics.set_meter_provider(self.meter_provider)
        set_logger_provider(self.logger_provider)

    def keep(self, *, on: bool) -> None:
        self.keeper.keeps = self._logs.keeps = on
        if on:
            self.keeper.spans.clear()
            self._logs.records.clear()

    def kept(self) -> list[dict[str, Any]]:
        """What the kept spans and records say, as plain data."""
        said = [
            {
                "name": span.name,
                "attributes": dict(span.attributes or {}),
                "events": [{"name": event.name, "attributes": dict(event.attributes or {})} for event in span.events],
            }
            for span in self.keeper.spans
        ]
        for record in self._logs.records:
            log = getattr(record, "log_record", record)
            said.append({"name": str(log.event_name), "attributes": dict(log.attributes or {}), "body": log.body})
        return said
