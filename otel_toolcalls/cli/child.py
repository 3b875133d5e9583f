"""Instruments a process of the app under ``run``, from before its first line to after its last.

Exits that are covered: the normal one, an exception, ``sys.exit``, a signal that ends the process by default, the end
of a ``multiprocessing`` child. A process that is killed (SIGKILL) or that calls ``os._exit`` loses what ended in the
last second, and its open calls.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import otel_toolcalls
from otel_toolcalls.cli.destination import Destination
from otel_toolcalls.cli.pipeline import Pipeline, build

__all__ = ["start"]

_TIMEOUT_SECONDS = 5.0
"""How long the end of a process may be held up by telemetry that is still to be sent."""

_FATAL_SIGNALS = ("SIGTERM", "SIGHUP")
"""Signals that end a process before it could flush, where the app does not handle them itself."""


class _Process:
    """What this process has: at its start, and again in each forked child."""

    pipeline: Pipeline | None = None
    multiprocessing_told = False


def start() -> None:
    """Instrument this process, and every one that is forked from it."""
    _instrument()
    atexit.register(_finish)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_child=_start_anew)
    for name in _FATAL_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _finish_and_die)


def _instrument() -> None:
    destination = Destination.from_environment()
    pipeline = build(destination)
    otel_toolcalls.instrument(
        pipeline.tracer_provider, pipeline.meter_provider, pipeline.logger_provider, **_settings(destination)
    )
    _Process.pipeline = pipeline
    if destination.roll is not None:
        with Path(destination.roll).open("a", encoding="utf-8") as roll:
            roll.write(f"{os.getpid()}\n")


def _settings(destination: Destination) -> dict[str, str]:
    """Without an OTLP endpoint nobody else's spans come to the same place, so every turn gets a span of ours."""
    if destination.protocol is None and "OTEL_TOOLCALLS_TURN_SPAN" not in os.environ:
        return {"turn_span": "always"}
    return {}


def _finish() -> None:
    """End what is open and send what is queued; a second time there is nothing left to do."""
    pipeline = _Process.pipeline
    if pipeline is None:
        return
    try:
        otel_toolcalls.shutdown()
        if not pipeline.pump.close(_TIMEOUT_SECONDS):
            _say(f"gave up sending the telemetry of process {os.getpid()} after {_TIMEOUT_SECONDS:g} s")
    except Exception as error:
        _say(f"the telemetry of process {os.getpid()} is not whole: {type(error).__name__}: {error}")


def _finish_and_die(number: int, _frame: FrameType | None) -> None:
    """Do what the signal does by default, a moment later.

    The handler has interrupted the main thread anywhere, maybe while it held a lock that finishing needs: another
    thread does it, and is not waited for without end.
    """
    finishing = threading.Thread(target=_finish, daemon=True)
    finishing.start()
    finishing.join(_TIMEOUT_SECONDS)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _before_fork() -> None:
    """Have a forked ``multiprocessing`` child finish: it ends by ``os._exit``, past every ``atexit`` function."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _Process.multiprocessing_told:
        util.register_after_fork(_finish, lambda finish: util.Finalize(None, finish, exitpriority=-100))
        _Process.multiprocessing_told = True


def _start_anew() -> None:
    """Give a forked child providers, counts and an identity of its own; what the parent has queued stays there."""
    if _Process.pipeline is None:
        return
    try:
        otel_toolcalls.uninstrument()
        _instrument()
    except Exception as error:
        _Process.pipeline = None
        _say(f"not tracing forked process {os.getpid()}: {type(error).__name__}: {error}")


def _say(what: str) -> None:
    print(f"otel-toolcalls: {what}", file=sys.stderr)
