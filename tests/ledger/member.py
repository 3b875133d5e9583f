"""A process of a fleet: announces and runs calls as it is told on standard input, with the package as an app has it.

    python -m tests.ledger.member LEDGER REPORT DEADLINE

Each ``await_dispatch`` span that it ends is one line of the file REPORT at once: call id, reason, whether it lies in the
announcing trace. The trace of a call is made of its id here, so that any process knows it.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from otel_toolcalls import conventions as c
from otel_toolcalls import dispatch, instrument, instrumentor, pending
from otel_toolcalls.turn import Request


def trace_id_of(call_id: str) -> int:
    return int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:16], "big")


class Report(SpanExporter):
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            attributes = span.attributes or {}
            if attributes.get(c.OPERATION_NAME) == c.OP_AWAIT:
                call_id = str(attributes[c.TOOL_CALL_ID])
                home = span.context is not None and span.context.trace_id == trace_id_of(call_id)
                os.write(self._file, f"{call_id} {attributes[c.UNDISPATCHED_REASON]} {home}\n".encode())
        return SpanExportResult.SUCCESS


def announce(call_ids: Sequence[str]) -> None:
    installation = instrumentor._current
    assert installation is not None
    for call_id in call_ids:
        context = trace.SpanContext(trace_id_of(call_id), 1, is_remote=True, trace_flags=trace.TraceFlags(1))
        with trace.use_span(trace.NonRecordingSpan(context)):
            request = Request(provider="anthropic", model="a-model", tools=frozenset({"search"}))
            installation.runtime.request(request)
            turn = installation.runtime.begin(request)
            turn.announce(0, call_id, "search")
            turn.append(0, "{}")
            turn.close(0)
            turn.finish("tool_use")
            installation.runtime.end(turn, "stream_ended")


def run(call_ids: Sequence[str]) -> None:
    for call_id in call_ids:
        with dispatch(call_id, name="search"):
            pass


def fork(call_ids: Sequence[str]) -> None:
    """A forked child announces these, and is killed."""
    child = os.fork()
    if child == 0:
        announce(call_ids)
        pending()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def main() -> None:
    ledger, report, deadline = sys.argv[1:]
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Report(report)))
    instrument(tracer_provider=provider, ledger=ledger, dispatch_deadline=float(deadline), ledger_capacity=100_000)
    commands = {"announce": announce, "run": run, "flush": lambda _: pending(), "fork": fork}
    for line in sys.stdin:
        command, *call_ids = line.split()
        commands[command](call_ids)
        sys.stdout.write(f"{command}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
