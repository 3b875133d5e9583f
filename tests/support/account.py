"""Closing the account: from the traces alone, and from the metrics alone.

`account` is a fixture: providers in memory, instrumented for the length of the test; at its end both are checked.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs import export as log_export
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_toolcalls
from otel_toolcalls import conventions as c

__all__ = ["Account", "account", "unaccounted"]

WAIT_SECONDS = 20.0


def unaccounted(spans: Sequence[ReadableSpan], pending: Collection[str] = ()) -> list[str]:
    """Keys of completed client-run calls of which the spans do not tell what became; ``pending`` still wait."""
    told = {span_id for span in spans for span_id in _tells_of(span)}
    return [
        str(span.attributes[c.CALL_KEY])
        for span in spans
        if span.attributes.get(c.CALL_OUTCOME) == c.Outcome.COMPLETED.value
        and span.attributes.get(c.CALL_KIND) == c.Kind.CLIENT.value
        and not span.attributes.get(c.CALL_EXEMPT)
        and span.context.span_id not in told
        and span.attributes[c.CALL_KEY] not in pending
    ]


def _tells_of(span: ReadableSpan) -> list[int]:
    """The announced calls of which this span says what became of them: as their child, or by a link to them."""
    operation = span.attributes.get(c.OPERATION_NAME)
    if operation == c.OP_AWAIT:
        return [span.parent.span_id]
    happens = operation in (c.OP_EXECUTE, c.OP_ACKNOWLEDGE)
    linked = c.LINK_ANNOUNCED_BY if happens else c.LINK_ANSWERS
    found = [link.context.span_id for link in span.links if link.attributes.get(c.LINK_TYPE) == linked]
    return found + ([span.parent.span_id] if happens and span.parent is not None else [])


# OpenTelemetry renamed it in 1.39.
InMemoryLogs: Any = getattr(log_export, "InMemoryLogRecordExporter", None) or log_export.InMemoryLogExporter


class Account:
    """What one app told OpenTelemetry."""

    def __init__(self, tracer_provider: type[TracerProvider] = TracerProvider) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracer_provider = tracer_provider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.logs = InMemoryLogs()
        self.logger_provider = LoggerProvider(shutdown_on_exit=False)
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self.logs))

    @contextmanager
    def instrumented(self, **settings: Any) -> Iterator[Account]:
        """On for the length of the block; then the account must close."""
        otel_toolcalls.instrument(
            tracer_provider=self.tracer_provider,
            meter_provider=self.meter_provider,
            logger_provider=self.logger_provider,
            **settings,
        )
        try:
            yield self
            self.check()
        finally:
            otel_toolcalls.uninstrument()

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def of(self, operation: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.attributes.get(c.OPERATION_NAME) == operation]

    @property
    def lost(self) -> list[tuple[str | None, str]]:
        """Id and reason of each judgement."""
        return [
            (span.attributes.get(c.TOOL_CALL_ID), str(span.attributes[c.UNDISPATCHED_REASON]))
            for span in self.of(c.OP_AWAIT)
        ]

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds that another thread brings about."""
        deadline, pause = time.monotonic() + WAIT_SECONDS, threading.Event()
        while not condition() and time.monotonic() < deadline:
            pause.wait(0.005)
        assert condition()

    def total(self, metric: str, **attributes: str) -> int:
        """The sum of a metric's points that carry these attributes (keys by their last word)."""
        data = self.reader.get_metrics_data()
        return sum(
            point.value
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for found in scope.metrics
            if found.name == metric
            for point in found.data.data_points
            if all(_by_last_word(point.attributes).get(key) == value for key, value in attributes.items())
        )

    def check(self) -> None:
        """Nothing is unaccounted for, in the traces and in the metrics, and no call was judged twice."""
        pending = [entry.key for entry in otel_toolcalls.pending()]
        assert unaccounted(self.spans, pending) == []
        judged = Counter(span.attributes[c.CALL_KEY] for span in self.of(c.OP_AWAIT))
        assert [key for key, times in judged.items() if times > 1] == []
        completed = self.total(c.FINISHED_CALLS, outcome="completed", kind="client")
        settled, lost = self.total(c.SETTLED_CALLS), self.total(c.UNDISPATCHED_CALLS)
        assert completed == settled + lost + self.total(c.PENDING_CALLS)
        assert self.total(c.PENDING_CALLS) == len(pending)
        assert lost == len(self.of(c.OP_AWAIT)) == len(self.logs.get_finished_logs())
        assert self.total(c.INTERNAL_ERRORS) == 0


def _by_last_word(attributes: Any) -> dict[str, Any]:
    return {key.rpartition(".")[2]: value for key, value in attributes.items()}


@pytest.fixture
def account() -> Iterator[Account]:
    """Instrumented, with short patience."""
    made = Account()
    with made.instrumented(sibling_grace=0.05):
        yield made
