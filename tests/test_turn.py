"""The verdict on each call of a turn, by table and by arbitrary streams against a second writing of the rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_toolcalls.accumulator import ProtocolError, freeform_text, json_text
from otel_toolcalls.conventions import FINISH_LIMITS, Violation
from otel_toolcalls.turn import Call, Replays, Request, Turn

WHOLE = '{"a": 1}'
PART = '{"a": '


class Heard:
    """Each fact that an observer was told."""

    def __init__(self) -> None:
        self.announced_calls: list[Call] = []
        self.finished_calls: list[Call] = []
        self.texts: list[str | None] = []
        self.violations: list[tuple[Violation, Any, bool]] = []
        self.turns: list[Turn] = []

    def announced(self, call: Call) -> None:
        self.announced_calls.append(call)

    def renamed(self, call: Call) -> None:
        """Of no account here."""

    def finished(self, call: Call) -> None:
        self.finished_calls.append(call)
        self.texts.append(call.text)

    def violated(self, turn: Turn, error: ProtocolError, shown: bool) -> None:
        self.violations.append((error.kind, error.position, shown))

    def ended(self, turn: Turn) -> None:
        self.turns.append(turn)

    @property
    def outcomes(self) -> list[tuple[str, str | None]]:
        calls = sorted(self.finished_calls, key=lambda call: call.ordinal)
        return [(call.outcome.value if call.outcome else "", call.error_type) for call in calls]


def turn_of(heard: Heard, **how: Any) -> Turn:
    return Turn(Request("provider"), (heard,), **how)


# ---- the table ------------------------------------------------------------------------------------------------------

LIMIT = sorted(FINISH_LIMITS.items())


@pytest.mark.parametrize(("reason", "error_type"), LIMIT, ids=[reason for reason, _ in LIMIT])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(WHOLE, "completed"), (PART, "truncated"), ("", "truncated"), (" ", "truncated"), (WHOLE + WHOLE, "truncated")],
    ids=["whole", "cut", "empty", "blank", "merged"],
)
def test_of_a_reply_that_a_limit_cut_the_last_call_is_truncated_unless_it_is_whole(
    reason: str, error_type: str, closed: bool, arguments: str, expected: str
) -> None:
    heard = Heard()
    turn = turn_of(heard)
    turn.announce(0, "a", "tool")
    turn.append(0, arguments)
    if closed:
        turn.close(0)
    turn.finish(reason)
    turn.end("stream_ended")
    assert heard.outcomes == [(expected, None if expected == "completed" else error_type)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (WHOLE, ("completed", None)),
        ("", ("completed", None)),
        (PART, ("invalid", "invalid_arguments")),
        (WHOLE + WHOLE, ("invalid", "invalid_arguments")),
    ],
)
def test_an_earlier_call_of_a_cut_reply_is_judged_by_its_own_arguments(
    arguments: str, expected: tuple[str, str | None]
) -> None:
    heard = Heard()
    turn = turn_of(heard)
    turn.announce(0, "a", "tool")
    turn.append(0, arguments)
    turn.close(0)
    turn.announce(1, "b", "tool")
    turn.append(1, PART)
    turn.close(1)
    turn.finish("max_tokens")
    turn.end("stream_ended")
    assert heard.outcomes == [expected, ("truncated", "length")]


def test_the_choices_of_a_reply_are_cut_apart() -> None:
    heard = Heard()
    turn = turn_of(heard)
    for choice in (0, 1):
        turn.announce((choice, 0), str(choice), "tool", choice=choice)
        turn.append((choice, 0), PART)
    turn.finish("length", 1)
    turn.append((0, 0), "1}")
    turn.close((0, 0))
    turn.finish("tool_calls", 0)
    turn.end("stream_ended")
    assert heard.outcomes == [("completed", None), ("truncated", "length")]


def test_a_verdict_waits_for_the_finish_and_the_end_time_does_not() -> None:
    heard = Heard()
    turn = turn_of(heard)
    turn.announce(0, "a", "tool")
    turn.seen_ns += 10
    turn.close(0)
    closed = turn.seen_ns
    assert heard.finished_calls == [], "an empty call may have been cut off"
    turn.seen_ns += 10
    turn.finish("tool_use")
    assert heard.outcomes == [("completed", None)]
    assert heard.finished_calls[0].finished_ns == closed


def test_text_that_was_never_meant_to_be_json_is_not_parsed() -> None:
    heard = Heard()
    turn = turn_of(heard)
    turn.announce(0, "a", "tool", assemble=freeform_text)
    turn.append(0, "print(")
    turn.close(0)
    turn.end("stream_ended")
    assert heard.outcomes == [("completed", None)]


def test_a_second_announcement_at_a_live_position_fails_both() -> None:
    heard = Heard()
    turn = turn_of(heard)
    turn.announce(0, "a", "tool")
    turn.append(0, PART)
    assert turn.announce(0, "b", "tool") is None
    turn.append(0, "1}")
    turn.close(0)
    turn.end("stream_ended")
    assert heard.outcomes == [("invalid", "protocol_violation")] * 2
    assert heard.violations == [(Violation.DUPLICATE_ANNOUNCEMENT, 0, True)]


def test_an_event_for_a_call_never_announced_is_told_once_per_position() -> None:
    heard = Heard()
    turn = turn_of(heard)
    for _ in range(3):
        turn.append(4, "x")
        turn.close(5)
    turn.end("stream_ended")
    assert heard.violations == [(Violation.FRAGMENT_UNANNOUNCED, 4, False), (Violation.CLOSE_UNANNOUNCED, 5, False)]


def test_violations_are_raised_where_that_is_asked_for() -> None:
    turn = turn_of(Heard(), raise_violations=True)
    with pytest.raises(ProtocolError, match=r"fragment unannounced at position 4, which is unknown"):
        turn.append(4, "x")


def test_nothing_is_a_violation_once_the_turn_is_over() -> None:
    heard = Heard()
    turn = turn_of(heard, raise_violations=True)
    turn.announce(0, "a", "tool")
    turn.end("process_exit")
    turn.append(0, "x")
    turn.close(0)
    assert turn.announce(1, "b", "tool") is None
    turn.append(1, "x")
    assert heard.violations == []
    assert heard.outcomes == [("abandoned", "process_exit")]


def test_only_the_first_end_counts() -> None:
    heard = Heard()
    turn = turn_of(heard)
    turn.announce(0, "a", "tool")
    turn.end("closed_early")
    turn.end("garbage_collected")
    assert heard.outcomes == [("abandoned", "closed_early")]
    assert len(heard.turns) == 1


def test_a_late_end_has_the_time_of_the_last_event() -> None:
    turn = turn_of(Heard())
    last = turn.seen_ns
    turn.end("garbage_collected", late=True)
    assert turn.ended_ns == last


def test_a_disowned_turn_tells_nothing_more() -> None:
    heard = Heard()
    turn = turn_of(heard)
    turn.announce(0, "a", "tool")
    turn.disown()
    turn.close(0)
    turn.end("closed_early")
    assert heard.finished_calls == []
    assert heard.turns == []


def test_the_text_of_arguments_is_held_while_it_is_told_and_not_after() -> None:
    heard = Heard()
    turn = turn_of(heard)
    turn.announce(0, "a", "tool")
    turn.append(0, WHOLE)
    turn.close(0)
    assert heard.texts == [WHOLE]
    assert heard.finished_calls[0].text is None
    assert heard.finished_calls[0].arguments is None


def test_an_observer_that_raises_costs_nobody_else_anything() -> None:
    class Broken(Heard):
        def announced(self, call: Call) -> None:
            raise RuntimeError("broken")

        finished = ended = announced  # type: ignore[assignment]

    heard = Heard()
    turn = Turn(Request("provider"), (Broken(), heard))
    turn.announce(0, "a", "tool")
    turn.append(0, WHOLE)
    turn.close(0)
    turn.end("stream_ended")
    assert heard.outcomes == [("completed", None)]
    assert len(heard.turns) == 1


def test_replays_are_forgotten_oldest_first() -> None:
    replays = Replays(limit=2)
    for number in range(3):
        replays.completed("response", str(number))
    assert [("response", str(number)) in replays for number in range(3)] == [False, True, True]


# ---- arbitrary streams ----------------------------------------------------------------------------------------------

PIECES = st.sampled_from(["", WHOLE, PART, "1}", " ", "é"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("announce"), st.integers(0, 3), st.integers(0, 1), st.sampled_from(["a", "b", None])),
        st.tuples(st.just("append"), st.integers(0, 3), PIECES),
        st.tuples(st.just("close"), st.integers(0, 3)),
        st.tuples(st.just("finish"), st.sampled_from(["tool_use", "length", "stop"]), st.integers(0, 1)),
        st.tuples(st.just("give up"), st.integers(0, 3)),
        st.tuples(st.just("fail")),
        st.tuples(st.just("time")),
    ),
    max_size=40,
)


def play(turn: Turn, steps: list[tuple[Any, ...]]) -> None:
    for step in steps:
        if step[0] == "announce":
            turn.announce(step[1], step[3], "tool", choice=step[2])
        elif step[0] == "append":
            turn.append(step[1], step[2])
        elif step[0] == "close":
            turn.close(step[1])
        elif step[0] == "finish":
            turn.finish(step[1], step[2])
        elif step[0] == "give up":
            turn.give_up(step[1], "response_failed")
        elif step[0] == "fail":
            turn.fail("response_failed")
        else:
            turn.seen_ns += 5


@given(STEPS, st.booleans())
def test_every_announced_call_finishes_once_whatever_comes(steps: list[tuple[Any, ...]], late: bool) -> None:
    heard = Heard()
    turn = turn_of(heard)
    play(turn, steps)
    turn.end("stream_ended", late=late)
    assert [id(call) for call in sorted(heard.finished_calls, key=lambda call: call.ordinal)] == [
        id(call) for call in heard.announced_calls
    ]
    assert [call.ordinal for call in heard.announced_calls] == list(range(turn.announced))
    assert turn.announced == turn.completed + turn.failed
    assert turn.completed == sum(outcome == "completed" for outcome, _ in heard.outcomes)
    assert len(heard.turns) == 1
    assert turn.calls == {}
    assert turn.accumulator.open == {}
    for call in heard.finished_calls:
        assert (call.error_type is None) is (call.outcome is not None and call.outcome.value == "completed")
        assert call.announced_ns <= call.finished_ns <= turn.ended_ns
    assert len({(kind, position) for kind, position, _ in heard.violations}) == len(heard.violations)


WELL_FORMED = st.lists(st.tuples(st.lists(PIECES, max_size=4), st.booleans()), min_size=1, max_size=5)


@given(
    WELL_FORMED,
    st.sampled_from(["tool_use", "length", None]),
    st.integers(0, 60),
    st.sampled_from(["closed_early", "garbage_collected"]),
)
def test_a_stream_cut_anywhere_is_judged_by_the_rules(
    calls: list[tuple[list[str], bool]], reason: str | None, cut: int, error_type: str
) -> None:
    """Calls one after another, some without their end marker; then perhaps a finish; then the app leaves."""
    steps: list[tuple[Any, ...]] = []
    for position, (pieces, closed) in enumerate(calls):
        steps.append(("announce", position, 0, str(position)))
        steps += [("append", position, piece) for piece in pieces]
        steps += [("close", position)] if closed else []
    steps += [("finish", reason, 0)] if reason else []
    steps = steps[:cut]
    heard = Heard()
    turn = turn_of(heard)
    play(turn, steps)
    turn.end(error_type)

    announced = [step[1] for step in steps if step[0] == "announce"]
    finish = steps[-1][1] if steps and steps[-1][0] == "finish" else None
    expected: list[tuple[str, str | None]] = []
    for position in announced:
        text = "".join(step[2] for step in steps if step[0] == "append" and step[1] == position)
        closed = ("close", position) in steps
        valid = json_text([text]).valid
        if finish == "length" and position == announced[-1]:
            whole = valid and bool(text.strip())
            expected.append(("completed", None) if whole else ("truncated", "length"))
        elif not closed:
            expected.append(("abandoned", error_type))
        else:
            expected.append(("completed", None) if valid else ("invalid", "invalid_arguments"))
    assert heard.outcomes == expected
