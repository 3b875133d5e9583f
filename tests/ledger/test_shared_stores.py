"""What the stores that processes share do for several of them; here each process is one store object on the same ledger."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.ledger import Settlement
from otel_toolcalls.ledger.shared import Add, Drop, Hasten, Settle, SharedStore
from tests.ledger.making import NOW, claim, entry

Open = Callable[[], SharedStore]


def settlement(result: object) -> Settlement:
    assert isinstance(result, Settlement)
    return result


def test_a_call_announced_in_one_process_is_settled_in_another(open_shared: Open) -> None:
    here, there = open_shared(), open_shared()
    here.add(entry(key="one"))
    assert [one.key for one in there.pending()] == ["one"]
    assert settlement(there.settle(claim())).first
    assert not here.pending()
    assert not settlement(here.settle(claim())).first


def test_a_lost_call_is_handed_to_one_sweeper(open_shared: Open) -> None:
    stores = [open_shared() for _ in range(4)]
    for number in range(500):
        stores[number % 4].add(entry(f"call-{number}"))
    handed: list[list[str]] = [[] for _ in stores]

    def sweep(store: SharedStore, out: list[str]) -> None:
        while judged := store.judge(NOW + 1000):
            keys = [one.entry.key for one in judged]
            store.reported(keys)
            out += keys

    threads = [threading.Thread(target=sweep, args=pair) for pair in zip(stores, handed, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = Counter(key for out in handed for key in out)
    assert len(counts) == 500
    assert set(counts.values()) == {1}


def test_what_was_handed_out_and_not_reported_is_handed_out_again_to_the_same_process_alone(open_shared: Open) -> None:
    here, there = open_shared(), open_shared()
    here.add(entry(key="one"))
    assert [one.entry.key for one in here.judge(NOW + 1000)] == ["one"]
    assert not there.judge(NOW + 1000)
    assert [one.entry.key for one in here.judge(NOW + 1000)] == ["one"]
    here.reported(["one"])
    assert not here.judge(NOW + 1000)


def test_what_an_ending_process_had_not_reported_is_left_to_the_others(open_shared: Open) -> None:
    here, there = open_shared(), open_shared()
    here.add(entry(key="one"))
    assert here.judge(NOW + 1000)
    here.close(NOW)
    assert [one.entry.key for one in there.judge(NOW + 1000)] == ["one"]


def test_an_orderly_end_judges_nothing_and_leaves_the_calls_to_their_deadlines(open_shared: Open) -> None:
    here, there = open_shared(), open_shared()
    here.add(entry("answered"))
    here.add(entry("late"))
    assert {one.process for one in there.pending()} != {""}
    assert not here.close(NOW)
    assert {one.process for one in there.pending()} == {""}
    assert not there.judge(NOW)
    assert settlement(there.settle(claim("answered", by=SettledBy.ANSWER))).first
    assert [one.reason for one in there.judge(NOW + 1000)] == [LostReason.DEADLINE]


def test_a_store_that_was_closed_can_be_used_again(open_shared: Open) -> None:
    store = open_shared()
    store.add(entry("a"))
    store.close(NOW)
    store.add(entry("b"))
    assert [(one.call_id, bool(one.process)) for one in store.pending()] == [("a", False), ("b", True)]


class TestAClaimThatOvertakesItsAnnouncement:
    def test_settles_the_call_when_it_comes(self, open_shared: Open) -> None:
        here, there = open_shared(), open_shared()
        assert there.settle(claim(by=SettledBy.SPAN)) is None
        assert here.apply([Add(entry())]) == [SettledBy.SPAN]
        assert not here.pending()
        assert not here.judge(NOW + 1000)

    def test_settles_one_call_and_no_other(self, open_shared: Open) -> None:
        store = open_shared()
        store.settle(claim())
        assert store.apply([Add(entry(key="first")), Add(entry(key="second"))]) == [SettledBy.DISPATCH, None]

    def test_is_spent_together_with_the_answer_that_overtook_it_too(self, open_shared: Open) -> None:
        store = open_shared()
        store.settle(claim())
        store.settle(claim(by=SettledBy.ANSWER))
        assert store.apply([Add(entry()), Add(entry())]) == [SettledBy.DISPATCH, None]

    def test_is_for_the_call_in_its_own_trace_first(self, open_shared: Open) -> None:
        store = open_shared()
        for by, trace in ((SettledBy.DISPATCH, 5), (SettledBy.SPAN, 6)):
            store.settle(claim(by=by, trace=trace))
        results = store.apply([Add(entry(trace=6)), Add(entry(trace=5))])
        assert results == [SettledBy.SPAN, SettledBy.DISPATCH]

    def test_finds_a_call_without_an_id_by_name(self, open_shared: Open) -> None:
        store = open_shared()
        store.settle(claim("made up by the app", "search"))
        assert store.apply([Add(entry("b", "search")), Add(entry(None, "other")), Add(entry(None, "search"))]) == [
            None,
            None,
            SettledBy.DISPATCH,
        ]

    def test_is_told_what_it_met_when_it_asks_again(self, open_shared: Open) -> None:
        here, there = open_shared(), open_shared()
        asked = claim()
        assert there.apply([Settle(asked)]) == [None]
        here.add(entry(key="one"))
        answer = settlement(there.apply([Settle(asked, again=True)])[0])
        assert (answer.entry.key, answer.first, answer.dispatches) == ("one", False, 1)

    def test_still_waits_for_its_announcement_when_it_has_asked_again(self, open_shared: Open) -> None:
        store = open_shared()
        asked = claim()
        assert store.apply([Settle(asked), Settle(asked, again=True)]) == [None, None]
        assert store.apply([Add(entry())]) == [SettledBy.DISPATCH]

    def test_counts_as_a_dispatch_of_that_call(self, open_shared: Open) -> None:
        store = open_shared()
        store.settle(claim())
        store.add(entry())
        assert settlement(store.settle(claim())).dispatches == 2


def test_a_batch_is_done_in_order(open_shared: Open) -> None:
    store = open_shared()
    results = store.apply(
        [
            Add(entry("a", key="a", turn="t")),
            Add(entry("b", key="b", turn="t")),
            Settle(claim("a")),
            Hasten(None, LostReason.TURN_ANSWERED_WITHOUT, NOW + 3, call_id="b", trace_id=7),
            Add(entry("c", turn="dropped")),
            Drop("dropped"),
        ]
    )
    assert settlement(results[2]).first
    assert [one.call_id for one in results[5]] == ["c"]  # type: ignore[union-attr]
    assert [(one.key, one.due_at - NOW, one.reason) for one in store.pending()] == [
        ("b", 3.0, LostReason.TURN_ANSWERED_WITHOUT)
    ]


def test_text_that_no_store_can_hold_spoils_only_itself(open_shared: Open) -> None:
    store = open_shared()
    with pytest.raises(UnicodeEncodeError):
        store.apply([Add(entry("good")), Add(entry("\ud800"))])
    assert not store.pending(), "all of a batch, or none"
    store.add(entry("good"))
    assert [one.call_id for one in store.pending()] == ["good"]


def test_concurrent_writers_lose_and_repeat_nothing(open_shared: Open) -> None:
    stores = [open_shared() for _ in range(6)]
    for number in range(300):
        stores[0].add(entry(f"call-{number}"))
    firsts: list[str] = []

    def claim_all(store: SharedStore) -> None:
        call_ids = [f"call-{number}" for number in range(300)]
        firsts.extend(one for one in call_ids if settlement(store.settle(claim(one))).first)

    threads = [threading.Thread(target=claim_all, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(firsts) == sorted(f"call-{number}" for number in range(300))
    assert not stores[0].pending()


def test_what_waits_no_more_is_forgotten_after_a_while(open_shared: Open) -> None:
    store = open_shared()
    for number in range(20):
        store.add(entry(f"call-{number}"))
    for number in range(10):
        store.settle(claim(f"call-{number}"))
    lost = store.judge(NOW + 1000)
    store.reported([one.entry.key for one in lost])
    assert settlement(store.settle(claim("call-3"))).dispatches == 2
    assert not store.judge(time.time() + 4000)
    assert not store.judge(time.time() + 8000)
    assert store.settle(claim("call-3")) is None
    assert store.settle(claim("call-13")) is None
