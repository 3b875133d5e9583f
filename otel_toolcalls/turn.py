"""One response of a model, and the verdict on each call it announced.

A wire tells the turn what its events say: :meth:`Turn.announce`, :meth:`Turn.append`, :meth:`Turn.close`,
:meth:`Turn.finish`. The hook tells it how the stream ended: :meth:`Turn.end`. The turn decides the outcome of each call
and tells its observers, each fact once. However the stream ends, announced = completed + failed.

A stop event is no proof that a call is complete: a reply that is cut off for a limit closes its last call too. So a
closed call whose arguments do not parse, or are empty, waits for the next announcement or for the finish; its end time
stays that of the stop event.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from time import monotonic_ns, time_ns
from typing import Any, Protocol

from otel_toolcalls.accumulator import Accumulator, Arguments, Assemble, CallBuffer, ProtocolError, json_text
from otel_toolcalls.conventions import (
    FINISH_LIMITS,
    FINISH_PROMISES_CALL,
    Anomaly,
    ErrorType,
    Kind,
    Outcome,
    ToolType,
    Violation,
)
from otel_toolcalls.guard import guarded, mishap

__all__ = ["Call", "Clock", "Observer", "Replays", "Request", "Result", "Turn", "qualified_name"]


class Clock:
    """One wall-clock reading and monotonic deltas, so that no span ends before it starts when the wall clock is set."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = time_ns() - monotonic_ns()

    def wall(self, monotonic_ns: int) -> int:
        """Nanoseconds since the epoch at a ``time.monotonic_ns()`` reading."""
        return monotonic_ns + self._offset


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call, found in a request body."""

    call_id: str | None
    name: str | None = None
    is_error: bool = False
    earlier: bool = False
    """A call follows it in the history: a request before this one may have carried it already."""


@dataclass(slots=True)
class Request:
    """What is known of the request that a turn answers."""

    provider: str
    model: str | None = None
    tools: frozenset[str] | None = None
    """Names in the request's own tool list; None where the request was not seen."""
    results: Sequence[Result] = ()
    """Results of tool calls that it carries, after the last reply in its history."""
    carried: Sequence[str] = ()
    """Ids of the calls in the last reply in its history."""
    continues: str | None = None
    """The provider's id of the response that it goes on from, where the provider keeps the history."""
    resumes: str | None = None
    """The provider's id of a response that exists already: its stream may replay what was announced before."""
    streaming: bool = True
    operation: str = "chat"
    sent_ns: int = field(default_factory=monotonic_ns)
    asked_in: Sequence[Any] = ()
    """The contexts in which the app asked for it, nearest to the sending first, where they are known; opaque here."""
    trace_id: int = 0
    """The trace that it belongs to; 0 where there is none."""
    telemetry: Any = None
    """What the telemetry keeps for this request; opaque here."""


class Call:
    """One announced call: what its announcement said, and how it ended."""

    __slots__ = (
        "announced_ns",
        "anomalies",
        "arguments",
        "call_id",
        "choice",
        "error_type",
        "finished_ns",
        "fragments",
        "index",
        "key",
        "kind",
        "ledger",
        "name",
        "ordinal",
        "outcome",
        "position",
        "size",
        "span",
        "text",
        "tool_type",
        "turn",
        "unnamed",
        "values",
    )

    def __init__(
        self,
        turn: Turn,
        position: Hashable,
        call_id: str | None,
        name: str | None,
        *,
        index: object = None,
        choice: int = 0,
        kind: Kind = Kind.CLIENT,
        tool_type: ToolType = ToolType.FUNCTION,
    ) -> None:
        self.turn = turn
        self.position = position
        self.ordinal = turn.announced
        self.key = f"{turn.key}-{self.ordinal}"
        """Ours, unique per announced call."""
        self.call_id = call_id
        """The provider's, or None; never made up."""
        self.name = name
        self.index = index
        """The position on the wire exactly as it came, None where the wire has none."""
        self.choice = choice
        self.kind = kind
        self.tool_type = tool_type
        self.unnamed = name is None
        """It was announced before its name was known."""
        self.announced_ns = turn.seen_ns
        self.finished_ns = 0
        self.outcome: Outcome | None = None
        self.error_type: str | None = None
        self.anomalies: list[str] = []
        self.arguments: Arguments | None = None
        """Held from the close to the verdict only."""
        self.size = 0
        self.fragments = 0
        self.values = 0
        self.text: str | None = None
        """The arguments' text, while ``finished`` is being told and not after."""
        self.span: Any = None
        """The telemetry's; opaque here."""
        self.ledger: Any = None
        """The ledger's; opaque here."""

    def note(self, anomaly: str) -> None:
        """A quirk was met on this call and resolved by a stated rule."""
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)


class Observer(Protocol):
    """Who is told the facts of a turn. Its exceptions are noted and go no further."""

    def announced(self, call: Call) -> None:
        """A call was announced; its name may still be missing."""

    def renamed(self, call: Call) -> None:
        """The name or the id of an announced call became known."""

    def finished(self, call: Call) -> None:
        """A call has its outcome. Told once for each announced call."""

    def violated(self, turn: Turn, error: ProtocolError, shown: bool) -> None:
        """An event contradicted the protocol; told once per kind and position. ``shown``: a call's own span says so."""

    def ended(self, turn: Turn) -> None:
        """The response is over and each of its calls has finished. Told once."""


class Replays:
    """The calls of recent responses that were announced whole, so that a resumed stream does not announce them again.

    Bounded: the oldest are forgotten first.
    """

    __slots__ = ("_limit", "_seen")

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._seen: dict[tuple[str, str], None] = {}

    def completed(self, response_id: str, call_id: str) -> None:
        while len(self._seen) >= self._limit:
            self._seen.pop(next(iter(self._seen)), None)
        self._seen[response_id, call_id] = None

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._seen


class Turn:
    """The account of one response."""

    __slots__ = (
        "_closed",
        "_last",
        "_observers",
        "_open_end",
        "_poisoned",
        "_raises",
        "_replays",
        "_violations",
        "accumulator",
        "announced",
        "anomalies",
        "calls",
        "clock",
        "completed",
        "ended_ns",
        "error_type",
        "failed",
        "finish_reasons",
        "first_ns",
        "key",
        "request",
        "response_id",
        "response_model",
        "resumable",
        "seen_ns",
        "span",
    )

    def __init__(
        self,
        request: Request,
        observers: Sequence[Observer] = (),
        *,
        replays: Replays | None = None,
        raise_violations: bool = False,
    ) -> None:
        self.request = request
        self.key = os.urandom(8).hex()
        self.clock = Clock()
        self.accumulator = Accumulator()
        self.calls: dict[Hashable, Call] = {}
        """Calls without an outcome, by position, in order of announcement."""
        self.announced = self.completed = self.failed = 0
        self.anomalies: list[str] = []
        self.response_id: str | None = request.resumes
        self.response_model: str | None = None
        self.resumable = False
        """The provider can send this response's events again, on another stream."""
        self.finish_reasons: list[str] = []
        self.error_type: str | None = None
        self.first_ns = self.seen_ns = monotonic_ns()
        """When the first and the last event came. The hook sets ``seen_ns`` before it hands an event to the wire."""
        self.ended_ns = 0
        self.span: Any = None
        """The telemetry's; opaque here."""
        self._closed: dict[Hashable, Call] = {}
        self._last: dict[int, Hashable] = {}
        self._poisoned: set[Hashable] = set()
        self._violations: set[tuple[Violation, Hashable]] = set()
        self._observers = tuple(observers)
        self._replays = replays
        self._raises = raise_violations
        self._open_end = [True]  # popping it is atomic: of two threads that end a turn, one does

    # ---- what a wire says -------------------------------------------------------------------------------------------

    def announce(
        self,
        position: Hashable,
        call_id: str | None = None,
        name: str | None = None,
        *,
        index: object = None,
        choice: int = 0,
        kind: Kind = Kind.CLIENT,
        tool_type: ToolType = ToolType.FUNCTION,
        assemble: Assemble = json_text,
        anomalies: Sequence[str] = (),
    ) -> Call | None:
        """A call is announced at ``position``.

        Returns its account, or None where there is nothing to follow: the turn is over, the call is a replay of one
        that is known whole already, or another call is live at ``position`` (which fails both).
        """
        if self.over:
            return None
        if self._is_replay(call_id):
            self._poisoned.add(position)
            return None
        self._confirm_closed(choice)
        call = Call(self, position, call_id, name, index=index, choice=choice, kind=kind, tool_type=tool_type)
        call.anomalies.extend(anomalies)
        self.announced += 1
        try:
            self.accumulator.announce(position, call_id, name, assemble)
        except ProtocolError as error:
            self._tell("announced", call)
            self._conclude(call, Outcome.INVALID, ErrorType.PROTOCOL_VIOLATION)
            self._abandon(self.accumulator.give_up(position), Outcome.INVALID, ErrorType.PROTOCOL_VIOLATION)
            self._poisoned.add(position)
            self.violated(error, shown=True)
            return None
        self._poisoned.discard(position)
        self.calls[position] = call
        self._last[choice] = position
        self._tell("announced", call)
        return call

    def append(self, position: Hashable, fragment: object) -> None:
        """The next fragment of the call at ``position``."""
        try:
            self.accumulator.append(position, fragment)
        except ProtocolError as error:
            self.contradicted(error)

    def contradicted(self, error: ProtocolError) -> None:
        """The accumulator refused an event. For wires that append to it without the detour."""
        if error.position in self._poisoned:
            return
        waiting = self._closed.get(error.position)
        if waiting is not None:
            self._conclude(waiting, Outcome.INVALID, ErrorType.PROTOCOL_VIOLATION)
        self.violated(error, shown=waiting is not None)

    def close(self, position: Hashable, arguments: str | None = None) -> None:
        """The call at ``position`` has come to its end marker.

        ``arguments`` are those that the end marker repeats: they stand where no fragment came.
        """
        call = self.calls.get(position)
        buffer = self.accumulator.open.get(position)
        if call is None or buffer is None:
            self.contradicted(ProtocolError(Violation.CLOSE_UNANNOUNCED, position, self.accumulator.state(position)))
            return
        call.fragments = len(buffer.fragments)
        if arguments and not buffer.fragments:
            buffer.fragments.append(arguments)
        call.finished_ns = self.seen_ns
        try:
            call.arguments = self.accumulator.close(position)
        except Exception as error:
            self._conclude(call, Outcome.ABANDONED, qualified_name(error))
            raise
        self._closed[position] = call
        if call.arguments.whole:
            self._judge(call)

    def give_up(self, position: Hashable, error_type: str) -> None:
        """The provider says that the call at ``position``, where one is open, will not be completed."""
        if position in self.accumulator.open:
            self._abandon(self.accumulator.give_up(position), Outcome.ABANDONED, error_type)

    def rename(self, call: Call, *, name: str | None = None, call_id: str | None = None) -> None:
        """The name or the id of an announced call became known after its announcement."""
        call.name = name if name is not None else call.name
        call.call_id = call_id if call_id is not None else call.call_id
        self._tell("renamed", call)

    def response(self, response_id: object, model: object = None) -> None:
        """The provider's own names of this response and of the model that wrote it."""
        if isinstance(response_id, str) and response_id:
            self.response_id = _encodable(response_id)
        if isinstance(model, str) and model:
            self.response_model = _encodable(model)

    def finish(self, reason: str, choice: int = 0) -> None:
        """The provider states that a choice is over, and why.

        Of the calls that are still open, one that a limit cut off is given up here; the others stay open.
        """
        if reason not in self.finish_reasons:
            self.finish_reasons.append(reason)
        limit = FINISH_LIMITS.get(reason)
        if limit is not None:
            self.cut(limit, choice)
        self._confirm_closed(choice)
        if reason in FINISH_PROMISES_CALL and not self.announced:
            self.anomalies = [Anomaly.FINISH_WITHOUT_CALL]

    def cut(self, limit: str, choice: int = 0) -> None:
        """The reply was cut off by ``limit``, and so was its last call where that is open, empty or no document."""
        call = self.calls.get(self._last.get(choice))
        if call is None:
            return
        if call.position in self.accumulator.open:
            self.close(call.position)
        if call.outcome is None and call.arguments is not None and not call.arguments.whole:
            self._conclude(call, Outcome.TRUNCATED, limit)

    def fail(self, error_type: str) -> None:
        """The provider states that the response failed: what is open will not be completed."""
        self.error_type = error_type
        for position in list(self.accumulator.open):
            self.give_up(position, error_type)

    # ---- what a hook says -------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """The turn has ended."""
        return not self._open_end

    @property
    def choices(self) -> list[int]:
        """Those that announced a call."""
        return list(self._last)

    @property
    def finished(self) -> bool:
        """The provider has stated the end of the reply."""
        return bool(self.finish_reasons)

    def end(self, error_type: str, *, late: bool = False) -> None:
        """The stream is over; what is still open is abandoned, for ``error_type``. Only the first end counts.

        ``late``: the end is noticed long after it happened, so the time is that of the last event.
        """
        try:
            self._open_end.pop()
        except IndexError:
            return
        if not late:
            self.seen_ns = monotonic_ns()
        self.ended_ns = self.seen_ns
        given_up_for = self.error_type or error_type
        guarded("turn.confirm", self._confirm_closed, None)
        for buffer in guarded("turn.finish", self.accumulator.finish) or ():
            guarded("turn.abandon", self._abandon, buffer, Outcome.ABANDONED, given_up_for)
        for call in list(self.calls.values()):  # a mishap of ours left it without a verdict
            guarded("turn.conclude", self._conclude, call, Outcome.ABANDONED, given_up_for)
        if self.error_type is None and not self.finished and (self.failed or error_type != ErrorType.CLOSED_EARLY):
            self.error_type = error_type
        if self.announced != self.completed + self.failed:
            mishap("turn.conservation", AssertionError(f"{self.announced} != {self.completed} + {self.failed}"))
        self._tell("ended", self)

    def disown(self) -> None:
        """This process is a copy that does not own the stream: nothing more is told of it."""
        self._open_end.clear()
        self._observers = ()

    def violated(self, error: ProtocolError, *, shown: bool) -> None:
        """An event contradicted the protocol. Raises ``error`` where the settings ask for it.

        ``shown``: the span of a call concerned says so. Once the turn is over, its calls are unknown and prove nothing.
        """
        if self.over:
            return
        if (error.kind, error.position) not in self._violations:
            self._violations.add((error.kind, error.position))
            for observer in self._observers:
                guarded("violated", observer.violated, self, error, shown)
        if self._raises:
            raise error

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _is_replay(self, call_id: str | None) -> bool:
        if self._replays is None or self.request.resumes is None or self.response_id is None or call_id is None:
            return False
        return (self.response_id, call_id) in self._replays

    def _confirm_closed(self, choice: int | None) -> None:
        """Judge the closed calls of a choice (None: of all): nothing that comes can still show them to be cut off."""
        for call in list(self._closed.values()):
            if choice is None or call.choice == choice:
                self._judge(call)

    def _judge(self, call: Call) -> None:
        if call.arguments is not None and not call.arguments.valid:
            self._conclude(call, Outcome.INVALID, ErrorType.INVALID_ARGUMENTS)
        else:
            self._conclude(call, Outcome.COMPLETED, None)

    def _abandon(self, buffer: CallBuffer, outcome: Outcome, error_type: str) -> None:
        call = self.calls.get(buffer.position)
        if call is not None:
            call.fragments = len(buffer.fragments)
            call.arguments = guarded("turn.assemble", buffer.assemble, buffer.fragments)
            self._conclude(call, outcome, error_type)

    def _conclude(self, call: Call, outcome: Outcome, error_type: str | None) -> None:
        call.outcome = outcome
        call.error_type = error_type
        call.finished_ns = max(call.finished_ns or self.seen_ns, call.announced_ns)
        self._closed.pop(call.position, None)
        if self.calls.get(call.position) is call:
            del self.calls[call.position]
        if outcome is Outcome.COMPLETED:
            self.completed += 1
            if self.resumable and self._replays is not None and self.response_id and call.call_id:
                guarded("turn.replays", self._replays.completed, self.response_id, call.call_id)
        else:
            self.failed += 1
        arguments, call.arguments = call.arguments, None
        try:
            if arguments is not None:
                call.size, call.values, call.text = arguments.size, arguments.values, arguments.text
                if arguments.values > 1:
                    call.note(Anomaly.ARGUMENTS_MERGED)
        finally:
            self._tell("finished", call)
            call.text = None

    def _tell(self, fact: str, subject: Call | Turn) -> None:
        for observer in self._observers:
            guarded(fact, getattr(observer, fact), subject)


def _encodable(text: str) -> str:
    """The text without half a surrogate pair, which no exporter can encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def qualified_name(error: BaseException) -> str:
    """The name of an exception's class as ``error.type`` wants it: with its module, but for builtins."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
