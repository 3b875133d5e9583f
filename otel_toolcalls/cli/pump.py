"""One thread that carries what has ended to the exporters, and that exists only once something has.

The SDK's batch processors start a thread when they are made, and start it again in each forked child. An app under
``run`` must not get a thread before it talks to a model (a process with threads is warned when it forks), and a forked
child must start empty; so the private pipeline has this pump instead.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk._logs import LogRecordProcessor, ReadableLogRecord, ReadWriteLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["LogPump", "Pump", "SpanPump"]

_DELAY_SECONDS = 1.0
"""How long something that has ended waits for company: what a SIGKILL can cost."""
_BATCH = 512
_QUEUE = 16384

_Item = TypeVar("_Item")
_Batch = TypeVar("_Batch")
_logger = logging.getLogger(__name__)


class Pump:
    """Queues for spans and log records, drained by a daemon thread that the first of them starts.

    ``flush_metrics`` is called every ``metrics_seconds``, at the end, and with each log record: there is one for a lost
    call only, and whoever is alerted by its counter should not wait for the next round.
    """

    def __init__(
        self,
        span_exporters: Sequence[SpanExporter],
        log_exporters: Sequence[LogRecordExporter],
        flush_metrics: Callable[[], object],
        metrics_seconds: float,
    ) -> None:
        self._span_exporters = span_exporters
        self._log_exporters = log_exporters
        self._flush_metrics = flush_metrics
        self._metrics_seconds = metrics_seconds
        self._spans: deque[ReadableSpan] = deque(maxlen=_QUEUE)
        self._logs: deque[ReadableLogRecord] = deque(maxlen=_QUEUE)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def put_span(self, span: ReadableSpan) -> None:
        """Queue a span that has ended."""
        self._put(self._spans, span)

    def put_log(self, record: ReadableLogRecord) -> None:
        """Queue a log record."""
        self._put(self._logs, record)

    def close(self, timeout: float) -> bool:
        """Send what is queued and stop, within ``timeout`` seconds; false when that was not enough."""
        self._closing = True
        with self._lock:
            if self._thread is None:
                if self._spans or self._logs:
                    self._work()
                return True
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _put(self, queue: deque[_Item], item: _Item) -> None:
        queue.append(item)
        if self._thread is None:
            self._start()
        if len(queue) >= _BATCH:
            self._wake.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="otel-toolcalls-export", daemon=True)
                with contextlib.suppress(RuntimeError):  # the interpreter is going down: what is queued waits for close
                    thread.start()
                    self._thread = thread

    def _work(self) -> None:
        with suppress_instrumentation():
            metrics_due = time.monotonic() + self._metrics_seconds
            while not self._closing:
                self._wake.wait(_DELAY_SECONDS)
                self._wake.clear()
                lost = bool(self._logs)
                self._drain()
                if lost or time.monotonic() >= metrics_due:
                    self._send_metrics()
                    metrics_due = time.monotonic() + self._metrics_seconds
            self._drain()
            self._send_metrics()

    def _send_metrics(self) -> None:
        try:
            self._flush_metrics()
        except Exception:
            _logger.exception("metrics could not be sent now; the next round sends them")

    def _drain(self) -> None:
        while spans := _take(self._spans):
            for span_exporter in self._span_exporters:
                _guarded(span_exporter.export, spans)
        while records := _take(self._logs):
            for log_exporter in self._log_exporters:
                _guarded(log_exporter.export, records)


def _take(queue: deque[_Item]) -> list[_Item]:
    return [queue.popleft() for _ in range(min(_BATCH, len(queue)))]


def _guarded(work: Callable[[_Batch], object], batch: _Batch) -> None:
    try:
        work(batch)
    except Exception:
        _logger.exception("an exporter failed; its batch is lost")


class SpanPump(SpanProcessor):
    """Hands each sampled span that ends to a pump."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is not None and context.trace_flags.sampled:
            self._pump.put_span(span)


class LogPump(LogRecordProcessor):
    """Hands each log record to a pump."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        self._pump.put_log(
            ReadableLogRecord(
                log_record.log_record,
                log_record.resource or Resource.get_empty(),
                log_record.instrumentation_scope,
                log_record.limits,
            )
        )

    def shutdown(self) -> None:
        """Nothing: the pump is closed by its owner."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002  (its interface)
        """Nothing, likewise."""
        return True
