"""Anthropic messages: blocks, server-run tools, limits, and what contradicts the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from otel_toolcalls.wire.anthropic_messages import AnthropicMessages, read_request
from tests.wire.heard import FORMS, agrees, cases, play

CASES = cases("anthropic_messages")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_case(case: dict[str, Any], form: str) -> None:
    heard, turn = play(AnthropicMessages, map(FORMS[form], case["events"]))
    agrees(heard, case["calls"])
    assert heard.violations == case["violations"]
    assert turn.response_id == "msg_1"


def test_a_reason_that_promises_a_call_is_noted_where_none_came() -> None:
    _, turn = play(AnthropicMessages, [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}])
    assert turn.anomalies == ["finish_without_call"]


def test_results_are_those_after_the_last_reply() -> None:
    use = {"type": "tool_use", "name": "f", "input": {}}
    body = read_request(
        {
            "model": "m",
            "tools": [{"name": "f"}, {"type": "web_search_20250305", "name": "web_search"}],
            "messages": [
                {"role": "assistant", "content": [{**use, "id": "1"}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]},
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "x"}, {**use, "id": "2"}, {**use, "id": "3"}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "3", "is_error": True}]},
                {"role": "user", "content": "and?"},
            ],
        }
    )
    assert body.tools == {"f", "web_search"}
    assert [(result.call_id, result.is_error) for result in body.results] == [("3", True)]
    assert body.carried == ("2", "3")


@pytest.mark.parametrize("kind", [[], {}, None, 7])
def test_an_event_whose_type_is_no_text_says_nothing_of_a_call(kind: object) -> None:
    heard, turn = play(AnthropicMessages, [{"type": kind}])
    assert (turn.announced, heard.violations) == (0, [])
