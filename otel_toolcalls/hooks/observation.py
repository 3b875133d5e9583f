"""One stream under observation: hands each event to the wire, decides how the stream ended, and tells it once.

:func:`drive` and :func:`adrive` forward the SDK's own iterator untouched. A stream that several iterators read, or
a connection with several lanes, uses an :class:`Observation` directly.
"""

from __future__ import annotations

import contextvars
import gc
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from time import monotonic_ns
from typing import Any, ClassVar

from otel_toolcalls.accumulator import ProtocolError
from otel_toolcalls.conventions import Anomaly, ErrorType
from otel_toolcalls.guard import guarded, mishap
from otel_toolcalls.runtime import Runtime, inside_telemetry
from otel_toolcalls.turn import Request, Turn, qualified_name
from otel_toolcalls.wire import WireType

__all__ = ["Observation", "Source", "adrive", "collector", "drive", "observe_failure", "observe_reply"]


class Observation:
    """The account of one stream, from its first event on."""

    __slots__ = ("_at_end", "_over", "_reader", "_runtime", "_task", "collected", "feed", "turn")

    def __init__(self, runtime: Runtime, request: Request, wire: WireType) -> None:
        self._runtime = runtime
        self.turn: Turn = runtime.begin(request)
        self.feed: Callable[[Any], None] = wire(self.turn).feed
        self.collected = False
        """The garbage collector destroys the stream, and all that it is made of."""
        self._reader: Callable[[], Any] = _nobody
        self._task = _Task()
        self._over = False
        self._at_end: Callable[[], None] | None = None

    def read_by(self, reader: Any) -> None:
        """Tie the stream to the one generator that reads it: when that is destroyed, the stream is over.

        Known in the very moment, while it is still known who did it: a generator learns of its own end later, an async
        one on another task, or never where its loop is gone.
        """
        self._reader = weakref.ref(reader, self._destroyed)
        self._runtime.keep(self.turn, self._reader)

    @property
    def reading(self) -> bool:
        """The SDK is at work for the reader, or nobody reads any more."""
        reader = self._reader()
        return reader is None or getattr(reader, "gi_running", False) or getattr(reader, "ag_running", False)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when the stream has ended, whichever way."""
        self._at_end = callback

    def mishap(self, error: Exception) -> None:
        """Reading an event failed. Raises ``error`` only where the settings ask for protocol errors."""
        if isinstance(error, ProtocolError) and self._runtime.settings.on_violation == "raise":
            raise error
        mishap("feed", error)
        guarded("feed", self._mark)

    def _mark(self) -> None:
        for call in list(self.turn.calls.values()):
            call.note(Anomaly.INTERNAL_ERROR)

    def exhausted(self) -> None:
        """The stream came to the end of its bytes."""
        self._end(ErrorType.STREAM_ENDED)

    def failed(self, error: BaseException) -> None:
        """Reading the stream raised."""
        self._end(ErrorType.CANCELLED if _is_cancellation(error) else qualified_name(error))

    def closed(self) -> None:
        """The app left the stream."""
        if collector.running():
            self.lost()
            return
        cancelled = _is_cancellation(sys.exc_info()[1]) or self._task.was_cancelled()
        self._end(ErrorType.CANCELLED if cancelled else ErrorType.CLOSED_EARLY)

    def dropped(self) -> None:
        """The last reference to the stream is gone."""
        if collector.running():
            self.lost()
        elif self._task.was_cancelled():
            self._end(ErrorType.CANCELLED, late=True, elsewhere=inside_telemetry())
        else:
            self._end(ErrorType.CLOSED_EARLY, elsewhere=inside_telemetry())

    def lost(self) -> None:
        """The collector found the stream dead, some time after the app forgot it, and in the middle of anything."""
        reason = ErrorType.CANCELLED if self._task.was_cancelled() else ErrorType.GARBAGE_COLLECTED
        self._end(reason, late=True, elsewhere=True)

    def _destroyed(self, _reference: object) -> None:
        try:
            self.collected = collector.running()
            self.dropped()
        except Exception as error:
            mishap("destroyed", error)

    def _end(self, error_type: str, *, late: bool = False, elsewhere: bool = False) -> None:
        if self._over:
            return
        end = self._runtime.end_elsewhere if elsewhere else self._runtime.end
        end(self.turn, error_type, late=late)
        self._over = True
        at_end, self._at_end = self._at_end, None  # it holds the response, which would wait for the collector
        if at_end is not None:
            guarded("at_end", at_end)


def _nobody() -> None:
    return None


Source = Callable[[], "tuple[Any, Observation | None]"]
"""Called at the first ``next``: the SDK's own iterator, and the observation of it, None where there is none."""


def drive(source: Source) -> Generator[Any, None, None]:
    """The events of the SDK's iterator, untouched; each is observed on its way.

    Guarded is exactly our own code between receiving an event and handing it over.
    """
    inner, observation = source()
    del source  # it holds the stream, which holds this generator
    try:
        if observation is None:
            yield from inner
            return
        feed, turn = observation.feed, observation.turn
        for event in inner:
            turn.seen_ns = monotonic_ns()
            try:
                feed(event)
            except Exception as error:
                observation.mishap(error)
            yield event
            event = None  # keep nothing alive while the SDK reads on
        guarded("end", observation.exhausted)
    except GeneratorExit:
        if observation is not None:
            guarded("end", observation.closed)
        raise
    except BaseException as error:
        if observation is not None:
            guarded("end", observation.failed, error)
        raise
    finally:
        close = getattr(inner, "close", None)
        if close is not None:
            close()


async def adrive(source: Source) -> AsyncGenerator[Any, None]:
    """The same for an async iterator. What we note of its end, we note before anything is awaited."""
    inner, observation = source()
    del source
    try:
        if observation is None:
            async for event in inner:
                yield event
            return
        feed, turn = observation.feed, observation.turn
        async for event in inner:
            turn.seen_ns = monotonic_ns()
            try:
                feed(event)
            except Exception as error:
                observation.mishap(error)
            yield event
            event = None
        guarded("end", observation.exhausted)
    except GeneratorExit:
        if observation is not None:
            guarded("end", observation.closed)
        raise
    except BaseException as error:
        if observation is not None:
            guarded("end", observation.failed, error)
        raise
    finally:
        close = getattr(inner, "aclose", None)
        # What the collector destroys, the event loop closes piece by piece: closing it here too would be once too often.
        if close is not None and not (observation is not None and observation.collected):
            await close()


def observe_reply(runtime: Runtime, request: Request, wire: WireType, reply: Any) -> None:
    """A reply that was not streamed: its calls are announced and closed at once."""
    turn = guarded("begin", runtime.begin, request)
    if turn is None:
        return
    try:
        wire(turn).reply(reply)
    except ProtocolError:
        if runtime.settings.on_violation == "raise":
            raise
    except Exception as error:
        mishap("reply", error)
    finally:
        # It came whole: an end that it does not state is nothing that it lacks.
        guarded("end", runtime.end, turn, ErrorType.CLOSED_EARLY)


def observe_failure(runtime: Runtime, request: Request, error: BaseException) -> None:
    """A request that got no response."""
    runtime.end(runtime.begin(request), ErrorType.CANCELLED if _is_cancellation(error) else qualified_name(error))


def _is_cancellation(error: BaseException | None) -> bool:
    """Also of the event loops that have a cancellation of their own, by name: none of them is imported for this."""
    return any(kind.__name__ in ("CancelledError", "Cancelled") for kind in type(error).__mro__)


class _Task:
    """The task that began to read a stream, and whether it was cancelled.

    An async stream that is dropped is closed by its loop, some turns later: the task that left it may be gone by then,
    so it tells its fate when it is done. Nothing here keeps it alive.
    """

    __slots__ = ("_before", "_fate", "_reference")

    def __init__(self) -> None:
        self._before = 0
        self._fate: _Fate | None = None
        self._reference: Callable[[], Any] = _nobody
        asyncio = sys.modules.get("asyncio")
        try:
            task = asyncio.current_task() if asyncio is not None else None
        except RuntimeError:  # no loop runs here
            return
        if task is not None:
            self._reference = weakref.ref(task)
            self._before = _cancellations(task)
            self._fate = _Fate.of(task)

    def was_cancelled(self) -> bool:
        if self._fate is not None and self._fate.cancelled:
            return True
        task = self._reference()
        return task is not None and _cancellations(task) > self._before


class _Fate:
    """How one task ended, for all streams that it read.

    One per task, however many streams it reads: no stream need take anything off its task, which would be safe only
    in the flow of that task.
    """

    __slots__ = ("cancelled",)

    _by_task: ClassVar[weakref.WeakKeyDictionary[Any, _Fate]] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self.cancelled = False

    @classmethod
    def of(cls, task: Any) -> _Fate:
        """That of the task that runs here."""
        fate = cls._by_task.get(task)
        if fate is None:
            fate = cls._by_task[task] = cls()
            task.add_done_callback(fate._done, context=contextvars.Context())  # and keep nothing of this one's alive
        return fate

    def _done(self, task: Any) -> None:
        self.cancelled = task.cancelled()


def _cancellations(task: Any) -> int:
    """How often it was asked to stop; Python 3.10 does not know."""
    cancelling = getattr(task, "cancelling", None)
    return cancelling() if cancelling is not None else 0


class _Collector:
    """Knows whether the cyclic garbage collector is at work, to tell a stream that was left from one that was lost."""

    def __init__(self) -> None:
        self._thread = 0

    def running(self) -> bool:
        """On this thread, below this call."""
        return self._thread == threading.get_ident()

    def watch(self) -> None:
        """Begin to know."""
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def unwatch(self) -> None:
        """Leave no trace in the collector."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, _info: object) -> None:
        self._thread = threading.get_ident() if phase == "start" else 0


collector = _Collector()
