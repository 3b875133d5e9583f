"""What hooks need to observe a response: made once per ``instrument()``, kept by the streams that began under it.

It also owns the turns that are not over, so that each of them is ended at interpreter exit, and none of them by a
forked child.
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

from otel_toolcalls.config import Settings
from otel_toolcalls.conventions import ErrorType
from otel_toolcalls.guard import guarded
from otel_toolcalls.turn import Observer, Replays, Request, Turn

__all__ = ["Facts", "Runtime"]


class Facts(Protocol):
    """Who hears of requests, beside of turns."""

    def request(self, request: Request) -> None:
        """A request is about to be sent."""

    def begun(self, turn: Turn) -> None:
        """Its response begins."""


class Runtime:
    """Makes turns, and ends those that nobody else ends."""

    def __init__(
        self,
        settings: Settings,
        observers: tuple[Observer, ...],
        facts: tuple[Facts, ...],
        provider: Callable[[], object] = lambda: None,
    ) -> None:
        self.settings = settings
        self._provider = provider
        self._observers = observers
        self._facts = facts
        self._replays = Replays()
        self._live: set[Turn] = set()
        self._janitor = _Janitor()
        _runtimes.add(self)

    def request(self, request: Request) -> None:
        """A request is about to be sent."""
        for facts in self._facts:
            guarded("request", facts.request, request)

    def begin(self, request: Request) -> Turn:
        """A response begins."""
        turn = Turn(
            request,
            self._observers,
            replays=self._replays,
            raise_violations=self.settings.on_violation == "raise",
        )
        for facts in self._facts:
            guarded("begun", facts.begun, turn)
        self._live.add(turn)
        _exit.arm(self._provider())
        self._janitor.start()
        return turn

    def end(self, turn: Turn, error_type: str, *, late: bool = False, finalising: bool = False) -> None:
        """A response is over. ``finalising``: a finaliser found out, which may run anywhere; where it is not safe to
        end the turn there, the janitor does."""
        self._live.discard(turn)
        if finalising and _inside_telemetry():
            self._janitor.take(lambda: guarded("end", self._end, turn, error_type, late))
        else:
            guarded("end", self._end, turn, error_type, late)

    @staticmethod
    def _end(turn: Turn, error_type: str, late: bool) -> None:
        turn.end(error_type, late=late)

    def shutdown(self) -> None:
        """End each turn that is not over: its process ends."""
        self._janitor.drain()
        while self._live:
            turn = self._live.pop()
            guarded("shutdown", self._end, turn, ErrorType.PROCESS_EXIT, True)

    def disown(self) -> None:
        """This process was forked: its parent owns the streams that were open."""
        for turn in self._live:
            turn.disown()
        self._live = set()
        self._janitor = _Janitor()


class _Janitor:
    """Ends turns that were found dead at a moment when ending them could deadlock.

    The collector can run a finaliser inside any allocation, also one of the telemetry SDK that holds a lock. A daemon
    thread of its own waits for those; ``SimpleQueue.put`` is safe in a finaliser.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._started = False

    def start(self) -> None:
        if not self._started:
            self._started = True
            try:
                name = "otel-toolcalls-janitor"
                threading.Thread(target=self._run, args=(self._work,), name=name, daemon=True).start()
            except RuntimeError:  # the interpreter is going down: shutdown drains
                self._started = False

    def take(self, work: Callable[[], object]) -> None:
        self._work.put(work)

    def drain(self) -> None:
        """Do here what waits."""
        for work in _waiting(self._work):
            work()

    @staticmethod
    def _run(work: queue.SimpleQueue[Callable[[], object]]) -> None:
        while True:
            work.get()()


def _waiting(work: queue.SimpleQueue[Callable[[], object]]) -> Iterator[Callable[[], object]]:
    while True:
        try:
            yield work.get_nowait()
        except queue.Empty:
            return


_LOCKING = ("opentelemetry.sdk", "opentelemetry.exporter", "otel_toolcalls.", "logging", "grpc")


def _inside_telemetry() -> bool:
    """Code that may hold a lock of the telemetry, or of ours, is running below the finaliser on this thread's stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if isinstance(module, str) and module.startswith(_LOCKING) and module not in _FINALISERS:
            return True
        frame = frame.f_back
    return False


_FINALISERS = frozenset({"otel_toolcalls.runtime", "otel_toolcalls.hooks.observation"})
_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


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


def _end_all() -> None:
    for runtime in list(_runtimes):
        guarded("exit", runtime.shutdown)


def _after_fork() -> None:
    for runtime in list(_runtimes):
        guarded("fork", runtime.disown)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
