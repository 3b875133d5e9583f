"""The pump carries what has ended to the exporters, whenever the process lets it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from otel_toolcalls.cli.pump import LogPump, Pump, SpanPump


class Broken(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("no space left")


class Stuck(SpanExporter):
    def __init__(self) -> None:
        self.free = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.free.wait()
        return SpanExportResult.SUCCESS


def pump_into(*exporters: SpanExporter) -> tuple[Pump, TracerProvider]:
    pump = Pump(exporters, (), lambda: None, 60.0)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanPump(pump))
    return pump, provider


def end_spans(provider: TracerProvider, count: int) -> None:
    for number in range(count):
        provider.get_tracer("test").start_span(str(number)).end()


def test_every_span_arrives_once_and_in_order() -> None:
    kept = InMemorySpanExporter()
    pump, provider = pump_into(kept)
    end_spans(provider, 3000)
    assert pump.close(10)
    assert [span.name for span in kept.get_finished_spans()] == [str(number) for number in range(3000)]


def test_no_thread_starts_before_the_first_span_ends() -> None:
    before = threading.active_count()
    pump, provider = pump_into(InMemorySpanExporter())
    assert threading.active_count() == before
    end_spans(provider, 1)
    assert threading.active_count() == before + 1
    assert pump.close(10)
    assert threading.active_count() == before


def test_a_span_that_is_not_sampled_is_not_sent() -> None:
    kept = InMemorySpanExporter()
    pump = Pump((kept,), (), lambda: None, 60.0)
    provider = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
    provider.add_span_processor(SpanPump(pump))
    end_spans(provider, 1)
    assert pump.close(10)
    assert kept.get_finished_spans() == ()


def test_an_exporter_that_fails_does_not_keep_spans_from_the_next(caplog: pytest.LogCaptureFixture) -> None:
    kept = InMemorySpanExporter()
    pump, provider = pump_into(Broken(), kept)
    end_spans(provider, 2)
    assert pump.close(10)
    assert len(kept.get_finished_spans()) == 2
    assert "no space left" in caplog.text


def test_an_exporter_that_is_stuck_does_not_hold_up_the_end() -> None:
    stuck = Stuck()
    pump, provider = pump_into(stuck)
    end_spans(provider, 1)
    assert not pump.close(0.05)
    stuck.free.set()
    assert pump.close(10)


def test_where_no_thread_can_start_any_more_closing_sends_what_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    kept = InMemorySpanExporter()
    pump, provider = pump_into(kept)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    end_spans(provider, 2)
    assert pump.close(10)
    assert len(kept.get_finished_spans()) == 2


def test_metrics_are_flushed_at_the_end() -> None:
    flushed: list[int] = []
    pump = Pump((), (), lambda: flushed.append(1), 60.0)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanPump(pump))
    end_spans(provider, 1)
    assert pump.close(10)
    assert flushed == [1]


def test_the_metrics_of_a_lost_call_do_not_wait_for_their_interval() -> None:
    flushed = threading.Event()
    pump = Pump((), (), flushed.set, 3600.0)
    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(LogPump(pump))
    logs.get_logger("test").emit(LogRecord(body="a call was announced and never dispatched"))
    assert flushed.wait(60)
    assert pump.close(10)


def test_metrics_that_cannot_be_sent_stop_nothing_else() -> None:
    kept, asked = InMemorySpanExporter(), threading.Event()

    def fail() -> None:
        asked.set()
        raise OSError("no route to host")

    pump = Pump((kept,), (), fail, 0.0)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanPump(pump))
    end_spans(provider, 1)
    assert asked.wait(60)
    end_spans(provider, 1)
    assert pump.close(10)
    assert len(kept.get_finished_spans()) == 2
