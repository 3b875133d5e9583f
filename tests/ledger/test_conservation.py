"""Two processes on one ledger, in any interleaving: what was announced is settled, lost or dropped, each call once."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.ledger import Entry, Judged, Settlement
from otel_toolcalls.ledger.redis import RedisStore
from otel_toolcalls.ledger.shared import SharedAccount, SharedStore
from otel_toolcalls.ledger.sqlite import SqliteStore
from tests.ledger.making import claim, entry
from tests.ledger.redis_server import RedisServer

IDS = st.sampled_from([None, "search:0", "search:1"])
NAMES = st.sampled_from(["search", "fetch"])
TURNS = st.sampled_from(["t1", "t2"])
BY = st.sampled_from([SettledBy.DISPATCH, SettledBy.SPAN, SettledBy.ANSWER, SettledBy.ACKNOWLEDGE])
WHO = st.integers(0, 1)
CAPACITY = 8


class Machine(RuleBasedStateMachine):
    """Each process has an account of its own; its worker ticks when the machine says so."""

    open_store: Callable[[], SharedStore]

    def __init__(self) -> None:
        super().__init__()
        self.stores = [self.open_store() for _ in range(2)]
        self.ends: Counter[str] = Counter()
        self.announced: list[str] = []
        self.asked = self.answered = 0
        self.accounts = [SharedAccount(store, CAPACITY, self.lost, self.settled, lambda: None) for store in self.stores]

    def lost(self, judged: Judged) -> None:
        self.ends[judged.entry.key] += 1

    def settled(self, one: Entry, _: SettledBy) -> None:
        self.ends[one.key] += 1

    def met(self, settlement: Settlement | None) -> None:
        self.answered += 1
        if settlement is not None and settlement.first:
            self.ends[settlement.entry.key] += 1

    @rule(who=WHO, call_id=IDS, name=NAMES, turn=TURNS, trace=st.integers(1, 2), due=st.booleans())
    def announce(self, who: int, call_id: str | None, name: str, turn: str, trace: int, due: bool) -> None:
        one = entry(call_id, name, turn=turn, trace=trace, at=time.time(), deadline=-1 if due else 300)
        self.announced.append(one.key)
        self.accounts[who].add(one)

    @rule(who=WHO, by=BY, call_id=IDS, name=NAMES, trace=st.integers(0, 2))
    def claim(self, who: int, by: SettledBy, call_id: str | None, name: str, trace: int) -> None:
        self.asked += 1
        self.accounts[who].settle(claim(call_id, name, by, trace=trace), self.met)

    @rule(who=WHO, turn=TURNS)
    def hasten(self, who: int, turn: str) -> None:
        self.accounts[who].hasten(turn, LostReason.SIBLINGS_ANSWERED, time.time() - 1)

    @rule(who=WHO, turn=TURNS)
    def drop(self, who: int, turn: str) -> None:
        self.accounts[who].drop(turn, lambda one: self.lost(Judged(one, LostReason.DEADLINE, 0)))

    @rule(who=WHO)
    def tick(self, who: int) -> None:
        self.accounts[who]._look_at = 0.0
        self.accounts[who].tick()

    @rule(who=WHO)
    def restart(self, who: int) -> None:
        self.accounts[who].close(time.monotonic() + 5)
        self.accounts[who].forked()

    @invariant()
    def nothing_ends_twice(self) -> None:
        assert not [key for key, times in self.ends.items() if times > 1]

    def teardown(self) -> None:
        for account in self.accounts:
            account.close(time.monotonic() + 5)
        sweeper = self.open_store()
        try:
            while judged := sweeper.judge(time.time() + 10_000):
                for one in judged:
                    self.lost(one)
                sweeper.reported([one.entry.key for one in judged])
            assert self.ends == Counter(self.announced)
            assert self.answered == self.asked
        finally:
            sweeper.close(time.time())


def run(open_store: Callable[[], Callable[[], SharedStore]], examples: int) -> None:
    """Each run of the machine has a ledger of its own, which ``open_store()`` opens as often as it likes."""

    class ThisMachine(Machine):
        def __init__(self) -> None:
            self.open_store = open_store()
            super().__init__()

    checks = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shorten a failing run takes minutes here
    )
    run_state_machine_as_test(ThisMachine, settings=checks)


@pytest.mark.slow
def test_in_sqlite() -> None:
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()

        def fresh() -> Callable[[], SharedStore]:
            path = str(Path(folder) / f"{next(numbers)}.db")
            return lambda: SqliteStore(path, recovery=0)

        run(fresh, 50)


@pytest.mark.slow
def test_in_redis(redis_of_session: RedisServer) -> None:
    def fresh() -> Callable[[], SharedStore]:
        redis_of_session.flush()
        return lambda: RedisStore(redis_of_session.url, recovery=0)

    run(fresh, 25)
