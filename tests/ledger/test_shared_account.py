"""What a process says to a shared store, by way of the queue; the worker's ticks are the test's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from otel_toolcalls import guard
from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.ledger import Entry, Judged, Settlement
from otel_toolcalls.ledger.redis import RedisStore
from otel_toolcalls.ledger.shared import SharedAccount, SharedStore
from otel_toolcalls.ledger.sqlite import SqliteStore
from tests.e2e.backends import eventually, free_ports
from tests.ledger.making import claim, entry
from tests.ledger.redis_server import RedisServer

Open = Callable[[], SharedStore]


@dataclass
class Process:
    """An account, and what it said."""

    store: SharedStore
    capacity: int = 1000
    lost: list[Judged] = field(default_factory=list)
    settled: list[tuple[Entry, SettledBy]] = field(default_factory=list)
    met: list[Settlement | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.account = SharedAccount(
            self.store, self.capacity, self.lost.append, lambda *one: self.settled.append(one), lambda: None
        )

    def claim(self, *args: object, **kwargs: object) -> None:
        self.account.settle(claim(*args, **kwargs), self.met.append)  # type: ignore[arg-type]

    @property
    def reasons(self) -> dict[str | None, LostReason]:
        assert len({one.entry.key for one in self.lost}) == len(self.lost), "each once"
        return {one.entry.call_id: one.reason for one in self.lost}


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """Where errors were counted."""
    places: list[str] = []
    guard.listen(places.append)
    yield places
    guard.listen(None)


@pytest.fixture
def unreachable() -> RedisStore:
    pytest.importorskip("redis")
    [port] = free_ports(1)
    return RedisStore(f"redis://127.0.0.1:{port}/0")


def now() -> float:
    return time.time()


def test_what_is_said_reaches_the_store_at_the_next_tick_and_the_answer_comes_with_it(open_shared: Open) -> None:
    process, other = Process(open_shared()), open_shared()
    process.account.add(entry("a", at=now()))
    process.claim("a")
    assert not process.met
    process.account.tick()
    assert [one.first for one in process.met if one] == [True]
    assert not other.pending()
    settlement = other.settle(claim("a"))
    assert settlement is not None
    assert not settlement.first


def test_a_hint_is_given_at_once_for_what_this_process_announced(open_shared: Open) -> None:
    process = Process(open_shared())
    process.account.add(entry("a", key="one"))
    found = process.account.find(claim("a"))
    assert found is not None
    assert (found[0].key, found[1]) == ("one", True)
    assert process.account.find(claim("b")) is None


def test_a_call_due_is_reported_once_among_processes(open_shared: Open) -> None:
    here, there = Process(open_shared()), Process(open_shared())
    here.account.add(entry("a", at=now(), deadline=-1))
    here.account.add(entry("b", at=now()))
    for _ in range(3):
        for process in (here, there):
            process.account.tick()
    assert here.reasons | there.reasons == {"a": LostReason.DEADLINE}
    assert len(here.lost) + len(there.lost) == 1


def test_the_worker_is_wanted_again_when_the_next_call_is_due(open_shared: Open) -> None:
    process = Process(open_shared())
    process.account.add(entry(at=now(), deadline=3))
    rest = process.account.tick()
    assert rest is not None
    assert 2 < rest <= 3
    process.account.hasten("turn", LostReason.SIBLINGS_ANSWERED, now() + 1)
    rest = process.account.tick()
    assert rest is not None
    assert 0 < rest <= 1


def test_a_process_with_nothing_to_do_looks_now_and_then_for_what_others_left(open_shared: Open) -> None:
    rest = Process(open_shared()).account.tick()
    assert rest is not None
    assert 5 < rest <= 10


def test_a_claim_that_overtakes_its_announcement_is_told_of_it_a_moment_later(open_shared: Open) -> None:
    here, there = Process(open_shared()), Process(open_shared())
    there.claim("a")
    rest = there.account.tick()
    assert not there.met
    assert rest is not None
    assert rest <= 1
    announced = entry("a", at=now())
    here.account.add(announced)
    here.account.tick()
    assert here.settled == [(announced, SettledBy.DISPATCH)]

    def told() -> bool:
        there.account.tick()
        return bool(there.met)

    eventually(told, what="the claim has its answer")
    [settlement] = there.met
    assert settlement is not None
    assert (settlement.entry.key, settlement.first, settlement.dispatches) == (announced.key, False, 1)


def test_a_claim_that_means_nothing_is_told_so_a_moment_later(open_shared: Open) -> None:
    process = Process(open_shared())
    process.claim("a")

    def told() -> bool:
        process.account.tick()
        return bool(process.met)

    eventually(told, what="the claim has its answer")
    assert process.met == [None]


def test_where_two_processes_announce_the_same_id_each_settles_its_own(open_shared: Open) -> None:
    here, there = Process(open_shared()), Process(open_shared())
    for process, key in ((here, "here"), (there, "there")):
        process.account.add(entry("search:0", key=key, at=now()))
        process.account.tick()
    here.claim("search:0")
    here.account.tick()
    there.claim("search:0")
    there.account.tick()
    assert [one.entry.key for one in here.met + there.met if one and one.first] == ["here", "there"]


def test_an_id_that_was_settled_elsewhere_and_repeats_there_is_found_there(open_shared: Open) -> None:
    here, there = Process(open_shared()), Process(open_shared())
    here.account.add(entry("search:0", key="first", at=now()))
    here.account.tick()
    there.claim("search:0")
    there.account.tick()
    there.account.add(entry("search:0", key="second", at=now()))
    there.account.tick()
    here.claim("search:0")  # all that this process knows of is the first
    here.account.tick()
    assert [one.entry.key for one in here.met if one and one.first] == ["second"]


def test_a_turn_that_is_carried_on_without_results_leaves_its_calls_behind_also_elsewhere(open_shared: Open) -> None:
    here, there = Process(open_shared()), Process(open_shared())
    here.account.add(entry("a", at=now()))
    here.account.tick()
    there.account.leave("a", 0, LostReason.TURN_ANSWERED_WITHOUT, now() - 1)
    there.account.tick()
    assert there.reasons == {"a": LostReason.TURN_ANSWERED_WITHOUT}


def test_calls_of_a_dropped_turn_are_told_once(open_shared: Open) -> None:
    process = Process(open_shared())
    dropped: list[Entry] = []
    process.account.add(entry("a", at=now()))
    process.account.add(entry("b", at=now()))
    process.claim("b")
    process.account.drop("turn", dropped.append)
    process.account.tick()
    assert [one.call_id for one in dropped] == ["a"]


def test_what_waits_includes_what_was_just_said(open_shared: Open) -> None:
    process = Process(open_shared())
    process.account.add(entry("a", at=now()))
    assert [one.call_id for one in process.account.pending()] == ["a"]


def test_an_orderly_end_writes_what_was_said_and_leaves_what_waits(open_shared: Open) -> None:
    process, other = Process(open_shared()), open_shared()
    process.account.add(entry("a", at=now()))
    process.account.add(entry("b", at=now()))
    process.claim("b")
    process.claim("unknown")
    process.account.close(time.monotonic() + 5)
    assert [one and one.first for one in process.met] == [True, None]
    assert not process.lost
    assert [(one.call_id, one.process) for one in other.pending()] == [("a", "")]


def test_a_retired_account_leaves_what_waits_and_judges_no_more(open_shared: Open) -> None:
    process, other = Process(open_shared()), open_shared()
    process.account.add(entry("a", at=now(), deadline=-1))
    assert not process.account.release(time.monotonic() + 5)
    assert process.account.tick() is None
    assert not process.lost
    assert [one.call_id for one in other.pending()] == ["a"]


def test_a_forked_copy_says_nothing_of_what_its_parent_said(open_shared: Open) -> None:
    process, other = Process(open_shared()), open_shared()
    process.account.add(entry("a", at=now()))
    process.account.forked()
    process.account.tick()
    assert process.account.find(claim("a")) is None
    assert not other.pending()


def test_text_that_no_store_can_hold_costs_only_itself(open_shared: Open, errors: list[str]) -> None:
    process, other = Process(open_shared()), open_shared()
    for call_id in ("a", "\ud800", "b"):
        process.account.add(entry(call_id, at=now(), deadline=0.01))
    process.claim("\ud800")
    process.account.tick()
    assert {one.call_id for one in other.pending()} | set(process.reasons) == {"a", "b"}
    assert [one and one.first for one in process.met] == [True], "by what this process knows of it"
    assert set(errors) == {"ledger.write"}


class TestAStoreOutOfReach:
    def test_makes_nobody_wait(self, unreachable: RedisStore) -> None:
        process = Process(unreachable)
        started = time.perf_counter()
        for number in range(100):
            process.account.add(entry(f"call-{number}", at=now()))
            process.claim(f"call-{number}")
            process.account.hasten("turn", LostReason.SIBLINGS_ANSWERED, now())
        assert time.perf_counter() - started < 0.5

    def test_is_asked_again_later_and_later(self, unreachable: RedisStore, errors: list[str]) -> None:
        process = Process(unreachable)
        process.account.add(entry(at=now()))
        rests = []
        for _ in range(5):
            process.account._try_at = 0.0
            rests.append(process.account.tick() or 0.0)
        assert rests[0] > 0
        assert rests[-1] > 4 * rests[0]
        assert errors == ["ledger.store"] * 5

    def test_gets_what_was_said_meanwhile_when_it_is_back(self, tmp_path: Path, errors: list[str]) -> None:
        server = RedisServer(tmp_path)
        process = Process(RedisStore(server.url))
        for number in range(200):
            process.account.add(entry(f"call-{number}", at=now()))
        process.claim("call-7")
        process.account.tick()
        assert errors
        server.start()
        try:
            process.account._try_at = 0.0
            process.account.tick()
            assert [one and one.first for one in process.met] == [True]
            assert len(process.account.pending()) == 199
            process.account.close(time.monotonic() + 5)
        finally:
            server.stop()

    def test_keeps_no_span_open_for_long(
        self, unreachable: RedisStore, errors: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("otel_toolcalls.ledger.shared._LONGEST_ANSWER", 0.2)
        process = Process(unreachable)
        process.account.add(entry("a", at=now()))
        process.claim("a")
        process.claim("unknown")

        def answered() -> bool:
            process.account.tick()
            return len(process.met) == 2

        eventually(answered, what="the claims have an answer")
        assert [one and one.first for one in process.met] == [False, None], "that is the store's to say"
        process.account.close(time.monotonic() + 5)
        assert len(process.met) == 2, "told once"

    def test_says_later_what_it_settled_when_its_answer_was_not_waited_for(
        self, tmp_path: Path, errors: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("otel_toolcalls.ledger.shared._LONGEST_ANSWER", 0.0)
        server = RedisServer(tmp_path)
        process = Process(RedisStore(server.url))
        announced = entry("a", at=now())
        process.account.add(announced)
        process.claim("a")
        process.account.tick()
        assert [one and one.first for one in process.met] == [False]
        server.start()
        try:
            process.account._try_at = 0.0
            process.account.tick()
            assert [(one.key, by) for one, by in process.settled] == [(announced.key, SettledBy.DISPATCH)]
            process.account.close(time.monotonic() + 5)
        finally:
            server.stop()

    def test_is_done_without_for_what_is_more_than_may_be_held_back(
        self, unreachable: RedisStore, errors: list[str]
    ) -> None:
        process = Process(unreachable, capacity=10)
        for number in range(12):
            process.account.add(entry(f"call-{number}", at=now(), deadline=300 if number < 11 else -1))
        assert errors == ["ledger.dropped.add"] * 2
        process.claim("call-10")
        assert [one and one.first for one in process.met] == [True], "told at once, by what is known here"
        process.account.tick()
        assert process.reasons == {"call-11": LostReason.DEADLINE}
        for number in range(11):
            process.claim(f"call-{number % 10}")
        assert len(process.met) == 2, "one more than may be held back"
        assert errors[-1] == "ledger.dropped.settle"

    def test_ends_every_claim_and_reports_every_call_at_the_end_of_the_process(
        self, unreachable: RedisStore, errors: list[str]
    ) -> None:
        process = Process(unreachable)
        process.account.add(entry("waits", at=now()))
        process.account.add(entry("runs", at=now()))
        process.claim("runs")
        process.claim("unknown")
        started = time.monotonic()
        process.account.close(time.monotonic() + 5)
        assert time.monotonic() - started < 10
        assert [one and one.first for one in process.met] == [True, None]
        assert process.reasons == {"waits": LostReason.SHUTDOWN}
        assert "ledger.dropped.add" in errors


def test_a_full_disk_or_a_folder_that_is_gone_makes_nobody_wait(tmp_path: Path, errors: list[str]) -> None:
    process = Process(SqliteStore(str(tmp_path / "absent" / "ledger.db"), recovery=0))
    process.account.add(entry("a", at=now()))
    process.claim("a")
    process.account.tick()
    assert errors == ["ledger.store"]
    (tmp_path / "absent").mkdir()
    process.account._try_at = 0.0
    process.account.tick()
    assert [one and one.first for one in process.met] == [True]
    process.account.close(time.monotonic() + 5)
