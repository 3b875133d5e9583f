"""One stream under observation: hands each event to the wire, decides how the stream ended, and tells it once.

:func:`drive` and :func:`adrive` forward the SDK's own iterator untouched. A stream that several iterators read, or
a connection with several lanes, uses an :class:`Observation` directly.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from time import monotonic_ns
from typing import Any

from otel_toolcalls.accumulator import ProtocolError
from otel_toolcalls.conventions import Anomaly, ErrorType
from otel_toolcalls.guard import guarded, mishap
from otel_toolcalls.runtime import Runtime
from otel_toolcalls.turn import Request, Turn, qualified_name
from otel_toolcalls.wire import WireType

__all__ = ["Myself", "Observation", "Source", "adrive", "collector", "drive", "observe_failure", "observe_reply"]


class Observation:
    """The account of one stream, from its first event on."""

    __slots__ = ("_at_end", "_runtime", "_task", "feed", "turn")

    def __init__(self, runtime: Runtime, request: Request, wire: WireType) -> None:
        self._runtime = runtime
        self.turn: Turn = runtime.begin(request)
        self.feed: Callable[[Any], None] = wire(self.turn).feed
        self._task = _current_task()
        self._at_end: Callable[[], None] | None = None

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when the stream has ended, whichever way."""
        self._at_end = callback

    def mishap(self, error: Exception) -> None:
        """Reading an event failed. Raises ``error`` only where the settings ask for protocol errors."""
        if isinstance(error, ProtocolError) and self._runtime.settings.on_violation == "raise":
            raise error
        mishap("feed", error)
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
        cancelled = _is_cancellation(sys.exc_info()[1]) or _was_cancelled(self._task)
        self._end(ErrorType.CANCELLED if cancelled else ErrorType.CLOSED_EARLY)

    def dropped(self) -> None:
        """The last reference to the stream is gone."""
        if _was_cancelled(self._task):
            self._end(ErrorType.CANCELLED, late=True, finalising=True)
        elif collector.running():
            self.lost()
        else:
            self._end(ErrorType.CLOSED_EARLY, finalising=True)

    def lost(self) -> None:
        """The stream was found dead, some time after the app forgot it."""
        self._end(ErrorType.GARBAGE_COLLECTED, late=True, finalising=True)

    def _end(self, error_type: str, *, late: bool = False, finalising: bool = False) -> None:
        if not self.turn.over:
            self._runtime.end(self.turn, error_type, late=late, finalising=finalising)
        callback, self._at_end = self._at_end, None
        if callback is not None:
            guarded("at_end", callback)


class _Lease:
    """Lives in the frame of an async generator, which can be destroyed without being closed: its loop may be gone."""

    __slots__ = ("_observation",)

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    def __del__(self) -> None:
        try:
            self._observation.lost()
        except Exception as error:
            mishap("lease", error)


Source = Callable[[], "tuple[Any, Observation | None]"]
"""Called at the first ``next``: the SDK's own iterator, and the observation of it, None where there is none."""
Myself = Callable[[], Any]
"""The generator that reads the stream, while anybody holds it; None when it is being destroyed."""


def drive(source: Source, myself: Myself) -> Generator[Any, None, None]:
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
        observation.exhausted()
    except GeneratorExit:
        if observation is not None:
            observation.dropped() if myself() is None else observation.closed()
        raise
    except BaseException as error:
        if observation is not None:
            observation.failed(error)
        raise
    finally:
        close = getattr(inner, "close", None)
        if close is not None:
            close()


async def adrive(source: Source, myself: Myself) -> AsyncGenerator[Any, None]:
    """The same for an async iterator. What we note of its end, we note before anything is awaited."""
    inner, observation = source()
    del source
    lease = None if observation is None else _Lease(observation)
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
        observation.exhausted()
    except GeneratorExit:
        if observation is not None:
            observation.dropped() if myself() is None else observation.closed()
        raise
    except BaseException as error:
        if observation is not None:
            observation.failed(error)
        raise
    finally:
        del lease
        close = getattr(inner, "aclose", None)
        if close is not None:
            await close()


def observe_reply(runtime: Runtime, request: Request, wire: WireType, reply: Any) -> None:
    """A reply that was not streamed: its calls are announced and closed at once."""
    turn = runtime.begin(request)
    try:
        wire(turn).reply(reply)
    except ProtocolError:
        if runtime.settings.on_violation == "raise":
            raise
    except Exception as error:
        mishap("reply", error)
    finally:
        runtime.end(turn, ErrorType.STREAM_ENDED)


def observe_failure(runtime: Runtime, request: Request, error: BaseException) -> None:
    """A request that got no response."""
    runtime.end(runtime.begin(request), ErrorType.CANCELLED if _is_cancellation(error) else qualified_name(error))


def _is_cancellation(error: BaseException | None) -> bool:
    """Also of the event loops that have a cancellation of their own, by name: none of them is imported for this."""
    return any(kind.__name__ in ("CancelledError", "Cancelled") for kind in type(error).__mro__)


def _current_task() -> Callable[[], Any] | None:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else weakref.ref(task)


def _was_cancelled(reference: Callable[[], Any] | None) -> bool:
    """The task that began to read the stream was cancelled."""
    task = reference() if reference is not None else None
    if task is None:
        return False
    cancelling = getattr(task, "cancelling", None)
    return bool(task.cancelled() or (cancelling is not None and cancelling()))


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
