"""What every store of the ledger does, whichever it is."""

from __future__ import annotations

import pytest

from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.ledger import Store
from otel_toolcalls.ledger.memory import MemoryStore
from tests.ledger.making import NOW, claim, entry


def met(store: Store, *args: object, **kwargs: object) -> str | None:
    """The key of the call that such a claim meets."""
    settlement = store.settle(claim(*args, **kwargs))  # type: ignore[arg-type]
    return None if settlement is None else settlement.entry.key


def test_a_claim_gives_back_the_call_as_it_was_announced(store: Store) -> None:
    announced = entry("ü-1", 'na"me\n', turn="turn/1", trace=2**127 + 5)
    announced.model = announced.response_id = None
    store.add(announced)
    settlement = store.settle(claim("ü-1"))
    assert settlement is not None
    assert settlement.first
    assert not settlement.ambiguous
    assert settlement.dispatches == 1
    assert settlement.lost is None
    settlement.entry.process = announced.process
    assert settlement.entry == announced


def test_a_second_claim_is_told_that_it_is_not_the_first(store: Store) -> None:
    store.add(entry())
    answers = [store.settle(claim(by=by)) for by in (SettledBy.DISPATCH, SettledBy.ANSWER, SettledBy.SPAN)]
    assert [(one.first, one.dispatches) for one in answers if one] == [(True, 1), (False, 1), (False, 2)]


def test_a_claim_that_fits_nothing_meets_nothing(store: Store) -> None:
    store.add(entry("a", "search"))
    assert store.settle(claim("b", "search")) is None
    assert store.settle(claim(None, "search")) is None
    assert store.settle(claim(None, None)) is None
    assert [one.call_id for one in store.pending()] == ["a"]


def test_an_announcement_that_is_repeated_changes_nothing(store: Store) -> None:
    store.add(entry(key="one"))
    store.add(entry(key="one"))
    assert len(store.pending()) == 1
    assert met(store) == "one"
    store.add(entry(key="one"))
    assert not store.pending()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"trace": 1}, "in trace 1", id="the one in the same trace"),
        pytest.param({"trace": 9}, "newest", id="the newest, in a trace that knows none"),
        pytest.param({}, "newest", id="the newest, where there is no trace"),
        pytest.param({"name": "other"}, "of that name", id="the one of that name"),
        pytest.param({"name": "unheard"}, "newest", id="the newest, where none has that name"),
        pytest.param({"key": "in trace 1"}, "in trace 1", id="the one that is meant"),
        pytest.param({"key": "in trace 1", "trace": 2}, "newest", id="not the one that is meant, in another trace"),
        pytest.param({"key": "unheard"}, "newest", id="the newest, where the one that is meant is not known"),
    ],
)
def test_of_calls_with_one_id_a_claim_takes(store: Store, asked: dict[str, object], expected: str) -> None:
    store.add(entry(key="in trace 1", trace=1))
    store.add(entry(key="of that name", name="other", trace=2))
    store.add(entry(key="newest", trace=2))
    assert met(store, **asked) == expected
    assert expected not in {one.key for one in store.pending()}


def test_a_claim_says_that_it_had_a_choice(store: Store) -> None:
    store.add(entry())
    store.add(entry())
    store.add(entry(name="other"))
    assert [one.ambiguous for _ in range(3) if (one := store.settle(claim()))] == [True, False, False]


def test_where_the_id_repeats_each_claim_takes_a_call_that_still_waits(store: Store) -> None:
    for key in ("first", "second"):
        store.add(entry(key=key))
    assert [met(store), met(store)] == ["second", "first"]
    assert met(store) == "second", "of those that wait no more, the newest"


def test_by_key_alone_exactly_that_call_is_settled(store: Store) -> None:
    for key in ("first", "second"):
        store.add(entry(key=key))
    assert met(store, None, None, key="first") == "first"
    assert [one.key for one in store.pending()] == ["second"]
    assert met(store, None, None, key="unheard") is None


def test_calls_without_an_id_are_claimed_by_name_in_the_order_of_the_newest_turn(store: Store) -> None:
    for turn in ("old", "new"):
        for number in range(2):
            store.add(entry(None, key=f"{turn}-{number}", turn=turn))
        store.add(entry(None, "other", key=f"{turn}-other", turn=turn))
    settlement = store.settle(claim("made up by the app"))
    assert settlement is not None
    assert settlement.ambiguous
    assert settlement.entry.key == "new-0"
    assert [met(store, None) for _ in range(3)] == ["new-1", "old-0", "old-1"]
    assert met(store, None, "other") == "new-other"


def test_calls_without_an_id_are_claimed_in_their_own_trace_first(store: Store) -> None:
    store.add(entry(None, key="here", turn="1", trace=1))
    store.add(entry(None, key="elsewhere", turn="2", trace=2))
    assert met(store, None, trace=1) == "here"


def test_a_call_is_judged_when_it_is_due_and_once(store: Store) -> None:
    store.add(entry("late", deadline=20))
    store.add(entry("soon", deadline=10))
    assert store.next_due() == NOW + 10
    assert not store.judge(NOW + 9.9)
    judged = store.judge(NOW + 10)
    assert [(one.entry.call_id, one.reason, one.at) for one in judged] == [("soon", LostReason.DEADLINE, NOW + 10)]
    if hasattr(store, "reported"):
        store.reported([judged[0].entry.key])
    assert not store.judge(NOW + 10)
    assert store.next_due() == NOW + 20
    assert [one.entry.call_id for one in store.judge(NOW + 21)] == ["late"]
    assert store.next_due() is None


def test_a_dispatch_after_the_judgement_is_told_of_it(store: Store) -> None:
    store.add(entry())
    store.add(entry(None, "nameless"))
    store.judge(NOW + 1000)
    for late in (claim(), claim(None, "nameless")):
        settlement = store.settle(late)
        assert settlement is not None
        assert (settlement.first, settlement.lost, settlement.dispatches) == (False, LostReason.DEADLINE, 1)


def test_a_settled_call_is_not_judged(store: Store) -> None:
    store.add(entry())
    store.settle(claim())
    assert store.next_due() is None
    assert not store.judge(NOW + 1000)


def test_hastening_brings_the_deadlines_of_a_turn_forward_and_never_back(store: Store) -> None:
    store.add(entry("a", turn="hastened"))
    store.add(entry("b", turn="hastened", deadline=1))
    store.add(entry("c", turn="other"))
    store.hasten("hastened", LostReason.SIBLINGS_ANSWERED, NOW + 2)
    store.hasten("hastened", LostReason.TURN_ANSWERED_WITHOUT, NOW + 50)
    assert {one.call_id: one.due_at - NOW for one in store.pending()} == {"a": 2, "b": 1, "c": 300}
    judged = {one.entry.call_id: one.reason for one in store.judge(NOW + 60)}
    assert judged == {"a": LostReason.SIBLINGS_ANSWERED, "b": LostReason.DEADLINE}


def test_calls_of_a_dropped_turn_are_followed_no_longer(store: Store) -> None:
    store.add(entry("a", turn="dropped"))
    store.add(entry("b", turn="dropped"))
    store.add(entry("c", turn="other"))
    store.settle(claim("b"))
    assert [one.call_id for one in store.drop("dropped")] == ["a"]
    assert not store.drop("dropped")
    assert [one.call_id for one in store.pending()] == ["c"]
    late = store.settle(claim("a"))
    assert late is not None
    assert not late.first


def test_the_turn_of_an_id_is_that_of_its_newest_call_in_that_trace_first(store: Store) -> None:
    store.add(entry(turn="here", trace=1))
    store.add(entry(turn="elsewhere", trace=2))
    assert store.turn_of("a", 1) == "here"
    assert store.turn_of("a", 9) == "elsewhere"
    assert store.turn_of("a", 0) == "elsewhere"
    assert store.turn_of("b", 1) is None
    store.drop("here")
    assert store.turn_of("a", 1) == "elsewhere"


def test_what_waits_is_listed_oldest_first(store: Store) -> None:
    for number in range(30):
        store.add(entry(f"call-{number}", deadline=1000 - number))
    store.settle(claim("call-7"))
    assert [one.call_id for one in store.pending()] == [f"call-{n}" for n in range(30) if n != 7]


def test_no_argument_can_be_given_to_a_store() -> None:
    assert {"arguments", "result", "text"}.isdisjoint(entry().__slots__)


def test_at_the_end_of_the_process_a_call_left_behind_is_lost_for_that() -> None:
    store = MemoryStore()
    store.add(entry("left", turn="turn 1"))
    store.add(entry("waiting", turn="turn 2"))
    store.hasten("turn 1", LostReason.SIBLINGS_ANSWERED, NOW + 10)
    assert {judged.entry.call_id: judged.reason for judged in store.close(NOW + 5)} == {
        "left": LostReason.SIBLINGS_ANSWERED,
        "waiting": LostReason.SHUTDOWN,
    }
