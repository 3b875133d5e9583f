"""openai's Responses tool runner: every turn of its loop is observed, and every call that it runs is settled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import otel_toolcalls
from otel_toolcalls.cli.model_server import ModelServer
from tests.support.account import Account
from tests.support.replies import Announced, responses_reply

runners = pytest.importorskip("openai.lib.responses_tool_runner", reason="this openai has no tool runner")

openai = pytest.importorskip("openai")
TOOL = "search_orders"
CALLS = [Announced("call_1", TOOL, '{"status": "refunded"}'), Announced("call_2", TOOL, '{"status": "open"}')]
LATER = [Announced("call_3", TOOL, '{"status": "late"}')]
SCHEMA = {
    "type": "object",
    "properties": {"status": {"type": "string"}},
    "required": ["status"],
    "additionalProperties": False,
}
DECLARED = {"type": "function", "name": TOOL, "parameters": SCHEMA, "strict": True}


@dataclass
class Shop:
    """The app: one function, run by the SDK's runner."""

    asynchronous: bool
    stream: bool
    options: dict[str, Any] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    events: int = 0
    failing: bool = False

    def search_orders(self, arguments: dict[str, object]) -> str:
        if self.failing:
            raise LookupError("no such order")
        self.ran.append(str(arguments["status"]))
        return "none"

    async def search_orders_async(self, arguments: dict[str, object]) -> str:
        return self.search_orders(arguments)

    def heard(self, event: object) -> None:
        self.events += 1

    async def heard_async(self, event: object) -> None:
        self.events += 1

    def run(self, url: str, **more: Any) -> Any:
        request = {"model": "gpt", "input": "Show my orders."}
        options = {"max_steps": 5, "stream": self.stream, **self.options, **more}
        if self.stream:
            options["on_event"] = self.heard_async if self.asynchronous else self.heard
        client_options = {"api_key": "none", "base_url": f"{url}/v1", "max_retries": 0}
        if not self.asynchronous:
            function = runners.RegisteredFunction(DECLARED, self.search_orders, independent=True)
            with openai.OpenAI(**client_options) as client:
                return runners.ResponsesToolRunner(functions=[function]).run(client, request, **options)

        async def run() -> Any:
            function = runners.AsyncRegisteredFunction(DECLARED, self.search_orders_async, independent=True)
            async with openai.AsyncOpenAI(**client_options) as client:
                return await runners.AsyncResponsesToolRunner(functions=[function]).run(client, request, **options)

        return asyncio.run(run())


def plays(server: ModelServer, stream: bool, *turns: list[Announced]) -> int:
    """The model's replies; how many events they have."""
    events = 0
    for number, calls in enumerate(turns):
        reply = responses_reply(calls, "" if calls else "Done.", f"resp_{number}")
        events += reply.count("data: ")
        server.reply(reply if stream else whole(reply))
    return events


def whole(reply: str) -> Any:
    """The response that a stream ends with."""
    return json.loads(reply.rpartition("data: ")[2])["response"]


SHOPS: list[Callable[[], Shop]] = [
    lambda: Shop(False, False),
    lambda: Shop(False, True),
    lambda: Shop(False, True, {"eager": True}),
    lambda: Shop(True, False),
    lambda: Shop(True, True),
    lambda: Shop(True, True, {"eager": True}),
]
every_shop = pytest.mark.parametrize(
    "shop", SHOPS, ids=["whole", "streaming", "eager", "async whole", "async streaming", "async eager"]
)


@every_shop
def test_each_call_of_a_runner_is_announced_once_and_answered(
    shop: Callable[[], Shop], model_server: ModelServer, account: Account
) -> None:
    app = shop()
    events = plays(model_server, app.stream, CALLS, LATER, [])
    app.run(model_server.url)
    assert sorted(app.ran) == ["late", "open", "refunded"]
    announced = account.of("announce_tool")
    assert [call.attributes["gen_ai.tool.call.id"] for call in announced] == ["call_1", "call_2", "call_3"]
    assert {call.attributes["otel_toolcalls.call.outcome"] for call in announced} == {"completed"}
    fragments = [call.attributes["otel_toolcalls.call.arguments.fragments"] for call in announced]
    assert fragments == ([2, 2, 2] if app.stream else [0, 0, 0])
    if app.stream:
        assert app.events >= events, "the app heard them all, and we no more than once"
    assert [turn.attributes["otel_toolcalls.turn.announced"] for turn in account.of("chat")] == [2, 1, 0]
    assert [turn.attributes.get("otel_toolcalls.turn.answered") for turn in account.of("chat")] == [None, 2, 1]
    executed = account.of("execute_tool")
    assert sorted(span.attributes["gen_ai.tool.call.id"] for span in executed) == ["call_1", "call_2", "call_3"]
    assert {span.attributes["otel_toolcalls.dispatch.match"] for span in executed} == {"matched"}
    assert account.total("otel_toolcalls.settled.calls", by="dispatch") == 3
    assert otel_toolcalls.pending() == []
    assert account.lost == []


@every_shop
def test_a_call_whose_function_raises_was_run_and_is_not_lost(
    shop: Callable[[], Shop], model_server: ModelServer, account: Account
) -> None:
    app = shop()
    app.failing = True
    plays(model_server, app.stream, CALLS[:1])
    with pytest.raises(runners.ToolRunnerError):
        app.run(model_server.url)
    (executed,) = account.of("execute_tool")
    assert executed.attributes["error.type"] == "LookupError"
    assert otel_toolcalls.pending() == []
    assert account.lost == []


@every_shop
def test_calls_for_which_no_step_is_left_are_not_run_and_wait(
    shop: Callable[[], Shop], model_server: ModelServer, account: Account
) -> None:
    app = shop()
    plays(model_server, app.stream, CALLS)
    with pytest.raises(runners.ToolRunnerError):
        app.run(model_server.url, max_steps=1)
    assert app.ran == []
    assert account.of("execute_tool") == []
    # Eagerly it is told so at the first call, and reads on no further.
    complete = ["call_1"] if app.options else ["call_1", "call_2"]
    assert [entry.call_id for entry in otel_toolcalls.pending()] == complete


@every_shop
def test_a_function_that_dispatches_itself_is_one_execution(
    shop: Callable[[], Shop], model_server: ModelServer, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shop()
    plays(model_server, app.stream, LATER, [])
    search = app.search_orders

    def dispatching(arguments: dict[str, object]) -> str:
        with otel_toolcalls.dispatch("call_3", name=TOOL):
            return search(arguments)

    monkeypatch.setattr(app, "search_orders", dispatching)
    app.run(model_server.url)
    (executed,) = account.of("execute_tool")
    assert executed.attributes["otel_toolcalls.dispatch.match"] == "matched"
