"""The accumulator against a brute-force model: a list of what happened, searched from its start each time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_toolcalls.accumulator import (
    Accumulator,
    Arguments,
    ProtocolError,
    freeform_text,
    json_text,
    whole_value,
)

POSITIONS = st.sampled_from([0, 1, 7, "a", (0, 1), None])
FRAGMENTS = st.text(alphabet='{}[]":,abc 01\\é\ud800', max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("announce"), POSITIONS),
        st.tuples(st.just("append"), POSITIONS, FRAGMENTS),
        st.tuples(st.just("close"), POSITIONS),
        st.tuples(st.just("give up"), POSITIONS),
    ),
    max_size=60,
)


class Model:
    """Everything that was accepted, in order; the state of a position is what a walk through it says."""

    def __init__(self) -> None:
        self.history: list[tuple[Any, ...]] = []

    def state(self, position: Any) -> str:
        state = "unknown"
        ends = {"close": "closed", "give up": "given up"}
        for step in self.history:
            if step[1] == position:
                state = "open" if step[0] == "announce" else ends.get(step[0], state)
        return state

    def fragments(self, position: Any) -> list[str]:
        found: list[str] = []
        for step in self.history:
            if step[1] == position:
                if step[0] == "announce":
                    found = []
                elif step[0] == "append":
                    found.append(step[2])
        return found

    def accepts(self, step: tuple[Any, ...]) -> bool:
        return (self.state(step[1]) == "open") is not (step[0] == "announce")


def take(accumulator: Accumulator, step: tuple[Any, ...]) -> Any:
    kind, position = step[:2]
    if kind == "announce":
        return accumulator.announce(position, "id", "name", freeform_text)
    if kind == "append":
        return accumulator.append(position, step[2])
    return accumulator.close(position) if kind == "close" else accumulator.give_up(position)


@given(STEPS)
def test_any_sequence_of_events_gives_what_a_walk_through_its_history_gives(steps: list[tuple[Any, ...]]) -> None:
    accumulator, model = Accumulator(), Model()
    closed, given_up = 0, 0
    for step in steps:
        kind, position = step[:2]
        accepted, before = model.accepts(step), model.state(position)
        if not accepted:
            with pytest.raises(ProtocolError) as raised:
                take(accumulator, step)
            assert raised.value.position == position
            assert str(raised.value).endswith(f"at position {position!r}, which is {raised.value.state}")
            assert model.state(position) == before
            continue
        taken = take(accumulator, step)
        if kind == "close":
            assert taken.text == "".join(model.fragments(position))
            closed += 1
        elif kind == "give up":
            assert taken.fragments == model.fragments(position)
            given_up += 1
        model.history.append(step)
        assert (accumulator.state(position) == "open") is (model.state(position) == "open")
    left = accumulator.finish()
    assert accumulator.open == {}
    assert accumulator.announced == closed + given_up + len(left)
    assert [buffer.fragments for buffer in left] == [model.fragments(buffer.position) for buffer in left]


@given(st.lists(FRAGMENTS), st.randoms())
def test_interleaving_changes_nothing(fragments: list[str], random: Any) -> None:
    """Each of three calls gets its fragments in order, however the three are dealt."""
    accumulator = Accumulator()
    for position in range(3):
        accumulator.announce(position, assemble=freeform_text)
    dealt = [position for position in range(3) for _ in fragments]
    random.shuffle(dealt)
    remaining = {position: iter(fragments) for position in range(3)}
    for position in dealt:
        accumulator.append(position, next(remaining[position]))
    assert [accumulator.close(position).text for position in range(3)] == ["".join(fragments)] * 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)


@given(JSON, st.booleans(), st.data())
def test_a_document_split_anywhere_is_whole_again(value: Any, escaped: bool, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert json_text(pieces) == Arguments(text, valid=True, values=1)


@given(st.text(alphabet='{}[]":,abc 01', max_size=12))
def test_arguments_are_valid_where_they_are_empty_or_one_document(text: str) -> None:
    try:
        json.loads(text)
        valid = True
    except ValueError:
        valid = not text.strip()
    assert json_text([text]).valid is valid


@pytest.mark.parametrize(
    ("text", "valid", "values"),
    [
        ("", True, 0),
        (" \n", True, 0),
        ("{}", True, 1),
        ('{"a": 1}{"a": 2}', False, 2),
        ('{"a": 1} {"a": 2} {"a"', False, 2),
        ('{"a"', False, 0),
        ("nonsense", False, 0),
        ("1" * 5000, True, 1),
        ("[" * 100_000, False, 0),
    ],
    ids=["empty", "blank", "object", "merged", "merged and cut", "cut", "nonsense", "long number", "deep"],
)
def test_arguments_that_do_not_parse_say_how_many_values_they_hold(text: str, valid: bool, values: int) -> None:
    arguments = json_text([text])
    assert (arguments.valid, arguments.values) == (valid, values)


@pytest.mark.parametrize(("sent", "counted"), [(2, 2), (99, 99), (300_000, 100)])
def test_merged_values_are_counted_up_to_a_hundred(sent: int, counted: int) -> None:
    assert json_text(["0 " * sent]).values == counted


@pytest.mark.parametrize(("text", "size"), [("abc", 3), ("é", 2), ("\ud800", 3), ("😀", 4)])
def test_size_is_in_bytes(text: str, size: int) -> None:
    assert freeform_text([text]).size == size


def test_a_whole_value_becomes_its_json() -> None:
    assert whole_value([{"city": "Zürich"}]).text == '{"city": "Zürich"}'
    assert whole_value([]).text == ""
