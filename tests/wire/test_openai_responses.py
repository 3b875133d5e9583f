"""Responses: each item type, resumed and replayed streams, and what contradicts the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from otel_toolcalls.turn import Replays, Request
from otel_toolcalls.wire.openai_responses import OpenAIResponses, read_request
from tests.wire.heard import FORMS, agrees, cases, play

CASES = cases("openai_responses")
BY_NAME = {case["case"]: case for case in CASES}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_case(case: dict[str, Any], form: str) -> None:
    request = Request("provider", resumes=case["resumes"])
    heard, turn = play(OpenAIResponses, map(FORMS[form], case["events"]), request=request)
    agrees(heard, case["calls"])
    assert heard.violations == case["violations"]
    assert turn.response_id == "resp_1"


def test_a_replay_of_what_is_known_whole_announces_nothing() -> None:
    events = BY_NAME["function_call in fragments"]["events"]
    replays = Replays()
    play(OpenAIResponses, events, replays=replays)
    heard, turn = play(OpenAIResponses, events, request=Request("provider", resumes="resp_1"), replays=replays)
    assert heard.calls == []
    assert heard.violations == []
    assert turn.announced == 0


def test_a_replay_of_what_was_cut_announces_it_again() -> None:
    events = BY_NAME["function_call in fragments"]["events"]
    replays = Replays()
    play(OpenAIResponses, events[:3], replays=replays)
    heard, _ = play(OpenAIResponses, events, request=Request("provider", resumes="resp_1"), replays=replays)
    assert [call["outcome"] for call in heard.shown] == ["completed"]


CALL = {"type": "function_call", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "output": "x"}
SAID = {"type": "message", "role": "assistant", "content": "x"}
ASKED = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("items", "results", "carried"),
    [
        ([ASKED], [], []),
        ([ASKED, {**CALL, "call_id": "1"}, {**RESULT, "call_id": "1"}], ["1"], ["1"]),
        ([{**RESULT, "call_id": "1"}], ["1"], []),
        ([{**CALL, "call_id": "1"}, {**CALL, "call_id": "2"}, {**RESULT, "call_id": "2"}], ["2"], ["1", "2"]),
        ([{**CALL, "call_id": "1"}, {**RESULT, "call_id": "1"}, ASKED], ["1"], ["1"]),
        ([SAID, {**CALL, "call_id": "1"}, {"type": "reasoning"}, {**RESULT, "call_id": "1"}], ["1"], ["1"]),
        ([{**CALL, "call_id": "1"}, {**RESULT, "call_id": "1"}, SAID, ASKED], [], []),
        (
            [
                {**CALL, "call_id": "1"},
                {**RESULT, "call_id": "1"},
                {**CALL, "call_id": "2"},
                {**RESULT, "call_id": "2"},
            ],
            ["1", "2"],
            ["1", "2"],
        ),
        ([{**CALL, "call_id": "1"}, ASKED], [], ["1"]),
    ],
    ids=[
        "a question",
        "a result",
        "a result alone",
        "one of two results",
        "a result and a question",
        "a result after reasoning",
        "a question after an answered round",
        "two rounds",
        "a call without its result",
    ],
)
def test_results_are_those_after_the_last_message_of_the_model(
    items: list[Any], results: list[str], carried: list[str]
) -> None:
    body = read_request({"input": items})
    assert [result.call_id for result in body.results] == results
    assert list(body.carried) == carried


@pytest.mark.parametrize(
    ("item", "call_id"),
    [
        ({"type": "custom_tool_call_output", "call_id": "1"}, "1"),
        ({"type": "computer_call_output", "call_id": "1"}, "1"),
        ({"type": "shell_call_output", "call_id": "1"}, "1"),
        ({"type": "apply_patch_call_output", "call_id": "1"}, "1"),
        ({"type": "local_shell_call_output", "id": "1"}, "1"),
        ({"type": "mcp_approval_response", "approval_request_id": "1"}, "1"),
        ({"type": "function_call_output", "name": "f"}, None),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_each_kind_of_result_names_its_call(item: dict[str, Any], call_id: str | None) -> None:
    assert [result.call_id for result in read_request({"input": [item]}).results] == [call_id]


def test_the_response_that_a_request_goes_on_from_is_read() -> None:
    body = read_request({"input": "and?", "previous_response_id": "resp_0", "model": "m"})
    assert (body.continues, body.model, body.results) == ("resp_0", "m", ())


@pytest.mark.parametrize("kind", [[], {}, None, 7])
def test_an_event_whose_type_is_no_text_says_nothing_of_a_call(kind: object) -> None:
    heard, turn = play(OpenAIResponses, [{"type": kind}])
    assert (turn.announced, heard.violations) == (0, [])
