"""What hooks need to observe a response: made once per ``instrument()``, kept by the streams that began under it.

It also owns the turns that are not over, so that each of them is ended at interpreter exit, and none of them by a
forked child.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable
from types import FrameType

from otel_toolcalls.config import Settings
from otel_toolcalls.conventions import ErrorType
from otel_toolcalls.guard import guarded
from otel_toolcalls.ledger.book import Ledger
from otel_toolcalls.telemetry import Telemetry
from otel_toolcalls.turn import Observer, Replays, Request, Turn
from otel_toolcalls.worker import Worker

__all__ = ["Runtime", "inside_telemetry"]


class Runtime:
    """Makes turns, and ends those that nobody else ends."""

    def __init__(
        self, settings: Settings, telemetry: Telemetry, ledger: Ledger | None, worker: Worker, arm: Callable[[], object]
    ) -> None:
        self.settings = settings
        self._telemetry = telemetry
        self._ledger = ledger
        self._worker = worker
        self._arm = arm
        self._observers: tuple[Observer, ...] = (telemetry,) if ledger is None else (telemetry, ledger)
        self._replays = Replays()
        self._live: dict[Turn, object] = {}
        self._retired = False
        _runtimes.add(self)

    def here(self) -> object:
        """The context of whoever calls; opaque to hooks."""
        return self._telemetry.here()

    def request(self, request: Request) -> None:
        """A request is about to be sent."""
        guarded("request", self._arm)
        guarded("request", self._telemetry.request, request)
        if self._ledger is not None and request.telemetry is not None:
            guarded("request", self._ledger.request, request)

    def begin(self, request: Request) -> Turn:
        """A response begins."""
        turn = Turn(
            request,
            self._observers,
            replays=self._replays,
            raise_violations=self.settings.on_violation == "raise",
        )
        guarded("begun", self._telemetry.begun, turn)
        self.keep(turn, None)
        _exit.arm(self._telemetry.provider())
        self._worker.start()
        return turn

    def keep(self, turn: Turn, until_over: object) -> None:
        """Hold ``until_over`` as long as the turn is open: a weak reference must be alive to tell that another died."""
        self._live[turn] = until_over
        _busy.add(self)

    def end(self, turn: Turn, error_type: str, *, late: bool = False) -> None:
        """A response is over. Where noting that fails, the end of the process tries again."""
        guarded("end", self._end, turn, error_type, late)
        if turn.over:
            self._forget(turn)

    def end_elsewhere(self, turn: Turn, error_type: str, *, late: bool = False) -> None:
        """A response is over, as was found out where ending it could deadlock: the worker does."""
        self._worker.put(lambda: guarded("end", self._end, turn, error_type, late))
        self._forget(turn)

    def unread(self, request: Request) -> None:
        """A finaliser found that nobody read the response to a request that answers calls."""
        self._worker.put(lambda: self.end(self.begin(request), ErrorType.CLOSED_EARLY))

    def _forget(self, turn: Turn) -> None:
        self._live.pop(turn, None)
        if not self._live:
            _busy.discard(self)
            if self._live:  # another thread began one in between
                _busy.add(self)
            elif self._retired:
                self._worker.leave()

    @staticmethod
    def _end(turn: Turn, error_type: str, late: bool) -> None:
        turn.end(error_type, late=late)

    def shutdown(self) -> None:
        """The process ends: end each turn that is not over, and judge each call that waits. One deadline is for all."""
        until = time.monotonic() + _LONGEST_SHUTDOWN
        for turn in list(self._live):
            self._forget(turn)
            guarded("shutdown", self._end, turn, ErrorType.PROCESS_EXIT, True)
        self._worker.stop(until)
        if self._ledger is not None:
            guarded("shutdown", self._ledger.close, until)
        self._worker.restart()

    def retire(self) -> None:
        """Nothing more is observed: streams that are open finish as they began, calls that wait are let go."""
        until = time.monotonic() + _LONGEST_SHUTDOWN
        if self._ledger is not None:
            guarded("retire", self._ledger.retire, until)
        self._retired = True
        if not self._live:
            self._worker.stop(until)

    def forked(self) -> None:
        """This process is a copy: its parent owns the streams that were open, and the calls that waited."""
        for turn in self._live:
            turn.disown()
        self._live = {}
        self._worker.forked()
        if self._ledger is not None:
            self._ledger.forked()


_LONGEST_SHUTDOWN = 5.0
"""Seconds that the end of the process waits in all: for the worker, and for a store that is slow or out of reach."""
_LOCKING = ("opentelemetry.sdk", "opentelemetry.exporter", "otel_toolcalls.", "logging", "grpc")


def inside_telemetry() -> bool:
    """For a finaliser: code that may hold a lock of the telemetry, or of ours, runs below it on this thread's stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if isinstance(module, str) and module.startswith(_LOCKING) and module not in _FINALISERS:
            return True
        frame = frame.f_back
    return False


_FINALISERS = frozenset({"otel_toolcalls.runtime", "otel_toolcalls.hooks.observation"})
_busy: set[Runtime] = set()
"""Those with open turns stay, also after ``uninstrument()``."""


class _Exit:
    """Runs at interpreter exit before the telemetry shuts down: ``atexit`` is last in, first out, so it registers again
    whenever another provider has come."""

    def __init__(self) -> None:
        self._provider: object = self

    def arm(self, provider: object) -> None:
        if provider is not self._provider:
            self._provider = provider
            atexit.unregister(_end_all)
            atexit.register(_end_all)


_exit = _Exit()
_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _end_all() -> None:
    for runtime in list(_runtimes):
        guarded("exit", runtime.shutdown)


def _after_fork() -> None:
    for runtime in list(_runtimes):
        guarded("fork", runtime.forked)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
