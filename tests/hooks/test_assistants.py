"""OpenAI's assistants: every way to start a run, to read it and to give it the outputs that it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import otel_toolcalls
from otel_toolcalls.cli.model_server import ModelServer
from tests.hooks.apis import CHAT
from tests.hooks.server import load, sse
from tests.support.account import Account

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ASKED = load("assistants")
ANSWERED = load("assistants_answer")
DONE = b"event: done\ndata: [DONE]\n\n"
OUTPUTS = [{"tool_call_id": "call_1", "output": "none"}, {"tool_call_id": "call_2", "output": "none"}]
STARTS = {
    "create": ("runs", "create", {"thread_id": "thread_1", "stream": True}),
    "stream": ("runs", "stream", {"thread_id": "thread_1"}),
    "create_and_stream": ("runs", "create_and_stream", {"thread_id": "thread_1"}),
    "create_and_run": ("", "create_and_run", {"stream": True}),
    "create_and_run_stream": ("", "create_and_run_stream", {}),
}
"""Name → resource below ``beta.threads``, method, arguments."""
RUN = {"thread_id": "thread_1", "run_id": "run_1"}


def plays(server: ModelServer, events: list[Any]) -> None:
    server.reply(b"".join(map(sse, events)) + DONE, content_type="text/event-stream")


def run_of(events: list[Any]) -> Any:
    """The run as the last event of a stream shows it."""
    return events[-1]["data"]


@pytest.fixture
def threads(model_server: ModelServer) -> Iterator[Any]:
    with CHAT.client(model_server.url) as client:
        yield client.beta.threads


def asks(account: Account, fragments: int) -> None:
    """The two calls were announced, once each, and wait."""
    announced = account.of("announce_tool")
    assert [call.attributes["gen_ai.tool.call.id"] for call in announced] == ["call_1", "call_2"]
    assert {call.attributes["gen_ai.tool.name"] for call in announced} == {"search_orders"}
    assert {call.attributes["otel_toolcalls.call.outcome"] for call in announced} == {"completed"}
    assert {call.attributes["otel_toolcalls.call.arguments.fragments"] for call in announced} == {fragments}
    assert [entry.call_id for entry in otel_toolcalls.pending()] == ["call_1", "call_2"]


def settled(account: Account) -> None:
    """Both were answered, and the traces say so."""
    assert otel_toolcalls.pending() == []
    assert account.total("otel_toolcalls.settled.calls", by="answer") == 2
    assert account.lost == []
    answers = [turn.attributes.get("otel_toolcalls.turn.answered") for turn in account.of("chat")]
    assert sorted(answers, key=str) == [2, None], "in order of their ends: one may be inside the other"
    assert len(account.of("announce_tool")) == 2


def start(threads: Any, way: str, **more: Any) -> Any:
    resource, method, arguments = STARTS[way]
    found = getattr(getattr(threads, resource) if resource else threads, method, None)
    if found is None:
        pytest.skip(f"this openai has no {method}")
    return found(assistant_id="asst_1", **arguments, **more)


@pytest.mark.parametrize("way", STARTS)
def test_a_run_is_read_and_gets_its_outputs(
    way: str, threads: Any, model_server: ModelServer, account: Account
) -> None:
    plays(model_server, ASKED)
    with start(threads, way) as stream:
        seen = [event.event for event in stream]
    assert seen == [event["event"] for event in ASKED]
    asks(account, 2)
    plays(model_server, ANSWERED)
    if "stream" in way:
        with threads.runs.submit_tool_outputs_stream(**RUN, tool_outputs=OUTPUTS) as answer:
            answer.until_done()
    else:
        for _ in threads.runs.submit_tool_outputs(**RUN, tool_outputs=OUTPUTS, stream=True):
            pass
    settled(account)


@pytest.mark.parametrize("way", STARTS)
async def test_an_async_run_is_read_and_gets_its_outputs(way: str, model_server: ModelServer, account: Account) -> None:
    async with CHAT.async_client(model_server.url) as client:
        plays(model_server, ASKED)
        started = start(client.beta.threads, way)
        async with started if "stream" in way else await started as stream:
            seen = [event.event async for event in stream]
        assert seen == [event["event"] for event in ASKED]
        asks(account, 2)
        plays(model_server, ANSWERED)
        runs = client.beta.threads.runs
        if "stream" in way:
            async with runs.submit_tool_outputs_stream(**RUN, tool_outputs=OUTPUTS) as answer:
                await answer.until_done()
        else:
            async for _ in await runs.submit_tool_outputs(**RUN, tool_outputs=OUTPUTS, stream=True):
                pass
    settled(account)


def heard(base: type[Any]) -> type[Any]:
    """A handler of the app that keeps the names of what it hears."""

    class Handler(base):
        def __init__(self) -> None:
            super().__init__()
            self.heard: list[str] = []

        if base.__name__.startswith("Async"):

            async def on_event(self, event: Any) -> None:
                self.heard.append(event.event)

            async def on_tool_call_done(self, tool_call: Any) -> None:
                self.heard.append(tool_call.id)

        else:

            def on_event(self, event: Any) -> None:
                self.heard.append(event.event)

            def on_tool_call_done(self, tool_call: Any) -> None:
                self.heard.append(tool_call.id)

    return Handler


def test_an_event_handler_that_answers_inside_the_run_hears_what_it_heard_before(
    threads: Any, model_server: ModelServer, account: Account
) -> None:
    base: Any = openai.AssistantEventHandler

    class Answering(heard(base)):  # type: ignore[misc]
        def on_event(self, event: Any) -> None:
            super().on_event(event)
            if event.event == "thread.run.requires_action":
                asks(account, 2)
                nested = heard(base)()
                submit = threads.runs.submit_tool_outputs_stream
                with submit(**RUN, tool_outputs=OUTPUTS, event_handler=nested) as answer:
                    assert "".join(answer.text_deltas) == "None found."
                assert nested.heard == [event["event"] for event in ANSWERED]

    plays(model_server, ASKED)
    plays(model_server, ANSWERED)
    handler = Answering()
    with start(threads, "stream", event_handler=handler) as stream:
        stream.until_done()
        assert stream.get_final_run().status == "requires_action"
    assert handler.heard[:-1] == [event["event"] for event in ASKED[:7]] + ["call_1"] + [
        event["event"] for event in ASKED[7:]
    ]
    settled(account)


async def test_an_async_event_handler_that_answers_inside_the_run_hears_what_it_heard_before(
    model_server: ModelServer, account: Account
) -> None:
    base: Any = openai.AsyncAssistantEventHandler
    plays(model_server, ASKED)
    plays(model_server, ANSWERED)
    async with CHAT.async_client(model_server.url) as client:
        runs = client.beta.threads.runs

        class Answering(heard(base)):  # type: ignore[misc]
            async def on_event(self, event: Any) -> None:
                await super().on_event(event)
                if event.event == "thread.run.requires_action":
                    asks(account, 2)
                    nested = heard(base)()
                    submit = runs.submit_tool_outputs_stream
                    async with submit(**RUN, tool_outputs=OUTPUTS, event_handler=nested) as answer:
                        assert "".join([text async for text in answer.text_deltas]) == "None found."
                    assert nested.heard == [event["event"] for event in ANSWERED]

        handler = Answering()
        async with start(client.beta.threads, "stream", event_handler=handler) as stream:
            await stream.until_done()
            assert (await stream.get_final_run()).status == "requires_action"
    assert handler.heard[:-1] == [event["event"] for event in ASKED[:7]] + ["call_1"] + [
        event["event"] for event in ASKED[7:]
    ]
    settled(account)


def test_a_run_that_is_polled_asks_once_and_is_answered(
    threads: Any, model_server: ModelServer, account: Account
) -> None:
    queued = {**run_of(ANSWERED), "status": "queued"}
    for run in (queued, {**queued, "status": "in_progress"}, run_of(ASKED), run_of(ASKED)):
        model_server.reply(run)
    run = threads.runs.create_and_poll(thread_id="thread_1", assistant_id="asst_1", poll_interval_ms=1)
    assert run.status == "requires_action"
    threads.runs.retrieve("run_1", thread_id="thread_1")
    asks(account, 0)
    (turn,) = account.of("chat")
    assert {call.parent.span_id for call in account.of("announce_tool")} == {turn.context.span_id}
    for run in (queued, {**queued, "status": "in_progress"}, run_of(ANSWERED)):
        model_server.reply(run)
    threads.runs.submit_tool_outputs_and_poll(**RUN, tool_outputs=OUTPUTS, poll_interval_ms=1)
    assert otel_toolcalls.pending() == []
    assert account.total("otel_toolcalls.settled.calls", by="answer") == 2
    assert len(account.of("announce_tool")) == 2


async def test_an_async_run_that_is_polled_asks_once_and_is_answered(
    model_server: ModelServer, account: Account
) -> None:
    queued = {**run_of(ANSWERED), "status": "queued"}
    for run in (queued, run_of(ASKED), queued, run_of(ANSWERED)):
        model_server.reply(run)
    async with CHAT.async_client(model_server.url) as client:
        threads = client.beta.threads
        await threads.create_and_run_poll(assistant_id="asst_1", poll_interval_ms=1)
        asks(account, 0)
        await threads.runs.submit_tool_outputs_and_poll(**RUN, tool_outputs=OUTPUTS, poll_interval_ms=1)
    assert otel_toolcalls.pending() == []
    assert account.total("otel_toolcalls.settled.calls", by="answer") == 2


def test_a_run_that_was_streamed_and_is_looked_at_again_asks_once(
    threads: Any, model_server: ModelServer, account: Account
) -> None:
    plays(model_server, ASKED)
    with start(threads, "stream") as stream:
        stream.until_done()
    model_server.reply(run_of(ASKED))
    assert threads.runs.retrieve("run_1", thread_id="thread_1").status == "requires_action"
    asks(account, 2)
    assert len(account.of("chat")) == 1


def test_an_output_that_is_missing_leaves_its_call_lost(
    threads: Any, model_server: ModelServer, account: Account
) -> None:
    plays(model_server, ASKED)
    with start(threads, "stream") as stream:
        stream.until_done()
    plays(model_server, ANSWERED)
    with threads.runs.submit_tool_outputs_stream(**RUN, tool_outputs=OUTPUTS[:1]) as answer:
        answer.until_done()
    account.wait_for(lambda: account.lost)
    assert account.lost == [("call_2", "siblings_answered")]
