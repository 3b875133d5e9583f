"""Fields of events that may lack, null or garble anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from otel_toolcalls.wire.reading import as_json, clean, field, items, names, since_last_reply


@pytest.mark.parametrize(
    ("sent", "read"),
    [("a", "a"), ("é", "é"), ("", None), ("null", None), (None, None), (3, None), ("a\ud800", "a?"), ("😀", "😀")],
)
def test_an_id_or_name_is_text_that_can_be_exported_or_absent(sent: object, read: str | None) -> None:
    assert clean(sent) == read


@pytest.mark.parametrize("holder", [{"a": 1}, SimpleNamespace(a=1)], ids=["mapping", "object"])
def test_a_field_is_read_of_mappings_and_objects(holder: Any) -> None:
    assert (field(holder, "a"), field(holder, "b"), field(None, "a")) == (1, None, None)


def test_a_one_shot_iterable_is_never_consumed() -> None:
    once = iter([1, 2])
    assert items(once) == ()
    assert list(once) == [1, 2]


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), ("x", "x"), ({"a": "é"}, '{"a": "é"}'), ([object], f'["{object}"]')]
)
def test_a_whole_value_becomes_text(value: Any, text: str) -> None:
    assert as_json(value) == text


def test_tool_names_are_read_in_each_shape() -> None:
    tools = [{"name": "a"}, {"function": {"name": "b"}}, {"custom": {"name": "c"}}, {"type": "d"}, {}, "e"]
    assert names(tools) == {"a", "b", "c", "d"}


def test_what_came_since_the_last_reply_is_in_order() -> None:
    tail, reply = since_last_reply([1, "reply", 2, 3], lambda message: message == "reply")
    assert (tail, reply) == ([2, 3], "reply")
    assert since_last_reply([1], lambda message: False) == ([1], None)
