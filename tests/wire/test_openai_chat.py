"""Chat completions: one case for each way in which servers that say they speak it do not."""

from __future__ import annotations

from typing import Any

import pytest

from otel_toolcalls.wire.openai_chat import OpenAIChat, read_request
from tests.wire.heard import FORMS, agrees, cases, play

CASES = cases("openai_chat")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_quirk(case: dict[str, Any], form: str) -> None:
    chunks = [
        {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choices} for choices in case["choices"]
    ]
    heard, turn = play(OpenAIChat, map(FORMS[form], chunks))
    agrees(heard, case["calls"])
    assert heard.violations == case["violations"]
    assert turn.response_id == "c"


def test_a_gateway_error_without_choices_fails_the_turn() -> None:
    _, turn = play(OpenAIChat, [{"object": "error", "message": "overloaded", "choices": None}])
    assert turn.error_type == "response_failed"


def test_results_are_those_after_the_last_reply() -> None:
    call = {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = read_request(
        {
            "model": "m",
            "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "g"}}],
            "functions": [{"name": "h"}],
            "messages": [
                {"role": "assistant", "tool_calls": [{**call, "id": "1"}]},
                {"role": "tool", "tool_call_id": "1", "content": "x"},
                {"role": "assistant", "tool_calls": [call, {**call, "id": "3"}]},
                {"role": "tool", "tool_call_id": "2", "content": "x"},
                {"role": "user", "content": "and?"},
            ],
        }
    )
    assert body.model == "m"
    assert body.tools == {"f", "g", "h"}
    assert [result.call_id for result in body.results] == ["2"]
    assert body.carried == ("2", "3")


@pytest.mark.parametrize("messages", [None, (message for message in [{"role": "tool"}]), "text", []])
def test_messages_that_are_no_list_are_left_alone(messages: Any) -> None:
    assert read_request({"messages": messages}).results == ()
