"""The default store: this process's memory, bounded.

Every operation costs the same however many calls wait. A call that has to go to keep within bounds is judged lost for
that, and not forgotten in silence. What was settled or lost is remembered for a while, for late and repeated claims.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.ledger import DISPATCHES, Claim, Entry, Judged, Settlement

__all__ = ["LOOK_BACK", "MemoryStore"]

LOOK_BACK = 64
"""How many equals a claim chooses among, newest first: ids may repeat without end, and a claim must not cost more."""


@dataclass(slots=True)
class _Row:
    entry: Entry
    number: int
    """In order of announcement."""
    settled: SettledBy | None = None
    lost: LostReason | None = None
    dispatches: int = 0


class _Groups:
    """Rows by some property, in order of arrival."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, dict[str, _Row]] = {}

    def add(self, group: Hashable, row: _Row) -> None:
        self._groups.setdefault(group, {})[row.entry.key] = row

    def remove(self, group: Hashable, row: _Row) -> None:
        rows = self._groups.get(group)
        if rows is not None:
            rows.pop(row.entry.key, None)
            if not rows:
                del self._groups[group]

    def all(self, group: Hashable) -> list[_Row]:
        return list(self._groups.get(group, {}).values())

    def latest(self, group: Hashable) -> list[_Row]:
        rows = self._groups.get(group)
        return list(islice(reversed(rows.values()), LOOK_BACK)) if rows else []


class MemoryStore:
    """Keeps at most ``capacity`` waiting calls, and remembers as many that wait no more."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._capacity = capacity
        # Reentrant: a signal handler that shuts down may interrupt any of this in its own thread.
        self._lock = threading.RLock()
        self._waiting: dict[str, _Row] = {}
        self._past: dict[str, _Row] = {}
        self._waiting_groups = _Groups()
        self._past_groups = _Groups()
        self._turns = _Groups()
        self._due: list[tuple[float, str]] = []
        self._added = 0

    def add(self, entry: Entry) -> Sequence[Judged]:
        with self._lock:
            if entry.key in self._waiting or entry.key in self._past:
                return ()
            self._added += 1
            row = _Row(entry, self._added)
            self._waiting[entry.key] = row
            for group in _groups_of(entry):
                self._waiting_groups.add(group, row)
            self._turns.add(entry.turn, row)
            self._schedule(entry)
            evicted = []
            while len(self._waiting) > self._capacity:
                oldest = next(iter(self._waiting.values()))
                evicted.append(self._lose(oldest, LostReason.EVICTED, entry.completed_at))
            return evicted

    def settle(self, claim: Claim) -> Settlement | None:
        with self._lock:
            row, ambiguous = self._find(claim)
            if row is None:
                return None
            if claim.by in DISPATCHES:
                row.dispatches += 1
            first = row.entry.key in self._waiting
            if first:
                row.settled = claim.by
                self._retire(row)
            return Settlement(row.entry, first, ambiguous, row.dispatches, row.lost)

    def find(self, claim: Claim) -> tuple[Entry, bool] | None:
        """The entry that a claim would meet, left as it is, and whether it waits."""
        with self._lock:
            row, _ = self._find(claim)
            return None if row is None else (row.entry, row.entry.key in self._waiting)

    def turn_of(self, call_id: str, trace_id: int) -> str | None:
        with self._lock:
            what = ("id", call_id)
            rows = self._equals(self._waiting_groups, what, trace_id)
            return rows[0].entry.turn if rows else None

    def hasten(self, turn: str, reason: LostReason, due_at: float) -> None:
        with self._lock:
            for row in self._turns.all(turn):
                if due_at < row.entry.due_at:
                    row.entry.due_at, row.entry.reason = due_at, reason
                    self._schedule(row.entry)

    def judge(self, now: float) -> Sequence[Judged]:
        with self._lock:
            judged = []
            while self._due and self._due[0][0] <= now:
                row = self._waiting.get(heapq.heappop(self._due)[1])
                if row is not None and row.entry.due_at <= now:
                    judged.append(self._lose(row, row.entry.reason, now))
            return judged

    def drop(self, turn: str) -> Sequence[Entry]:
        with self._lock:
            rows = self._turns.all(turn)
            for row in rows:
                row.settled = SettledBy.EXEMPT
                self._retire(row)
            return [row.entry for row in rows]

    def next_due(self) -> float | None:
        with self._lock:
            while self._due:
                due, key = self._due[0]
                row = self._waiting.get(key)
                if row is not None and row.entry.due_at == due:
                    return due
                heapq.heappop(self._due)
            return None

    def pending(self) -> Sequence[Entry]:
        with self._lock:
            return [replace(row.entry) for row in self._waiting.values()]

    def close(self, now: float) -> Sequence[Judged]:
        with self._lock:
            rows = list(self._waiting.values())
            return [self._lose(row, _reason_at_exit(row.entry), now) for row in rows]

    # ---- inside; the lock is held -----------------------------------------------------------------------------------

    def _find(self, claim: Claim) -> tuple[_Row | None, bool]:
        meant = None
        if claim.key is not None:
            meant = self._waiting.get(claim.key) or self._past.get(claim.key)
        if claim.call_id is None and claim.name is None:
            return meant, False
        if claim.call_id is not None:
            rows = self._equals(self._waiting_groups, ("id", claim.call_id), claim.trace_id)
            if rows:
                named = [row for row in rows if row.entry.name == claim.name] or rows
                return next((row for row in rows if row is meant), named[0]), len(named) > 1
        return (meant, False) if meant is not None else self._find_less_sure(claim)

    def _find_less_sure(self, claim: Claim) -> tuple[_Row | None, bool]:
        """One of that id that waits no more, or one without an id of that name."""
        past = self._equals(self._past_groups, ("id", claim.call_id), 0) if claim.call_id is not None else []
        if past:
            return past[0], False
        if claim.name is not None:
            for groups in (self._waiting_groups, self._past_groups):
                rows = self._equals(groups, ("name", claim.name), claim.trace_id)
                if rows and (groups is self._waiting_groups or rows[0].lost is not None):
                    turn = rows[0].entry.turn
                    return [row for row in rows if row.entry.turn == turn][-1], True
        return None, False

    @staticmethod
    def _equals(groups: _Groups, what: Hashable, trace_id: int) -> list[_Row]:
        """Those in the same trace, or where there is none, those in any; newest first."""
        rows = groups.latest((what, trace_id)) or groups.latest((what, 0))
        return sorted(rows, key=lambda row: row.number, reverse=True) if len(rows) > 1 else rows

    def _schedule(self, entry: Entry) -> None:
        heapq.heappush(self._due, (entry.due_at, entry.key))
        if len(self._due) > 2 * len(self._waiting) + 64:
            self._due = [(row.entry.due_at, key) for key, row in self._waiting.items()]
            heapq.heapify(self._due)

    def _lose(self, row: _Row, reason: LostReason, at: float) -> Judged:
        row.lost = reason
        self._retire(row)
        return Judged(row.entry, reason, at)

    def _retire(self, row: _Row) -> None:
        """It waits no more, but late and repeated claims may still come."""
        del self._waiting[row.entry.key]
        self._turns.remove(row.entry.turn, row)
        self._past[row.entry.key] = row
        for group in _groups_of(row.entry):
            self._waiting_groups.remove(group, row)
            self._past_groups.add(group, row)
        while len(self._past) > self._capacity:
            forgotten = self._past.pop(next(iter(self._past)))
            for group in _groups_of(forgotten.entry):
                self._past_groups.remove(group, forgotten)


def _reason_at_exit(entry: Entry) -> LostReason:
    """What is known to be left behind is lost for that; the end of the process only came first."""
    return LostReason.SHUTDOWN if entry.reason is LostReason.DEADLINE else entry.reason


def _groups_of(entry: Entry) -> tuple[Hashable, ...]:
    """A call is looked for by its id, or where it has none by its name; in one trace, or (0) in any."""
    what = ("id", entry.call_id) if entry.call_id is not None else ("name", entry.name)
    return ((what, entry.trace.trace_id), (what, 0))
