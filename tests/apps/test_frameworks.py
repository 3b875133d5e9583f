"""Agent frameworks as they are: a full run leaves nothing lost, a tool removed from the dispatch exactly one.

The real packages over a model server on loopback; nothing in the agents knows of this package. They are in the
dependency group `frameworks`: `make test-frameworks`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

import otel_toolcalls
from otel_toolcalls import conventions as c
from otel_toolcalls.cli.model_server import ModelServer
from tests.support.account import Account
from tests.support.replies import Announced, anthropic_reply, chat_reply, responses_reply

CALLS = [Announced("call_order", "get_order", '{"number": "4821"}'), Announced("call_name", "get_name", '{"id": "7"}')]
FINAL = "The order was shipped."
QUESTION = "Where is order 4821, and whose is it?"


def get_order(number: str) -> str:
    """Tell where an order is.

    Args:
        number: The order's number.
    """
    return f"order {number} was shipped"


def get_name(id: str) -> str:  # noqa: A002  # the model's word
    """Tell a customer's name.

    Args:
        id: The customer's id.
    """
    return f"customer {id} is Ines"


@pytest.fixture(autouse=True)
def _sdks(monkeypatch: pytest.MonkeyPatch, model_server: ModelServer) -> None:
    for name, value in {
        "ANTHROPIC_BASE_URL": model_server.url,
        "ANTHROPIC_API_KEY": "test",
        "OPENAI_BASE_URL": f"{model_server.url}/v1",
        "OPENAI_API_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)


# ---- the agents: each answers one question with two parallel calls; `drop` takes one of their results away ----------


def anthropic_runner(
    reply: Callable[..., str], *, eager: bool = False, drop: str | None = None, tracing: Any = None
) -> None:
    anthropic = pytest.importorskip("anthropic")
    if not hasattr(anthropic, "beta_tool"):
        pytest.skip("this anthropic has no tool runner")
    client = anthropic.Anthropic(**_traced(tracing))
    tools = [anthropic.beta_tool(get_order), anthropic.beta_tool(get_name)]
    runner = client.beta.messages.tool_runner(tools=tools, **_conversation(eager))
    for stream in runner:
        for _ in stream:
            pass
        if drop is not None:
            response = runner.generate_tool_call_response()
            if response is not None:
                said = {"role": "assistant", "content": stream.get_final_message().content}
                runner.append_messages(said, _without(response, drop))


def anthropic_async_runner(
    reply: Callable[..., str], *, eager: bool = False, drop: str | None = None, tracing: Any = None
) -> None:
    anthropic = pytest.importorskip("anthropic")
    if not hasattr(anthropic, "beta_async_tool"):
        pytest.skip("this anthropic has no tool runner")

    def coroutine_function(tool: Callable[..., str]) -> Callable[..., Any]:
        @functools.wraps(tool)
        async def run(*args: Any, **kwargs: Any) -> str:
            return tool(*args, **kwargs)

        return run

    async def run() -> None:
        tools = [anthropic.beta_async_tool(coroutine_function(tool)) for tool in (get_order, get_name)]
        async with anthropic.AsyncAnthropic(**_traced(tracing)) as client:
            runner = client.beta.messages.tool_runner(tools=tools, **_conversation(eager))
            async for stream in runner:
                async for _ in stream:
                    pass
                if drop is not None:
                    response = await runner.generate_tool_call_response()
                    if response is not None:
                        said = {"role": "assistant", "content": (await stream.get_final_message()).content}
                        runner.append_messages(said, _without(response, drop))

    asyncio.run(run())


def _traced(provider: Any) -> dict[str, Any]:
    return {} if provider is None else {"open_telemetry": {"tracer_provider": provider}}


def _conversation(eager: bool) -> dict[str, Any]:
    asked = {"max_tokens": 100, "model": "claude", "messages": [{"role": "user", "content": QUESTION}], "stream": True}
    return {**asked, **({"run_tools_eagerly": True} if eager else {})}


def _without(response: Any, drop: str) -> Any:
    return {**response, "content": [block for block in response["content"] if block["tool_use_id"] != drop]}


def openai_agents(reply: Callable[..., str], *, drop: str | None = None, traced: bool = False) -> None:
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(disabled=not traced)  # where nobody has taken them, its traces go to its maker
    tools = [agents.function_tool(get_order), agents.function_tool(get_name)]
    agent = agents.Agent(name="shop", model="gpt", tools=tools)

    def without(data: Any) -> Any:
        data.model_data.input = [
            item
            for item in data.model_data.input
            if not (isinstance(item, dict) and item.get("type") == "function_call_output" and item["call_id"] == drop)
        ]
        return data.model_data

    openai = pytest.importorskip("openai")
    agents.set_default_openai_client(openai.AsyncOpenAI(), use_for_tracing=False)  # the last one's loop is gone
    config = agents.RunConfig(call_model_input_filter=without if drop else None)

    async def run() -> None:
        result = agents.Runner.run_streamed(agent, QUESTION, run_config=config)
        async for _ in result.stream_events():
            pass

    asyncio.run(run())


def pydantic_ai(reply: Callable[..., str], *, drop: str | None = None, tracing: Any = None) -> None:
    ai = pytest.importorskip("pydantic_ai")
    messages = pytest.importorskip("pydantic_ai.messages")

    def without(history: list[Any]) -> list[Any]:
        # The call goes with its result: a call alone is given a result of its own ("interrupted"), and so answered.
        kinds = {"request": messages.ModelRequest, "response": messages.ModelResponse}
        return [
            kinds[message.kind]([part for part in message.parts if getattr(part, "tool_call_id", None) != drop])
            for message in history
        ]

    models = {anthropic_reply: "anthropic:claude-sonnet-4-5", chat_reply: "openai-chat:gpt-4o"}
    capabilities = pytest.importorskip("pydantic_ai.capabilities")
    used = [capabilities.ProcessHistory(without)] if drop is not None else []
    if tracing is not None:
        instrumented = pytest.importorskip("pydantic_ai.models.instrumented")
        settings = instrumented.InstrumentationSettings(tracer_provider=tracing)
        used.append(capabilities.Instrumentation(settings=settings))
    agent = ai.Agent(models[reply], tools=[get_order, get_name], capabilities=used)

    async def watch(_context: Any, events: Any) -> None:
        async for _ in events:
            pass

    asyncio.run(agent.run(QUESTION, event_stream_handler=watch))


def langgraph(reply: Callable[..., str], *, sync: bool = True, drop: str | None = None) -> None:
    prebuilt = pytest.importorskip("langgraph.prebuilt")
    executor = pytest.importorskip("langgraph.prebuilt.chat_agent_executor")
    if reply is anthropic_reply:
        model = pytest.importorskip("langchain_anthropic").ChatAnthropic(model="claude", streaming=True)
    else:
        model = pytest.importorskip("langchain_openai").ChatOpenAI(model="gpt-4o", streaming=True)

    def without(state: Any) -> dict[str, Any]:
        said = [message for message in state["messages"] if getattr(message, "tool_call_id", None) != drop]
        return {"llm_input_messages": said}

    options: dict[str, Any] = {"pre_model_hook": without} if drop else {}
    agent = prebuilt.create_react_agent(model, [get_order, get_name], **options)
    with pytest.MonkeyPatch.context() as patch:
        if drop:  # its own check refuses a history in which a call lacks its result; we want to see it sent
            patch.setattr(executor, "_validate_chat_history", lambda messages: None)
        asked = {"messages": [("user", QUESTION)]}
        if sync:
            for _ in agent.stream(asked, stream_mode="messages"):
                pass
            return

        async def run() -> None:
            async for _ in agent.astream(asked, stream_mode="messages"):
                pass

        asyncio.run(run())


AGENTS = [
    pytest.param(anthropic_runner, anthropic_reply, {}, id="anthropic tool runner"),
    pytest.param(anthropic_runner, anthropic_reply, {"eager": True}, id="anthropic tool runner, eager"),
    pytest.param(anthropic_async_runner, anthropic_reply, {}, id="anthropic async tool runner"),
    pytest.param(anthropic_async_runner, anthropic_reply, {"eager": True}, id="anthropic async tool runner, eager"),
    pytest.param(openai_agents, responses_reply, {}, id="openai-agents"),
    pytest.param(pydantic_ai, anthropic_reply, {}, id="pydantic-ai, anthropic"),
    pytest.param(pydantic_ai, chat_reply, {}, id="pydantic-ai, openai"),
    pytest.param(langgraph, anthropic_reply, {}, id="langgraph, anthropic"),
    pytest.param(langgraph, chat_reply, {}, id="langgraph, openai"),
    pytest.param(langgraph, anthropic_reply, {"sync": False}, id="langgraph async, anthropic"),
    pytest.param(langgraph, chat_reply, {"sync": False}, id="langgraph async, openai"),
]
TRACED = [param for param in AGENTS if param.values[0] in (anthropic_runner, anthropic_async_runner, pydantic_ai)]
"""Those whose own tracing has a span for the run of a tool."""


@pytest.mark.parametrize(("agent", "reply", "options"), AGENTS)
def test_a_full_run_leaves_nothing_lost(
    account: Account, model_server: ModelServer, agent: Any, reply: Callable[..., str], options: dict[str, Any]
) -> None:
    model_server.reply(reply(CALLS))
    model_server.reply(reply([], FINAL))
    agent(reply, **options)
    assert len(account.of("announce_tool")) == len(CALLS)
    account.wait_for(lambda: account.total("otel_toolcalls.pending.calls") == 0)
    assert account.lost == []


@pytest.mark.parametrize(("agent", "reply", "options"), AGENTS)
def test_a_tool_removed_from_the_dispatch_is_judged_lost(
    account: Account, model_server: ModelServer, agent: Any, reply: Callable[..., str], options: dict[str, Any]
) -> None:
    model_server.reply(reply(CALLS))
    model_server.reply(reply([], FINAL))
    agent(reply, **options, drop="call_name")
    account.wait_for(lambda: account.lost)
    assert account.lost == [("call_name", "siblings_answered")]


@pytest.mark.parametrize("drop", [None, "call_name"], ids=["whole", "a result dropped"])
@pytest.mark.parametrize(("agent", "reply", "options"), TRACED)
def test_with_its_own_tracing_on_what_ran_is_dispatched_and_linked(
    account: Account,
    model_server: ModelServer,
    agent: Any,
    reply: Callable[..., str],
    options: dict[str, Any],
    drop: str | None,
) -> None:
    model_server.reply(reply(CALLS))
    model_server.reply(reply([], FINAL))
    agent(reply, **options, drop=drop, tracing=account.tracer_provider)
    announced = {span.context.span_id for span in account.of(c.OP_ANNOUNCE)}
    runs = account.of(c.OP_EXECUTE)
    assert {run.instrumentation_scope.name for run in runs} & {c.SCOPE} == set()
    linked = {
        match: [link.context.span_id for run in runs if run.attributes[c.DISPATCH_MATCH] == match for link in run.links]
        for match in ("matched", "duplicate", "unmatched")
    }
    assert sorted(linked["matched"]) == sorted(announced)
    assert set(linked["duplicate"]) <= announced  # the runner runs tools again after it was given messages
    assert len(runs) == len(linked["matched"]) + len(linked["duplicate"])
    assert account.total(c.SETTLED_CALLS, by="span") == len(CALLS)
    assert (account.lost, otel_toolcalls.pending()) == ([], [])


@pytest.mark.parametrize(
    ("agent", "reply", "options", "package", "name"),
    [
        (openai_agents, responses_reply, {"traced": True}, "openai_agents", "OpenAIAgentsInstrumentor"),
        (langgraph, anthropic_reply, {}, "langchain", "LangChainInstrumentor"),
        (langgraph, chat_reply, {}, "langchain", "LangChainInstrumentor"),
    ],
    ids=["openai-agents", "langgraph, anthropic", "langgraph, openai"],
)
@pytest.mark.parametrize(("drop", "lost"), [(None, []), ("call_name", [("call_name", "siblings_answered")])])
def test_beside_openinference_the_account_is_the_same(
    account: Account,
    model_server: ModelServer,
    agent: Any,
    reply: Callable[..., str],
    options: dict[str, Any],
    package: str,
    name: str,
    drop: str | None,
    lost: list[tuple[str, str]],
) -> None:
    instrumentor = getattr(pytest.importorskip(f"openinference.instrumentation.{package}"), name)()
    model_server.reply(reply(CALLS))
    model_server.reply(reply([], FINAL))
    instrumentor.instrument(tracer_provider=account.tracer_provider)
    try:
        agent(reply, **options, drop=drop)
    finally:
        instrumentor.uninstrument()
    assert any(span.attributes.get("openinference.span.kind") == "TOOL" for span in account.spans)
    account.wait_for(lambda: account.total(c.PENDING_CALLS) == 0)
    assert account.lost == lost
