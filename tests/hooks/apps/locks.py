"""Lets the collector, or the last reference, find a stream while a lock is held that ending its spans needs.

python locks.py URL
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import sys
import threading
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

import otel_toolcalls
from tests.hooks.apis import APIS, Api
from tests.hooks.observed import OPERATION, outcome

(url,) = sys.argv[1:]
faulthandler.dump_traceback_later(90, exit=True)  # a deadlock says where


class Locking(SpanProcessor):
    """Like many: a lock around what it keeps, and not one that its holder can take twice."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ended: list[ReadableSpan] = []
        self.all_ended = threading.Event()
        self.inside: Any = None

    def on_end(self, span: ReadableSpan) -> None:
        with self.lock:
            if span.name == "app" and self.inside is not None:
                self.inside()
            self.ended.append(span)
            if span.attributes.get(OPERATION) == "chat":
                self.all_ended.set()


class LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        with processor.lock:
            gc.collect()


processor = Locking()
tracing = TracerProvider(shutdown_on_exit=False)
tracing.add_span_processor(processor)
otel_toolcalls.instrument(tracer_provider=tracing, ledger="none")
gc.disable()


class Cycle:
    def __init__(self, api: Api) -> None:
        self.itself: Any = self
        self.stream = api.create(api.client(url))
        for _ in range(api.until_open()):
            next(self.stream)


held: list[Cycle] = []


def drop() -> None:
    held[0].itself = None
    held.clear()


def drop_in_a_processor() -> None:
    processor.inside = drop
    tracing.get_tracer("app").start_span("app").end()


def collect_in_a_processor() -> None:
    held.clear()
    processor.inside = gc.collect
    tracing.get_tracer("app").start_span("app").end()


def collect_under_a_lock_of_the_app() -> None:
    held.clear()
    with processor.lock:
        gc.collect()


def collect_in_a_log_handler() -> None:
    held.clear()
    logger.warning("said while a stream is lost")


logger = logging.getLogger("app")
logger.addHandler(LogHandler())
logger.propagate = False
for api in APIS:
    for lose in (
        drop_in_a_processor,
        collect_in_a_processor,
        collect_under_a_lock_of_the_app,
        collect_in_a_log_handler,
    ):
        held.append(Cycle(api))
        lose()
        if not processor.all_ended.wait(10):
            sys.exit(f"{api} {lose.__name__}: the turn was never ended")
        ended = [span for span in processor.ended if span.attributes.get(OPERATION) == "announce_tool"]
        (error_type,) = {outcome(call)[1] for call in ended} - {None}
        sys.stdout.write(f"{api} {lose.__name__} {error_type}\n")
        processor.ended.clear()
        processor.all_ended.clear()
        processor.inside = None
