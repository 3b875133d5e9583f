"""The one background thread of a process: it does what must not happen where it came up.

That is what a finaliser found (the collector runs it inside any allocation, also one of the telemetry SDK that holds a
lock), what a shared store is to be told, and the judging of calls when they are due. It sleeps until the next of these.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from otel_toolcalls.guard import guarded

__all__ = ["Worker"]

Tick = Callable[[], "float | None"]
"""Does what is due; returns the seconds until something is due again, None for never."""

_LONGEST_SLEEP = 3600.0


class Worker:
    """Starts with the first thing there is to do. A daemon: it keeps no process alive."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self.forked()

    def forked(self) -> None:
        """This process is a copy, without the thread."""
        # put() of a SimpleQueue is the one that a finaliser may call.
        self._tasks: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._woken = False
        self._stopped = False

    def start(self) -> None:
        """Have the thread running. Not for finalisers."""
        if self._thread is None and not self._stopped:
            thread = threading.Thread(target=self._run, name="otel-toolcalls", daemon=True)
            self._thread = thread
            try:
                thread.start()
            except RuntimeError:  # the interpreter is going down: what waits is done at its exit
                self._thread = None

    def put(self, task: Callable[[], object]) -> None:
        """Have ``task`` done. Safe anywhere."""
        self._tasks.put(task)

    def wake(self) -> None:
        """Something may be due earlier than was known."""
        if not self._woken:
            self._woken = True
            self._tasks.put(_nothing)

    def stop(self, until: float) -> None:
        """Do what waits, here where the thread has not by ``until`` (``time.monotonic()``). Nothing is done after that."""
        self._stopped = True
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._tasks.put(None)
            thread.join(max(0.0, until - time.monotonic()))
        while True:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                guarded("worker", task)

    def leave(self) -> None:
        """Do what waits, and nothing after that; without waiting for it. Safe anywhere."""
        self._stopped = True
        self._tasks.put(None)

    def restart(self) -> None:
        """Be of use again after ``stop``."""
        self._stopped = False

    def _run(self) -> None:
        wait: float | None = 0.0
        while True:
            try:
                task = self._tasks.get(timeout=None if wait is None else max(0.0, min(wait, _LONGEST_SLEEP)))
            except queue.Empty:
                task = _nothing
            if task is None:
                return
            self._woken = False
            guarded("worker", task)
            wait = guarded("tick", self._tick)


def _nothing() -> None:
    return
