"""``otel-toolcalls sweep``: judges the calls of a shared ledger in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

import click
from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider
from opentelemetry.sdk._configuration import _OTelSDKConfigurator

from otel_toolcalls import guard
from otel_toolcalls.cli.keeping import Kept, keep
from otel_toolcalls.cli.ledgers import errors_in_one_line, ledger_option, opened, trace_id, word
from otel_toolcalls.ledger import Judged
from otel_toolcalls.ledger.shared import SharedStore, StoreError
from otel_toolcalls.telemetry import Telemetry

__all__ = ["Sweeper", "UnsentError", "command"]

_LOOK_SECONDS = 1.0
_LONGEST_PAUSE = 10.0
_DEFAULTS = {
    "OTEL_SERVICE_NAME": "otel-toolcalls-sweep",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "otlp",
    "OTEL_LOGS_EXPORTER": "otlp",
}


@click.command()
@ledger_option
@click.option("--once", is_flag=True, help="Judge what is due now, and end.")
def command(ledger: str, once: bool) -> int:
    """Report the tool calls in a ledger that nobody ran: their spans, metrics and log events, and a line for each.

    They are sent as the OTEL_* variables say, by OTLP where these say nothing. Any number of these processes can run
    beside the apps; each call is reported by one. A report that cannot be sent is tried again, and left to the next
    sweep where this one ends before it has left. It runs until SIGTERM or Ctrl-C; with --once the exit status is 1
    when a call was lost, and 3 when its report could not be sent.
    """
    store, settings = opened(ledger)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    _configure_sdk()
    telemetry = Telemetry(settings)
    guard.listen(telemetry.internal_error)
    kept = keep(trace.get_tracer_provider())
    sweeper = Sweeper(store, telemetry.lost, lambda: _flush(kept))
    try:
        if once:
            with errors_in_one_line():
                stop.wait(store.patience())
                return int(sweeper.sweep() > 0)
        sweeper.run(stop)
        return 0
    finally:
        store.close(time.time())
        for provider in (trace.get_tracer_provider(), metrics.get_meter_provider(), get_logger_provider()):
            getattr(provider, "shutdown", _nothing)()


class UnsentError(click.ClickException):
    """The reports of so many calls could not be sent. The ledger hands them out again."""

    exit_code = 3

    def __init__(self, count: int) -> None:
        reports = "1 report" if count == 1 else f"{count} reports"
        super().__init__(f"{reports} of lost calls could not be sent; what is not sent stays in the ledger")


class Sweeper:
    """Takes due calls from a store, reports each, and tells the store so when the report has left.

    While one has not left, no more are taken: others may be able to report those, and what waits here stays bounded.
    """

    def __init__(self, store: SharedStore, lost: Callable[[Judged], None], flush: Callable[[], bool]) -> None:
        self._store = store
        self._lost = lost
        self._flush = flush
        self._made: dict[str, None] = {}
        """Calls whose report was made, and of which the store has not been told so."""

    def sweep(self) -> int:
        """Report what is due now, and return how much that was. Raises StoreError and UnsentError."""
        count = 0
        self._send()
        while judged := self._store.judge(time.time()):
            for one in judged:
                if one.entry.key not in self._made:
                    self._made[one.entry.key] = None
                    guard.guarded("sweep.lost", self._lost, one)
                    print(_line(one), flush=True)
                    count += 1
            self._send()
        return count

    def _send(self) -> None:
        if not self._made:
            return
        if not self._flush():
            self._store.apply(())  # it says that this process is alive: else another would report these as well
            raise UnsentError(len(self._made))
        self._store.reported(list(self._made))
        self._made.clear()

    def run(self, stop: threading.Event) -> None:
        """Sweep until ``stop``, also while the store, or where the reports go, comes and goes."""
        pause = 0.0
        while not stop.is_set():
            try:
                self.sweep()
                due = self._store.next_due()
                rest = _LOOK_SECONDS if due is None else max(0.01, min(_LOOK_SECONDS, due - time.time()))
                pause = 0.0
            except (StoreError, UnsentError) as error:
                if not pause and not (self._made and stop.is_set()):  # that is said below
                    print(f"otel-toolcalls: {error}", file=sys.stderr, flush=True)
                rest = pause = min(_LONGEST_PAUSE, 2 * pause or _LOOK_SECONDS)
            stop.wait(rest)
        if self._made:
            print(f"otel-toolcalls: {UnsentError(len(self._made))}", file=sys.stderr, flush=True)


def _line(judged: Judged) -> str:
    entry = judged.entry
    at = datetime.fromtimestamp(judged.at, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return (
        f"{at} lost tool={word(entry.name)} call_id={word(entry.call_id)} reason={judged.reason.value}"
        f" waited={judged.at - entry.completed_at:.1f}s provider={word(entry.provider)} model={word(entry.model)}"
        f" trace_id={word(trace_id(entry))} key={entry.key}"
    )


def _configure_sdk() -> None:
    """Make the global providers as the ``OTEL_*`` variables say."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        _OTelSDKConfigurator().configure()  # type: ignore[no-untyped-call]
    except Exception as error:
        raise click.UsageError(f"OpenTelemetry: {error}".splitlines()[0]) from None


def _flush(kept: Sequence[Kept]) -> bool:
    """Send what was reported; whether each span of it has left. The log events say nothing that the spans do not."""
    for one in kept:
        one.send_again()
    if not any(one.any for one in kept):
        getattr(trace.get_tracer_provider(), "force_flush", _nothing)()
    if any(one.any for one in kept):
        return False
    getattr(get_logger_provider(), "force_flush", _nothing)()
    return True


def _nothing() -> None:
    """The API's own providers hold nothing."""
