"""The ledger: the account of completed client-run calls until somebody ran them or answered them.

Here stand its facts and the one small protocol of its stores. No argument and no result is among the facts; the span
context is, so that a judgement lands in the announcing trace, whoever makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.turn import Call, Request

__all__ = ["DISPATCHES", "Claim", "Entry", "Judged", "Reporter", "Settlement", "Store", "TraceRef"]

DISPATCHES = frozenset({SettledBy.DISPATCH, SettledBy.SPAN})
"""What settles a call because it began to run."""


@dataclass(frozen=True, slots=True)
class TraceRef:
    """The identity of a span, as W3C trace context has it."""

    trace_id: int
    span_id: int
    flags: int = 1


@dataclass(slots=True)
class Entry:
    """One completed call that waits. Times are seconds since the epoch."""

    key: str
    """Ours, unique per announced call."""
    call_id: str | None
    """The provider's; may be absent, or repeat."""
    name: str | None
    tool: str
    """The tool's name as metrics carry it."""
    turn: str
    """The key of its turn; each choice of a response counts as a turn of its own."""
    ordinal: int
    provider: str
    model: str | None
    response_id: str | None
    trace: TraceRef
    completed_at: float
    """End of the announcement."""
    due_at: float
    """When it is judged lost."""
    reason: LostReason = LostReason.DEADLINE
    """What it is judged for then."""
    process: str = ""
    """The process that announced it; empty where that has ended in order."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody ran, answered or acknowledged a call. Which one, the store finds.

    The newest unsettled entry that fits is taken, never two: by ``call_id``; else, or where no announcement of that id
    is known, the first in order of the newest turn with an unsettled call that has no id and that ``name``. Of equals,
    one in the same trace goes first, then that of ``key``, then one of that name. Where neither id nor name is given,
    ``key`` alone says which.
    """

    by: SettledBy
    at: float
    call_id: str | None = None
    name: str | None = None
    trace_id: int = 0
    """Of the span in which it happened; 0 where there is none."""
    key: str | None = None
    """The call that the claimant takes it for."""
    token: str = ""
    """Unique, where the claim may have to be looked for again in a shared store."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a claim met."""

    entry: Entry
    first: bool
    """It settles the call. False: the call was settled, or judged lost, before."""
    ambiguous: bool = False
    """There was a choice of equals, or the match is by name alone."""
    dispatches: int = 0
    """How often the call has been dispatched, this time included."""
    lost: LostReason | None = None
    """What it had been judged lost for, before this."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A call was judged lost. Handed out once, to one caller of one process."""

    entry: Entry
    reason: LostReason
    at: float


class Store(Protocol):
    """Where completed calls wait. Calls block; any may raise on a store that is out of reach, and be tried again.

    Every method is safe to call from any thread, and to repeat.
    """

    def add(self, entry: Entry) -> Sequence[Judged]:
        """A call is complete and waits. Returns those that had to go to keep within bounds."""

    def settle(self, claim: Claim) -> Settlement | None:
        """Somebody claims a call; None where no announcement fits."""

    def hasten(self, turn: str, reason: LostReason, due_at: float) -> None:
        """Judge what still waits of a turn at ``due_at`` at the latest, for ``reason``."""

    def judge(self, now: float) -> Sequence[Judged]:
        """Take the calls that are due at ``now``, each for this caller alone."""

    def turn_of(self, call_id: str, trace_id: int) -> str | None:
        """The turn of the newest call of that id that waits; one in that trace first."""

    def drop(self, turn: str) -> Sequence[Entry]:
        """Follow the calls of a turn no longer; returns those that still waited."""

    def next_due(self) -> float | None:
        """When the next call is due; None where none waits."""

    def pending(self) -> Sequence[Entry]:
        """What waits, oldest first."""

    def close(self, now: float) -> Sequence[Judged]:
        """This process ends in order. Returns what is lost with it: nothing where others can follow it."""


class Reporter(Protocol):
    """Who makes the ledger's facts seen."""

    def trace_of(self, call: Call) -> TraceRef:
        """The span of an announced call."""

    def metric_tool(self, call: Call) -> str:
        """The tool's name as metrics carry it."""

    def waits(self, entry: Entry) -> None:
        """A call is complete, and waits from now on."""

    def settled(self, entry: Entry, by: SettledBy, *, waited: bool = True) -> None:
        """A call was settled; one that did not wait is settled the moment it is complete."""

    def lost(self, judged: Judged) -> None:
        """A waiting call was judged lost."""

    def dropped(self, entry: Entry) -> None:
        """A waiting call is followed no longer, as its turn was abandoned."""

    def answers_expected(self, request: Request, count: int) -> None:
        """A request carries that many results; each will be told of by ``answered``."""

    def answered(self, request: Request, entry: Entry | None) -> None:
        """One of them answers this call, or none that is known."""
