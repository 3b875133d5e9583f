"""What a request's history says of the calls in it, as each wire reads it and the ledger takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import otel_toolcalls
from otel_toolcalls import conventions as c
from otel_toolcalls import instrumentor
from otel_toolcalls.runtime import Runtime
from otel_toolcalls.turn import Request
from otel_toolcalls.wire import ReadRequest, anthropic_messages, openai_chat, openai_responses
from tests.support.account import Account


@dataclass(frozen=True)
class Protocol:
    """How a history is written down, part by part."""

    read: ReadRequest
    field: str
    asked: Callable[[str], list[Any]]
    called: Callable[..., list[Any]]
    answered: Callable[..., list[Any]]

    def body(self, *parts: list[Any]) -> dict[str, Any]:
        return {"model": "a-model", self.field: [item for part in parts for item in part]}


PROTOCOLS = {
    "anthropic": Protocol(
        anthropic_messages.read_request,
        "messages",
        lambda text: [{"role": "user", "content": text}],
        lambda *ids: [
            {"role": "assistant", "content": [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ids]}
        ],
        lambda *ids: [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": one} for one in ids]}],
    ),
    "chat": Protocol(
        openai_chat.read_request,
        "messages",
        lambda text: [{"role": "user", "content": text}],
        lambda *ids: [
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids
                ],
            }
        ],
        lambda *ids: [{"role": "tool", "tool_call_id": one, "content": ""} for one in ids],
    ),
    "responses": Protocol(
        openai_responses.read_request,
        "input",
        lambda text: [{"role": "user", "content": text}],
        lambda *ids: [{"type": "function_call", "call_id": one, "name": "f", "arguments": "{}"} for one in ids],
        lambda *ids: [{"type": "function_call_output", "call_id": one, "output": ""} for one in ids],
    ),
}


@pytest.fixture(params=PROTOCOLS)
def wire(request: pytest.FixtureRequest) -> Protocol:
    return PROTOCOLS[request.param]


@pytest.fixture
def runtime(account: Account) -> Runtime:
    assert instrumentor._current is not None
    return instrumentor._current.runtime


def turn(runtime: Runtime, request: Request, *call_ids: str) -> None:
    """A request, and its reply with these calls."""
    runtime.request(request)
    reply = runtime.begin(request)
    for position, call_id in enumerate(call_ids):
        reply.announce(position, call_id, "f")
        reply.close(position, "{}")
    reply.finish("tool_use")
    runtime.end(reply, c.ErrorType.STREAM_ENDED)


def asking(wire: Protocol, *parts: list[Any]) -> Request:
    read = wire.read(wire.body(*parts))
    return Request("provider", read.model, results=read.results, carried=read.carried)


def waiting() -> list[str | None]:
    return [entry.call_id for entry in otel_toolcalls.pending()]


def test_a_call_of_the_last_reply_is_left_behind_also_where_those_before_it_were_answered(
    account: Account, runtime: Runtime, wire: Protocol
) -> None:
    history = [wire.asked("Well?")]
    turn(runtime, asking(wire, *history), "call_a")
    history += [wire.called("call_a"), wire.answered("call_a")]
    turn(runtime, asking(wire, *history), "call_b", "call_c")
    history += [wire.called("call_b", "call_c"), wire.asked("Never mind.")]
    turn(runtime, asking(wire, *history))
    account.wait_for(lambda: len(account.lost) > 1)
    assert account.lost == [("call_b", "turn_answered_without"), ("call_c", "turn_answered_without")]
    assert account.total(c.SETTLED_CALLS, by="answer") == 1


def test_a_call_that_is_answered_in_a_later_request_only_is_not_left_behind_by_it(
    account: Account, runtime: Runtime, wire: Protocol
) -> None:
    history = [wire.asked("Well?")]
    turn(runtime, asking(wire, *history), "call_a")
    history += [wire.called("call_a"), wire.answered("call_a")]
    turn(runtime, asking(wire, *history), "call_b")
    history += [wire.called("call_b"), wire.answered("call_b")]
    turn(runtime, asking(wire, *history))
    assert (account.lost, waiting()) == ([], [])
    assert account.total(c.SETTLED_CALLS, by="answer") == 2


def test_of_the_calls_of_the_last_reply_that_are_answered_in_part_the_rest_is_behind_its_siblings(
    account: Account, runtime: Runtime, wire: Protocol
) -> None:
    history = [wire.asked("Well?")]
    turn(runtime, asking(wire, *history), "call_a")
    history += [wire.called("call_a"), wire.answered("call_a")]
    turn(runtime, asking(wire, *history), "call_b", "call_c")
    history += [wire.called("call_b", "call_c"), wire.answered("call_c")]
    turn(runtime, asking(wire, *history))
    account.wait_for(lambda: account.lost)
    assert account.lost == [("call_b", "siblings_answered")]


def test_a_result_that_only_the_history_tells_of_answers_its_call_and_leaves_the_one_after_it_behind(
    account: Account, runtime: Runtime
) -> None:
    wire = PROTOCOLS["responses"]  # the only one that reads results before the last reply
    turn(runtime, asking(wire, wire.asked("Well?")), "call_a")
    turn(runtime, asking(wire, wire.asked("And?")), "call_b")
    turn(runtime, asking(wire, wire.called("call_a"), wire.answered("call_a"), wire.called("call_b")))
    account.wait_for(lambda: account.lost)
    assert account.lost == [("call_b", "turn_answered_without")]
    assert account.total(c.SETTLED_CALLS, by="answer") == 1
