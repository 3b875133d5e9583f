"""A ledger that processes share: what this process says is queued here, and written to the store by the worker.

Nothing here waits for the store. A mirror in memory holds what this process announced, for what must be known at once:
the hint of a dispatch, and the account of an announcement that the store did not take. The store's word is the one that
counts, and it comes later, on the worker.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.guard import guarded, mishap
from otel_toolcalls.ledger import Claim, Entry, Judged, Settlement, Store
from otel_toolcalls.ledger.account import Then
from otel_toolcalls.ledger.memory import LOOK_BACK, MemoryStore

__all__ = [
    "HISTORY",
    "JUDGED_AT_ONCE",
    "LOOK_BACK",
    "RECOVERY",
    "REMEMBERED",
    "Add",
    "Contact",
    "Drop",
    "Hasten",
    "Operation",
    "Result",
    "Settle",
    "SharedAccount",
    "SharedStore",
    "StoreError",
    "TransactionalStore",
]

LOOK_EVERY = 10.0
"""Seconds between two looks at a shared store for what other processes left there."""
RECOVERY = 15.0
"""Seconds after a store was out of reach in which nothing is judged: others still write what they had to hold back."""
REMEMBERED = 60.0
"""Seconds that a shared store remembers a claim which came before the announcement that it means."""
HISTORY = 3600.0
"""Seconds that a shared store remembers a call that waits no more, for late and repeated claims."""

JUDGED_AT_ONCE = 256
"""Calls that one look takes from a shared store at once."""

_BATCH = 64
_ASK_AGAIN_AFTER = 1.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_LONGEST_ANSWER = 10.0


class StoreError(Exception):
    """The store is out of reach, or takes nothing at present. The message is one line and holds no credentials."""


class LedgerFullError(Exception):
    """More was to be written to the store than may be held back."""


@dataclass(frozen=True, slots=True)
class Add:
    """See :meth:`Store.add`. Results in who settled the call already: a claim that was here before it."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Settle:
    """See :meth:`Store.settle`. Results in the settlement, None where no announcement fits.

    A claim that finds none is remembered for a while. ``again``: this one was, so look only what has come of it.
    """

    claim: Claim
    again: bool = False


@dataclass(frozen=True, slots=True)
class Hasten:
    """See :meth:`Store.hasten`; where ``turn`` is None, that of the newest waiting call of the id is meant."""

    turn: str | None
    reason: LostReason
    due_at: float
    call_id: str = ""
    trace_id: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """See :meth:`Store.drop`. Results in the entries."""

    turn: str


Operation: TypeAlias = Add | Settle | Hasten | Drop
Result: TypeAlias = "Settlement | SettledBy | Sequence[Entry] | None"


class SharedStore(Store, Protocol):
    """A store outside of the process. What it raises when it is out of reach is :class:`StoreError`."""

    def apply(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all of these in order, or none of them; once, also when this is called again after an error."""

    def reported(self, keys: Sequence[str]) -> None:
        """These judgements have been made seen. Until then ``judge`` hands them out again to the same process, and
        to another one when that has died."""

    def patience(self) -> float:
        """Seconds until it is fair to judge, after the store was out of reach. Until then ``judge`` takes nothing."""

    def hurry(self, until: float) -> None:
        """The end is near: no call waits beyond ``until`` (``time.monotonic()``), nor is one made after it."""

    def abandon(self) -> None:
        """Let go of what is held here, in place of ``close`` and without a word to the store: it is out of reach."""

    def forked(self) -> None:
        """This process is a copy: it shares nothing with its parent."""


class TransactionalStore(ABC):
    """The single operations of a store, by way of ``apply``."""

    @abstractmethod
    def apply(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all of them, or none."""

    def add(self, entry: Entry) -> Sequence[Judged]:
        self.apply([Add(entry)])
        return ()

    def settle(self, claim: Claim) -> Settlement | None:
        settlement = self.apply([Settle(claim)])[0]
        return settlement if isinstance(settlement, Settlement) else None

    def hasten(self, turn: str, reason: LostReason, due_at: float) -> None:
        self.apply([Hasten(turn, reason, due_at)])

    def drop(self, turn: str) -> Sequence[Entry]:
        entries = self.apply([Drop(turn)])[0]
        return entries if isinstance(entries, list) else ()


@dataclass(slots=True)
class _Queued:
    operation: Operation
    then: Callable[[Result], None]
    since: float


class SharedAccount:
    """Asks a store that may be slow or out of reach, by way of a bounded queue."""

    def __init__(
        self,
        store: SharedStore,
        capacity: int,
        lost: Callable[[Judged], None],
        settled: Callable[[Entry, SettledBy], None],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._capacity = capacity
        self._lost = lost
        self._settled = settled
        self._wake = wake
        self._retired = False
        self._begin()

    def _begin(self) -> None:
        self._mirror = MemoryStore(self._capacity)
        self._alone: set[str] = set()
        """Announcements that the store did not take: they are followed in the mirror alone."""
        self._queue: deque[_Queued] = deque()
        self._ask_again: deque[_Queued] = deque()
        self._unacknowledged: set[str] = set()
        self._writing = threading.Lock()
        self._in_doubt: list[list[_Queued]] = []
        """The batch that is being written; where the store went out of reach meanwhile it may have been done, so it goes
        again as it was. Popping it is atomic: of the worker and the end of the process, one gets it."""
        self._prefix, self._numbers = os.urandom(8).hex(), itertools.count()
        self._look_at = 0.0
        self._try_at = 0.0
        self._pause = _SHORTEST_PAUSE

    def forked(self) -> None:
        self._store.forked()
        self._begin()

    # ---- where things come up: nothing here blocks -------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        for evicted in self._mirror.add(entry):
            self._lose_alone(evicted)
        if not self._put(Add(entry), lambda by: self._added(entry, by), self._capacity):
            self._alone.add(entry.key)

    def find(self, claim: Claim) -> tuple[Entry, bool] | None:
        return self._mirror.find(claim)

    def settle(self, claim: Claim, then: Then) -> None:
        local = self._mirror.settle(claim)
        if local is not None and local.entry.key in self._alone:
            then(local)
            return
        asked = replace(claim, key=claim.key or _meant(claim, local), token=f"{self._prefix}{next(self._numbers)}")

        def met(result: Result) -> None:
            then(result if isinstance(result, Settlement) else self._known(local))

        if not self._put(Settle(asked), met, 2 * self._capacity):
            met(None)

    def hasten(self, turn: str, reason: LostReason, due_at: float) -> None:
        self._mirror.hasten(turn, reason, due_at)
        self._put(Hasten(turn, reason, due_at), _ignore, 2 * self._capacity)

    def leave(self, call_id: str, trace_id: int, reason: LostReason, due_at: float) -> None:
        turn = self._mirror.turn_of(call_id, trace_id)
        if turn is not None:
            self._mirror.hasten(turn, reason, due_at)
        self._put(Hasten(turn, reason, due_at, call_id, trace_id), _ignore, 2 * self._capacity)

    def drop(self, turn: str, dropped: Callable[[Entry], None]) -> None:
        local = self._mirror.drop(turn)
        for entry in local:
            if entry.key in self._alone:
                dropped(entry)
        others = [entry for entry in local if entry.key not in self._alone]

        def done(result: Result) -> None:
            for entry in result if isinstance(result, list) else others:
                guarded("ledger.dropped", dropped, entry)

        if not self._put(Drop(turn), done, 2 * self._capacity):
            done(None)

    def _put(self, operation: Operation, then: Callable[[Result], None], limit: int) -> bool:
        room = len(self._queue) + sum(map(len, self._in_doubt)) < limit
        if room:
            self._queue.append(_Queued(operation, then, time.monotonic()))
        else:
            mishap(f"ledger.dropped.{_word(operation)}", LedgerFullError(f"{limit} operations wait for the store"))
        self._wake()
        return room

    def _known(self, local: Settlement | None) -> Settlement | None:
        """What is known here of a claim to which the store said nothing. A call that the store has is not settled by
        that: the store will say of it that it was lost."""
        alone = local is not None and local.entry.key in self._alone
        return local if local is None or alone else replace(local, first=False)

    def _added(self, entry: Entry, by: Result) -> None:
        if isinstance(by, SettledBy):
            self._settled(entry, by)

    # ---- on the worker -----------------------------------------------------------------------------------------------

    def tick(self) -> float | None:
        with self._writing:
            if time.monotonic() >= self._try_at:
                try:
                    self._repeat_questions()
                    if self._write():
                        self._look()
                    self._pause = _SHORTEST_PAUSE
                except StoreError as error:
                    self._hold_back(error)
                    self._answer_for_the_store()
                except Exception as error:
                    mishap("ledger.tick", error)
            self._judge_alone()
            return self._rest()

    def _write(self) -> bool:
        """Write what waits. False: the process ended meanwhile, and what was being written has been given up."""
        size = _BATCH
        while batch := self._next_batch(size):
            try:
                results = self._store.apply([queued.operation for queued in batch])
            except StoreError:
                raise
            except Exception as error:
                # One of them is such that no store can take it: find it, and leave it out.
                if not self._taken_back():
                    return False
                size = 1
                if len(batch) > 1:
                    self._queue.extendleft(reversed(batch))
                    continue
                mishap("ledger.write", error)
                self._refused(batch[0])
                continue
            if not self._taken_back():
                return False
            for queued, result in zip(batch, results, strict=True):
                self._tell(queued, result)
        return True

    def _next_batch(self, size: int) -> list[_Queued]:
        if not self._in_doubt and self._queue:
            self._in_doubt.append([self._queue.popleft() for _ in range(min(size, len(self._queue)))])
        return self._in_doubt[0] if self._in_doubt else []

    def _taken_back(self) -> list[_Queued]:
        """The batch that was being written, for this caller alone; none where another was faster."""
        try:
            return self._in_doubt.pop()
        except IndexError:
            return []

    def _refused(self, queued: _Queued) -> None:
        """It will not be written: what this process knows is all there is."""
        if isinstance(queued.operation, Add):
            self._alone.add(queued.operation.entry.key)
        guarded("ledger.met", queued.then, None)

    def _tell(self, queued: _Queued, result: Result) -> None:
        operation = queued.operation
        if isinstance(operation, Settle) and result is None and not operation.again:
            again = _Queued(replace(operation, again=True), queued.then, time.monotonic() + _ASK_AGAIN_AFTER)
            self._ask_again.append(again)
            return
        if isinstance(operation, Add):
            self._look_at = min(self._look_at, operation.entry.due_at)
        elif isinstance(operation, Hasten):
            self._look_at = min(self._look_at, operation.due_at)
        guarded("ledger.met", queued.then, result)

    def _repeat_questions(self) -> None:
        """Claims that found no announcement: it may have come a moment later."""
        while self._ask_again and self._ask_again[0].since <= time.monotonic():
            self._queue.append(self._ask_again.popleft())

    def _look(self) -> None:
        """Judge what is due, and see what other processes left."""
        now = time.time()
        if self._retired or now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        while True:
            judged = self._store.judge(now)
            for one in judged:
                if one.entry.key not in self._unacknowledged:
                    self._unacknowledged.add(one.entry.key)
                    guarded("ledger.lost", self._lost, one)
            if not judged:
                break
            keys = [one.entry.key for one in judged]
            self._store.reported(keys)
            self._unacknowledged.difference_update(keys)
        due = self._store.next_due()
        if due is not None:
            self._look_at = min(self._look_at, due)

    def _hold_back(self, error: StoreError) -> None:
        mishap("ledger.store", error)
        now = time.monotonic()
        self._try_at = now + self._pause * random.uniform(0.5, 1.0)  # noqa: S311  # spreads processes, guards nothing
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _answer_for_the_store(self) -> None:
        """The span of a run or a turn waits for what its claims met: not longer than is fair."""
        limit = time.monotonic() - _LONGEST_ANSWER
        waiting = [*itertools.chain.from_iterable(self._in_doubt), *self._queue]
        for queued in itertools.takewhile(lambda one: one.since < limit, waiting):
            if isinstance(queued.operation, Settle):
                then, queued.then = queued.then, functools.partial(self._settled_late, queued.operation.claim)
                guarded("ledger.met", then, None)

    def _settled_late(self, claim: Claim, result: Result) -> None:
        if isinstance(result, Settlement) and result.first:
            self._settled(result.entry, claim.by)

    def _judge_alone(self) -> None:
        for judged in self._mirror.judge(time.time()):
            self._lose_alone(judged)

    def _lose_alone(self, judged: Judged) -> None:
        """The mirror lets go of a call. The store follows it, where it took it."""
        if judged.entry.key in self._alone:
            self._alone.discard(judged.entry.key)
            guarded("ledger.lost", self._lost, judged)

    def _rest(self) -> float | None:
        now, clock = time.time(), time.monotonic()
        asked = [] if self._retired else [self._look_at - now]
        if self._queue or self._in_doubt:
            asked.append(0.0)
        if self._ask_again:
            asked.append(self._ask_again[0].since - clock)
        moments = [max(moment, self._try_at - clock) for moment in asked]
        due = self._mirror.next_due() if self._alone else None
        if due is not None:
            moments.append(due - now)
        return max(0.0, min(moments)) if moments else None

    # ---- what waits, and the end -------------------------------------------------------------------------------------

    def pending(self) -> Sequence[Entry]:
        try:
            with self._writing:
                self._write()
            return self._store.pending()
        except Exception as error:
            mishap("ledger.store", error)
            return self._mirror.pending()

    def close(self, until: float) -> None:
        """Another process may run or answer what waits: that stays in the store, and goes by its deadline."""
        flushed = self._flush(until)
        for judged in self._mirror.close(time.time()):
            self._lose_alone(judged)
        self._leave(flushed)

    def release(self, until: float) -> Sequence[Entry]:
        flushed = self._flush(until)
        self._retired = True
        self._leave(flushed)
        left = [judged.entry for judged in self._mirror.close(time.time()) if judged.entry.key in self._alone]
        self._alone.clear()
        return left

    def _leave(self, flushed: bool) -> None:
        """A store that did not take what was said would only be waited for once more."""
        if flushed:
            guarded("ledger.close", self._store.close, time.time())
        else:
            guarded("ledger.close", self._store.abandon)

    def _flush(self, until: float) -> bool:
        """Write what can be written by ``until``. The rest is settled by what is known here.

        The worker may be held up in the store then: what it is writing is taken from it.
        """
        held = self._writing.acquire(timeout=max(0.0, until - time.monotonic()))
        try:
            flushed = held and self._written(until)
            for queued in (*self._taken_back(), *_drained(self._queue), *_drained(self._ask_again)):
                self._give_up(queued)
            return flushed
        finally:
            if held:
                self._writing.release()

    def _written(self, until: float) -> bool:
        self._store.hurry(until)
        while self._queue or self._in_doubt:
            try:
                self._write()
            except StoreError as error:
                self._hold_back(error)
                if self._try_at > until or self._pause > 1.0:
                    return False
                time.sleep(max(0.0, self._try_at - time.monotonic()))
        return True

    def _give_up(self, queued: _Queued) -> None:
        operation = queued.operation
        if not (isinstance(operation, Settle) and operation.again):
            error = StoreError("the process ended before the store took it")
            mishap(f"ledger.dropped.{_word(operation)}", error)
        self._refused(queued)


def _meant(claim: Claim, local: Settlement | None) -> str | None:
    """Which of equals: that of this process, but for a match by name alone in another trace."""
    if local is None or not local.first:
        return None
    same_trace = claim.trace_id in (0, local.entry.trace.trace_id)
    return local.entry.key if same_trace or local.entry.call_id is not None else None


def _drained(queue: deque[_Queued]) -> list[_Queued]:
    return [queue.popleft() for _ in range(len(queue))]


def _ignore(result: Result) -> None:
    """Nobody waits for this one."""


def _word(operation: Operation) -> str:
    return type(operation).__name__.lower()


class Contact:
    """Since when a store has been in reach without a break.

    For a while after it was not, nothing is fair to judge: other processes still write what they had to hold back.
    """

    def __init__(self, recovery: float = RECOVERY) -> None:
        self.recovery = recovery
        self._since: float | None = None
        self._broken = False

    def lost(self) -> None:
        """It is out of reach."""
        self._since = None
        self._broken = True

    def made(self, age: float) -> None:
        """It answers; ``age``: seconds since it can do so for anybody."""
        if self._since is None:
            self._since = time.monotonic() - (0.0 if self._broken else age)

    @property
    def seconds(self) -> float:
        return 0.0 if self._since is None else time.monotonic() - self._since

    @property
    def patience(self) -> float:
        """Seconds until it is fair to judge."""
        return max(0.0, self.recovery - self.seconds)

    def fair(self, due: float) -> float:
        """When what is due at ``due`` is judged."""
        return max(due, time.time() + self.patience) if self.patience else due
