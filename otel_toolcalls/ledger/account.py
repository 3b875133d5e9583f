"""How the ledger reaches its store: directly in this process's memory, through the worker anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from otel_toolcalls.conventions import LostReason
from otel_toolcalls.guard import guarded
from otel_toolcalls.ledger import Claim, Entry, Judged, Settlement
from otel_toolcalls.ledger.memory import MemoryStore

__all__ = ["Account", "MemoryAccount"]

Then = Callable[["Settlement | None"], None]


class Account(Protocol):
    """What the ledger asks of its store. Nothing here blocks; answers may come later, on the worker."""

    def add(self, entry: Entry) -> None:
        """A call is complete and waits."""

    def find(self, claim: Claim) -> tuple[Entry, bool] | None:
        """What a claim will most likely meet, as far as this process knows, and whether that waits."""

    def settle(self, claim: Claim, then: Then) -> None:
        """Somebody claims a call; ``then`` is told what the claim met."""

    def hasten(self, turn: str, reason: LostReason, due_at: float) -> None:
        """Judge what still waits of a turn at ``due_at`` at the latest."""

    def leave(self, call_id: str, trace_id: int, reason: LostReason, due_at: float) -> None:
        """The same for the turn of the newest call of that id that waits, one in that trace first."""

    def drop(self, turn: str, dropped: Callable[[Entry], None]) -> None:
        """Follow the calls of a turn no longer; ``dropped`` is told each that still waited."""

    def pending(self) -> Sequence[Entry]:
        """What waits, oldest first. May block."""

    def tick(self) -> float | None:
        """On the worker: judge what is due; seconds until something is due again."""

    def close(self, until: float) -> None:
        """The process ends in order. Blocks, but not beyond ``until`` (``time.monotonic()``)."""

    def release(self, until: float) -> Sequence[Entry]:
        """Follow nothing more that this process announced; what still waited with nobody else to follow it.

        Blocks as ``close`` does.
        """

    def forked(self) -> None:
        """This process is a copy."""


class MemoryAccount:
    """Directly to the store in memory."""

    def __init__(self, capacity: int, lost: Callable[[Judged], None], wake: Callable[[], None]) -> None:
        self._capacity = capacity
        self._lost = lost
        self._wake = wake
        self._next = float("inf")
        self.forked()

    def forked(self) -> None:
        self._store = MemoryStore(self._capacity)
        self._next = float("inf")

    def add(self, entry: Entry) -> None:
        for judged in self._store.add(entry):
            self._lost(judged)
        self._due(entry.due_at)

    def find(self, claim: Claim) -> tuple[Entry, bool] | None:
        return self._store.find(claim)

    def settle(self, claim: Claim, then: Then) -> None:
        then(self._store.settle(claim))

    def hasten(self, turn: str, reason: LostReason, due_at: float) -> None:
        self._store.hasten(turn, reason, due_at)
        self._due(due_at)

    def leave(self, call_id: str, trace_id: int, reason: LostReason, due_at: float) -> None:
        turn = self._store.turn_of(call_id, trace_id)
        if turn is not None:
            self.hasten(turn, reason, due_at)

    def drop(self, turn: str, dropped: Callable[[Entry], None]) -> None:
        for entry in self._store.drop(turn):
            dropped(entry)

    def pending(self) -> Sequence[Entry]:
        return self._store.pending()

    def tick(self) -> float | None:
        now = time.time()
        for judged in self._store.judge(now):
            guarded("ledger.lost", self._lost, judged)
        due = self._store.next_due()
        self._next = float("inf") if due is None else due
        return None if due is None else max(0.0, due - time.time())

    def close(self, until: float) -> None:  # noqa: ARG002  # the protocol's
        for judged in self._store.close(time.time()):
            guarded("ledger.lost", self._lost, judged)

    def release(self, until: float) -> Sequence[Entry]:  # noqa: ARG002  # the protocol's
        return [judged.entry for judged in self._store.close(time.time())]

    def _due(self, at: float) -> None:
        if at < self._next:
            self._next = at
            self._wake()
