"""The ledger of one process: follows each completed client-run call through a store, and says what becomes of it.

It hears of calls and requests as an observer, and of dispatches and acknowledgements by :meth:`Ledger.claim`. What it
finds out goes to its reporter, each fact once.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from otel_toolcalls.accumulator import ProtocolError
from otel_toolcalls.config import Settings
from otel_toolcalls.conventions import ErrorType, Kind, LostReason, Outcome, SettledBy
from otel_toolcalls.guard import guarded
from otel_toolcalls.ledger import Claim, Entry, Reporter, Settlement, TraceRef
from otel_toolcalls.ledger.account import Account
from otel_toolcalls.turn import Call, Request, Turn

__all__ = ["Ledger"]

Then = Callable[["Settlement | None"], None]

_KEPT = 4096
"""How much is remembered of what is over, newest first."""
T = TypeVar("T")


class Ledger:
    """The account of the calls that this process announces, and of what it does with any."""

    def __init__(self, settings: Settings, account: Account, reporter: Reporter) -> None:
        self._settings = settings
        self._account = account
        self._reporter = reporter
        self._open: dict[tuple[str, str | None], Call] = {}
        """Calls announced and not yet complete, newest of an id (or name, without one): a dispatch may come early."""
        self._responses: dict[str, str] = {}
        """Recent responses → their turns, for requests that go on from one by its id."""
        self._told: dict[str, None] = {}
        """Calls of which a request has told the result: a later one may carry it in its history."""
        self._retired = False

    # ---- facts of turns ---------------------------------------------------------------------------------------------

    def announced(self, call: Call) -> None:
        if call.kind is Kind.CLIENT:
            call.ledger = _Early()
            self._open[_handle(call)] = call

    def renamed(self, call: Call) -> None:
        if call.kind is Kind.CLIENT:
            self._forget(call)
            self._open[_handle(call)] = call

    def finished(self, call: Call) -> None:
        if call.kind is not Kind.CLIENT:
            return
        try:
            if call.outcome is Outcome.COMPLETED:
                self._completed(call)
        finally:
            # Not before it waits: a dispatch on another thread must find it in the one place or in the other.
            self._forget(call)

    def _completed(self, call: Call) -> None:
        entry = self._entry(call)
        if self._settings.exempt(call.name):
            self._reporter.settled(entry, SettledBy.EXEMPT, waited=False)
            return
        if entry.response_id is not None:
            _remember(self._responses, entry.response_id, entry.turn)
        self._reporter.waits(entry)
        if self._retired:  # its stream was open then; what would settle it is not observed any more
            self._reporter.dropped(entry)
            return
        self._account.add(entry)
        early: _Early = call.ledger
        early.over = True
        early.settle()

    def violated(self, turn: Turn, error: ProtocolError, shown: bool) -> None:
        """The spans say so."""

    def ended(self, turn: Turn) -> None:
        if turn.finished or turn.error_type is None:
            return
        if turn.error_type != ErrorType.CLOSED_EARLY or turn.failed:
            for choice in turn.choices:
                self._account.drop(_turn_key(turn, choice), self._reporter.dropped)

    # ---- facts of requests ------------------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        """Results that it carries answer calls; a turn that it carries on without any leaves its calls behind, whatever
        it tells of those before."""
        trace_id = request.trace_id
        answered: set[str] = set()
        self._reporter.answers_expected(request, len(request.results))
        for result in request.results:
            claim = Claim(SettledBy.ANSWER, time.time(), result.call_id, result.name, trace_id)
            self.claim(claim, partial(self._answered, request, result.earlier, answered))
        if all(result.earlier for result in request.results):
            self._left_behind(request)

    def _answered(self, request: Request, earlier: bool, turns: set[str], settlement: Settlement | None) -> None:
        if settlement is not None and earlier and not settlement.first and settlement.entry.key in self._told:
            settlement = None  # an answer of a request before this one, in its history
        self._reporter.answered(request, settlement.entry if settlement is not None else None)
        if settlement is None:
            return
        _remember(self._told, settlement.entry.key, None)
        if settlement.entry.turn not in turns:
            turns.add(settlement.entry.turn)
            due_at = time.time() + self._settings.sibling_grace
            self._account.hasten(settlement.entry.turn, LostReason.SIBLINGS_ANSWERED, due_at)

    def _left_behind(self, request: Request) -> None:
        reason, due_at = LostReason.TURN_ANSWERED_WITHOUT, time.time() + self._settings.sibling_grace
        told = {result.call_id for result in request.results}
        for call_id in (one for one in request.carried if one not in told):
            self._account.leave(call_id, request.trace_id, reason, due_at)
        turn = self._responses.get(request.continues) if request.continues is not None else None
        if turn is not None:
            self._account.hasten(turn, reason, due_at)

    # ---- claims -----------------------------------------------------------------------------------------------------

    def hint(self, claim: Claim) -> Entry | None:
        """The call that a claim will most likely meet, where this process announced it."""
        early = self._early(claim)
        if early is not None:
            return self._entry(early)
        found = self._account.find(claim)
        return None if found is None else found[0]

    def claim(self, claim: Claim, then: Then) -> None:
        """Somebody ran, answered or acknowledged a call: settle it, and tell ``then`` what was met, now or later."""
        early = self._early(claim)
        if early is not None:
            self._claim_early(early, claim, then)
            return

        def settled(settlement: Settlement | None) -> None:
            if settlement is not None and settlement.first:
                guarded("ledger.settled", self._reporter.settled, settlement.entry, claim.by)
            then(settlement)

        self._account.settle(claim, settled)

    def _claim_early(self, call: Call, claim: Claim, then: Then) -> None:
        """The call runs before it is known to be complete: it is settled when that is known."""
        early: _Early = call.ledger

        def settled(settlement: Settlement | None) -> None:
            if settlement is not None and settlement.first:
                self._reporter.settled(settlement.entry, claim.by)

        early.waiting.append(lambda: self._account.settle(Claim(claim.by, claim.at, key=call.key), settled))
        if early.over:
            early.settle()
        number = next(early.numbers)
        then(Settlement(replace(self._entry(call), completed_at=claim.at), first=number == 1, dispatches=number))

    def _early(self, claim: Claim) -> Call | None:
        """The call that a claim means, where that is still being announced: none that waits already fits."""
        call = self._open.get(("id", claim.call_id)) if claim.call_id is not None else None
        if call is None and claim.name is not None:
            call = self._open.get(("name", claim.name))
        if call is None:
            return None
        found = self._account.find(claim)
        return None if found is not None and found[1] else call

    # ---- what waits -------------------------------------------------------------------------------------------------

    def pending(self) -> Sequence[Entry]:
        """What waits, oldest first."""
        return self._account.pending()

    def tick(self) -> float | None:
        """Judge what is due; seconds until something is due again."""
        return self._account.tick()

    def close(self, until: float) -> None:
        """The process ends in order, and waits for a store until ``time.monotonic()`` reads that."""
        self._account.close(until)

    def retire(self, until: float) -> None:
        """Nothing more is observed, so nothing can be judged any more: let go what waits."""
        self._retired = True
        for entry in self._account.release(until):
            self._reporter.dropped(entry)

    def forked(self) -> None:
        """This process is a copy: what was followed is its parent's."""
        self._open.clear()
        self._responses.clear()
        self._told.clear()
        self._account.forked()

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _entry(self, call: Call) -> Entry:
        turn = call.turn
        completed = turn.clock.wall(call.finished_ns or turn.seen_ns) / 1e9
        return Entry(
            key=call.key,
            call_id=call.call_id,
            name=call.name,
            tool=self._reporter.metric_tool(call),
            turn=_turn_key(turn, call.choice),
            ordinal=call.ordinal,
            provider=turn.request.provider,
            model=turn.request.model,
            response_id=turn.response_id,
            trace=self._reporter.trace_of(call) if call.span is not None else TraceRef(0, 0, 0),
            completed_at=completed,
            due_at=completed + self._settings.deadline(call.name),
        )

    def _forget(self, call: Call) -> None:
        for handle in (("id", call.call_id), ("name", call.name), ("name", None)):
            if self._open.get(handle) is call:
                del self._open[handle]


class _Early:
    """Claims of a call that is not known to be complete yet, until that is known; any thread may bring one."""

    __slots__ = ("numbers", "over", "waiting")

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.over = False
        """The call is in its account: a claim that comes only now is settled by whoever brings it."""
        self.waiting: list[Callable[[], None]] = []

    def settle(self) -> None:
        """Popping is atomic: of two threads, one gets each."""
        while self.waiting:
            try:
                claim = self.waiting.pop(0)
            except IndexError:
                return
            claim()


def _remember(recent: dict[str, T], key: str, value: T) -> None:
    while len(recent) >= _KEPT:
        with contextlib.suppress(RuntimeError):  # another thread changed it between the two steps
            recent.pop(next(iter(recent)), None)
    recent[key] = value


def _handle(call: Call) -> tuple[str, str | None]:
    return ("id", call.call_id) if call.call_id is not None else ("name", call.name)


def _turn_key(turn: Turn, choice: int) -> str:
    return turn.key if choice == 0 else f"{turn.key}/{choice}"
