"""The stores against a model that looks at everything each time: any interleaving, over ids that repeat."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.ledger import Claim, Entry, Judged, Store
from otel_toolcalls.ledger.memory import MemoryStore
from otel_toolcalls.ledger.redis import RedisStore
from otel_toolcalls.ledger.shared import TransactionalStore
from otel_toolcalls.ledger.sqlite import SqliteStore
from tests.ledger.making import NOW, entry
from tests.ledger.redis_server import RedisServer

DISPATCHES = (SettledBy.DISPATCH, SettledBy.SPAN)
IDS = st.sampled_from([None, "search:0", "search:1", "call-x"])
NAMES = st.sampled_from([None, "search", "fetch"])
TURNS = st.sampled_from(["t1", "t2", "t3"])
TRACES = st.integers(1, 3)
BY = st.sampled_from([SettledBy.DISPATCH, SettledBy.SPAN, SettledBy.ANSWER, SettledBy.ACKNOWLEDGE])


@dataclass
class Row:
    """What the model knows of a call."""

    entry: Entry
    due_at: float
    reason: LostReason
    settled: SettledBy | None = None
    lost: LostReason | None = None
    dispatches: int = 0

    @property
    def waits(self) -> bool:
        return self.settled is None and self.lost is None


class Model:
    """The rules of `Claim`, word by word, over a list in order of announcement."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def meant(self, claim: Claim) -> Row | None:
        newest_first = self.rows[::-1]
        keyed = next((row for row in self.rows if row.entry.key == claim.key), None)
        if claim.call_id is None and claim.name is None:
            return keyed
        same_id = [row for row in newest_first if claim.call_id is not None and row.entry.call_id == claim.call_id]
        waiting = [row for row in same_id if row.waits]
        equals = [row for row in waiting if row.entry.trace.trace_id == claim.trace_id] or waiting
        if equals:
            named = [row for row in equals if row.entry.name == claim.name]
            return keyed if keyed in equals else (named or equals)[0]
        if keyed is not None:
            return keyed
        if same_id:
            return same_id[0]
        nameless = [row for row in newest_first if row.entry.call_id is None and row.entry.name == claim.name]
        for rows in ([row for row in nameless if row.waits], [row for row in nameless if not row.waits]):
            here = [row for row in rows if row.entry.trace.trace_id == claim.trace_id] or rows
            if claim.name is not None and here and (here[0].waits or here[0].lost is not None):
                return [row for row in here if row.entry.turn == here[0].entry.turn][-1]
        return None


class Machine(RuleBasedStateMachine):
    """Does each thing to a store and to the model, and compares what they say."""

    store: Store
    shared: bool

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.now = NOW
        self.ends: dict[str, list[str]] = {}
        self.numbers = itertools.count()

    @rule(
        call_id=IDS,
        name=NAMES,
        turn=TURNS,
        trace=TRACES,
        deadline=st.integers(1, 30),
    )
    def announce(self, call_id: str | None, name: str | None, turn: str, trace: int, deadline: int) -> None:
        one = entry(call_id, name, turn=turn, trace=trace, at=self.now, deadline=deadline)
        self.model.rows.append(Row(one, one.due_at, one.reason))
        self.ends[one.key] = []
        assert not self.store.add(one)

    @rule(by=BY, call_id=IDS, name=NAMES, trace=st.integers(0, 3), choice=st.integers(0, 40), keyed=st.booleans())
    def claim(self, by: SettledBy, call_id: str | None, name: str | None, trace: int, choice: int, keyed: bool) -> None:
        key = self.model.rows[choice].entry.key if keyed and choice < len(self.model.rows) else None
        asked = Claim(by, self.now, call_id, name, trace, key, f"token-{next(self.numbers)}")
        row = self.model.meant(asked)
        if row is None:
            if not self.shared:  # a shared store would remember it, and its announcement may still come
                assert self.store.settle(asked) is None
            return
        settlement = self.store.settle(asked)
        assert settlement is not None
        row.dispatches += by in DISPATCHES
        assert settlement.entry.key == row.entry.key
        assert (settlement.first, settlement.lost) == (row.waits, row.lost)
        assert settlement.dispatches == row.dispatches
        if settlement.first:
            row.settled = by
            self.ends[row.entry.key].append(by.value)

    @rule(turn=TURNS, reason=st.sampled_from(list(LostReason)[1:3]), seconds=st.integers(0, 10))
    def hasten(self, turn: str, reason: LostReason, seconds: int) -> None:
        self.store.hasten(turn, reason, self.now + seconds)
        for row in self.model.rows:
            if row.waits and row.entry.turn == turn and row.due_at > self.now + seconds:
                row.due_at, row.reason = self.now + seconds, reason

    @rule(turn=TURNS)
    def drop(self, turn: str) -> None:
        expected = [row for row in self.model.rows if row.waits and row.entry.turn == turn]
        assert [one.key for one in self.store.drop(turn)] == [row.entry.key for row in expected]
        for row in expected:
            row.settled = SettledBy.EXEMPT
            self.ends[row.entry.key].append("exempt")

    @rule(call_id=IDS, trace=TRACES)
    def turn_of(self, call_id: str | None, trace: int) -> None:
        if call_id is not None:
            waiting = [row for row in self.model.rows if row.waits and row.entry.call_id == call_id]
            rows = [row for row in waiting if row.entry.trace.trace_id == trace] or waiting
            assert self.store.turn_of(call_id, trace) == (rows[-1].entry.turn if rows else None)

    @rule(seconds=st.integers(0, 20))
    def judge(self, seconds: int) -> None:
        self.now += seconds
        due = {row.entry.key: row for row in self.model.rows if row.waits and row.due_at <= self.now}
        judged = self.store.judge(self.now)
        assert {one.entry.key: one.reason for one in judged} == {key: row.reason for key, row in due.items()}
        self.lose(judged)

    def lose(self, judged: Any) -> None:
        rows = {row.entry.key: row for row in self.model.rows}
        for one in judged:
            assert isinstance(one, Judged)
            rows[one.entry.key].lost = one.reason
            self.ends[one.entry.key].append("lost")
        if isinstance(self.store, TransactionalStore):
            self.store.reported([one.entry.key for one in judged])

    @rule()
    def shut_down(self) -> None:
        """In memory what waits is lost with the process; a shared ledger keeps it."""
        lost = self.store.close(self.now)
        waiting = [row for row in self.model.rows if row.waits]
        assert {one.entry.key for one in lost} == ({row.entry.key for row in waiting} if not self.shared else set())
        self.lose(lost)

    @invariant()
    def the_same_calls_wait(self) -> None:
        waiting = [row for row in self.model.rows if row.waits]
        pending = self.store.pending()
        assert [(one.key, one.due_at) for one in pending] == [(row.entry.key, row.due_at) for row in waiting]
        assert self.store.next_due() == min((row.due_at for row in waiting), default=None)

    def teardown(self) -> None:
        try:
            self.lose(self.store.judge(self.now + 10_000))
            assert not self.store.judge(self.now + 20_000)
            assert all(len(ends) == 1 for ends in self.ends.values()), self.ends
        finally:
            self.store.close(self.now)


def run(make: Any, *, shared: bool, examples: int) -> None:
    class ThisMachine(Machine):
        def __init__(self) -> None:
            super().__init__()
            self.store, self.shared = make(), shared

    checks = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(ThisMachine, settings=checks)


def test_in_memory_every_call_ends_in_exactly_one_way() -> None:
    run(MemoryStore, shared=False, examples=200)


@pytest.mark.slow
def test_in_sqlite_every_call_ends_in_exactly_one_way() -> None:
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()
        run(
            lambda: SqliteStore(str(Path(folder) / f"{next(numbers)}.db"), recovery=0, history=1e6),
            shared=True,
            examples=60,
        )


@pytest.mark.slow
def test_in_redis_every_call_ends_in_exactly_one_way(redis_of_session: RedisServer) -> None:
    def make() -> RedisStore:
        redis_of_session.flush()
        return RedisStore(redis_of_session.url, recovery=0, history=1e6)

    run(make, shared=True, examples=30)
