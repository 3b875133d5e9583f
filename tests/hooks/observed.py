"""What one test's ``instrument()`` told OpenTelemetry, and whether anybody complained."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

import otel_toolcalls

OPERATION = "gen_ai.operation.name"
WAIT_SECONDS = 10.0


class Account(SpanProcessor):
    """Every span that was started and every one that was ended, in order."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.started.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.name}: {record.getMessage()}")


LOGGERS = ("opentelemetry", "otel_toolcalls", "asyncio")


class Observed:
    """Providers in memory, and questions about what they were given."""

    def __init__(self) -> None:
        self.account = Account()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(self.account)
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.logger_provider = LoggerProvider(shutdown_on_exit=False)
        self.complaints: list[str] = []

    @property
    def providers(self) -> dict[str, Any]:
        return {
            "tracer_provider": self.tracer_provider,
            "meter_provider": self.meter_provider,
            "logger_provider": self.logger_provider,
        }

    @contextmanager
    def instrumented(self, **settings: Any) -> Iterator[None]:
        handler = _Complaints()
        self.complaints = handler.texts
        loggers = [logging.getLogger(name) for name in LOGGERS]
        for logger in loggers:
            logger.addHandler(handler)
        settings.setdefault("ledger", "none")  # what becomes of completed calls is tested beside the ledger
        otel_toolcalls.instrument(**self.providers, **settings)
        try:
            yield
        finally:
            otel_toolcalls.uninstrument()
            for logger in loggers:
                logger.removeHandler(handler)

    # ---- spans ------------------------------------------------------------------------------------------------------

    def started(self, operation: str = "announce_tool") -> list[Any]:
        return [span for span in list(self.account.started) if span.attributes.get(OPERATION) == operation]

    def ended(self, operation: str = "announce_tool") -> list[ReadableSpan]:
        found = [span for span in list(self.account.ended) if span.attributes.get(OPERATION) == operation]
        return sorted(found, key=lambda span: span.attributes.get("otel_toolcalls.call.ordinal", 0))

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds that another thread brings about."""
        deadline = time.monotonic() + WAIT_SECONDS
        pause = threading.Event()
        while not condition() and time.monotonic() < deadline:
            pause.wait(0.005)
        assert condition()

    @property
    def calls(self) -> list[ReadableSpan]:
        """The announced calls, in order."""
        return self.ended("announce_tool")

    @property
    def turns(self) -> list[ReadableSpan]:
        """Our own spans of responses."""
        return [span for span in self.ended("chat") if span.instrumentation_scope.name == "otel_toolcalls"]

    @property
    def outcomes(self) -> list[tuple[str, str | None]]:
        return [outcome(call) for call in self.calls]

    def check(self) -> None:
        """Each span that was started has ended, once, not before it started; and nobody complained."""
        gc.collect()
        started = sorted(span.context.span_id for span in self.account.started)
        self.wait_for(lambda: len(self.account.ended) >= len(started))
        ended = sorted(span.context.span_id for span in self.account.ended)
        assert ended == started
        for span in self.account.ended:
            assert span.start_time <= span.end_time, span.name
        for turn in self.turns:
            counts = [turn.attributes[f"otel_toolcalls.turn.{what}"] for what in ("announced", "completed", "failed")]
            assert counts[0] == counts[1] + counts[2]
        assert self.complaints == []

    # ---- metrics ----------------------------------------------------------------------------------------------------

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def total(self, name: str, **where: Any) -> float:
        wanted = {key.replace("__", "."): value for key, value in where.items()}
        return sum(point.value for point in self.points(name) if wanted.items() <= dict(point.attributes).items())


def outcome(call: ReadableSpan) -> tuple[str, str | None]:
    """How a call ended, and its ``error.type``."""
    return call.attributes["otel_toolcalls.call.outcome"], call.attributes.get("error.type")
