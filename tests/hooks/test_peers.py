"""Beside other instrumentations there is one inference span per response, and our calls are its children."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from tests.hooks.apis import ANTHROPIC, APIS, Api
from tests.hooks.observed import Observed
from tests.hooks.server import ModelServer, load
from tests.hooks.test_endings import COMPLETED, every_api

WHOLE = {line["api"]: line["reply"] for line in load("whole")}

PEERS = {
    "genai-anthropic": ("anthropic", "opentelemetry.instrumentation.genai.anthropic", "AnthropicInstrumentor"),
    "genai-openai": ("openai", "opentelemetry.instrumentation.genai.openai", "OpenAIInstrumentor"),
    "openinference-anthropic": ("anthropic", "openinference.instrumentation.anthropic", "AnthropicInstrumentor"),
    "openinference-openai": ("openai", "openinference.instrumentation.openai", "OpenAIInstrumentor"),
}
PAIRS = [(peer, api) for peer, (sdk, _, _) in PEERS.items() for api in APIS if api.sdk == sdk]
with_each_peer = pytest.mark.parametrize(("peer", "api"), PAIRS, ids=[f"{peer}-{api}" for peer, api in PAIRS])


SURFACES = ["stream", "helper", "whole"]


def scope(span: ReadableSpan) -> str:
    return span.instrumentation_scope.name if span.instrumentation_scope else ""


@contextmanager
def instrumented(peer: str, order: str, observed: Observed, **settings: Any) -> Iterator[None]:
    _, module, name = PEERS[peer]
    pytest.importorskip(module, reason=f"the {peer} instrumentation is not installed")
    instrumentor = getattr(importlib.import_module(module), name)()

    def instrument() -> None:
        instrumentor.instrument(
            tracer_provider=observed.tracer_provider,
            meter_provider=observed.meter_provider,
            logger_provider=observed.logger_provider,
        )

    if order == "peer first":
        instrument()
    try:
        with observed.instrumented(**settings):
            if order == "ours first":
                instrument()
            yield
            observed.check()
    finally:
        instrumentor.uninstrument()


def read(api: Api, server: ModelServer, surface: str = "stream", client_options: Any = None, **request: Any) -> None:
    with api.client(server.url, **client_options or {}) as client:
        if surface == "whole":
            server.whole(WHOLE[api.name])
            api.create(client, stream=False, **request)
            return
        server.stream(api.events)
        with api.stream(client, **request) if surface == "helper" else api.create(client, **request) as stream:
            for _ in stream:
                pass


async def read_async(api: Api, server: ModelServer, surface: str) -> None:
    server.stream(api.events)
    async with api.async_client(server.url) as client:
        stream = api.stream(client) if surface == "helper" else await api.create(client)
        async with stream as events:
            async for _ in events:
                pass


def one_inference_span(observed: Observed) -> ReadableSpan:
    """The one span that stands for the response, which the calls are children of."""
    (inference,) = [span for span in observed.account.ended if not span.name.startswith("announce_tool")]
    assert observed.outcomes == [COMPLETED, COMPLETED]
    assert {call.parent.span_id for call in observed.calls} == {inference.context.span_id}
    assert {call.context.trace_id for call in observed.calls} == {inference.context.trace_id}
    return inference


@with_each_peer
@pytest.mark.parametrize("order", ["peer first", "ours first"])
@pytest.mark.parametrize("surface", SURFACES)
def test_the_peers_span_is_adopted(
    peer: str, api: Api, order: str, surface: str, server: ModelServer, observed: Observed
) -> None:
    with instrumented(peer, order, observed):
        read(api, server, surface)
    assert scope(one_inference_span(observed)) != "otel_toolcalls"


@with_each_peer
@pytest.mark.parametrize("order", ["peer first", "ours first"])
@pytest.mark.parametrize("surface", ["stream", "helper"])
def test_the_peers_span_is_adopted_by_async_clients(
    peer: str, api: Api, order: str, surface: str, server: ModelServer, observed: Observed
) -> None:
    with instrumented(peer, order, observed):
        asyncio.run(read_async(api, server, surface))
    assert scope(one_inference_span(observed)) != "otel_toolcalls"


@pytest.mark.parametrize("peer", ["genai-anthropic", "openinference-anthropic"])
@pytest.mark.parametrize("order", ["peer first", "ours first"])
def test_the_peers_span_is_adopted_by_betas_helper(
    peer: str, order: str, server: ModelServer, observed: Observed
) -> None:
    server.stream(ANTHROPIC.events)
    with instrumented(peer, order, observed), ANTHROPIC.client(server.url) as client:
        if not hasattr(client.beta.messages, "stream"):
            pytest.skip("this anthropic has no beta helper")
        with client.beta.messages.stream(**ANTHROPIC.request) as stream:
            stream.until_done()
    if peer == "openinference-anthropic":  # the other does not observe it
        assert scope(one_inference_span(observed)) != "otel_toolcalls"
    assert len([span for span in observed.account.ended if not span.name.startswith("announce_tool")]) == 1


def test_a_helper_that_is_entered_elsewhere_belongs_to_the_span_that_was_made_for_it(
    server: ModelServer, observed: Observed
) -> None:
    server.stream(ANTHROPIC.events)
    with instrumented("openinference-anthropic", "peer first", observed), ANTHROPIC.client(server.url) as client:
        helper = ANTHROPIC.stream(client)
        with observed.tracer_provider.get_tracer("app").start_as_current_span("elsewhere"), helper as stream:
            stream.until_done()
    (inference,) = inferences(observed, without="app")
    assert {call.parent.span_id for call in observed.calls} == {inference.context.span_id}


def test_without_a_peer_a_helper_belongs_where_it_is_entered(server: ModelServer, on: Observed) -> None:
    pytest.importorskip("anthropic")
    tracer = on.tracer_provider.get_tracer("app")
    server.stream(ANTHROPIC.events)
    with ANTHROPIC.client(server.url) as client:
        with tracer.start_as_current_span("asked"):
            helper = ANTHROPIC.stream(client)
        with tracer.start_as_current_span("entered") as entered, helper as stream:
            stream.until_done()
    assert on.turns[0].parent.span_id == entered.get_span_context().span_id


RESULTS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "messages": [
            *ANTHROPIC.request["messages"],
            {"role": "assistant", "content": WHOLE["anthropic"]["content"]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"call_{n}", "content": "none"} for n in (1, 2)],
            },
        ]
    },
    "chat": {
        "messages": [
            {"role": "user", "content": "Show my orders."},
            {"role": "assistant", "tool_calls": WHOLE["chat"]["choices"][0]["message"]["tool_calls"]},
            *({"role": "tool", "tool_call_id": f"call_{n}", "content": "none"} for n in (1, 2)),
        ]
    },
    "responses": {
        "previous_response_id": "resp_1",
        "input": [{"type": "function_call_output", "call_id": f"call_{n}", "output": "none"} for n in (1, 2)],
    },
}
"""By protocol, what the next request says of the two calls."""


def answers_are_on(answering: ReadableSpan, calls: list[ReadableSpan]) -> None:
    """The span links to each of the calls, as telemetry.md has it, and to nothing else."""
    links = {link.context.span_id: dict(link.attributes or {}) for link in answering.links}
    assert links == {
        call.context.span_id: {
            "otel_toolcalls.link.type": "answers",
            "otel_toolcalls.call.key": call.attributes["otel_toolcalls.call.key"],
            "gen_ai.tool.call.id": call.attributes["gen_ai.tool.call.id"],
        }
        for call in calls
    }


def inferences(observed: Observed, without: str = "") -> list[ReadableSpan]:
    """Those of others; there is none of ours."""
    assert observed.turns == []
    return [span for span in observed.account.ended if scope(span) not in ("otel_toolcalls", without)]


@with_each_peer
@pytest.mark.parametrize("order", ["peer first", "ours first"])
@pytest.mark.parametrize("surface", SURFACES)
def test_the_peers_span_says_which_calls_its_request_answers(
    peer: str, api: Api, order: str, surface: str, server: ModelServer, observed: Observed
) -> None:
    with instrumented(peer, order, observed, ledger="memory"):
        read(api, server)
        asked = list(observed.calls)
        read(api, server, surface, **RESULTS[api.name])
    first, second = inferences(observed)
    assert first.links == ()
    answers_are_on(second, asked)
    assert observed.total("otel_toolcalls.settled.calls", otel_toolcalls__settled__by="answer") == 2


@with_each_peer
def test_mode_never_makes_no_span_for_a_turn(peer: str, api: Api, server: ModelServer, observed: Observed) -> None:
    with instrumented(peer, "peer first", observed, turn_span="never"):
        read(api, server)
    assert scope(one_inference_span(observed)) != "otel_toolcalls"


@with_each_peer
def test_mode_always_makes_our_own_inside_the_peers(
    peer: str, api: Api, server: ModelServer, observed: Observed
) -> None:
    with instrumented(peer, "peer first", observed, turn_span="always"):
        read(api, server)
    (ours,) = [span for span in observed.turns if scope(span) == "otel_toolcalls"]
    (theirs,) = [span for span in observed.account.ended if scope(span) != "otel_toolcalls"]
    assert ours.parent.span_id == theirs.context.span_id
    assert ours.kind is SpanKind.CLIENT
    assert {call.parent.span_id for call in observed.calls} == {ours.context.span_id}


@every_api
def test_mode_never_without_a_peer_puts_the_calls_under_the_apps_span(
    api: Api, server: ModelServer, observed: Observed
) -> None:
    with observed.instrumented(turn_span="never"):
        with observed.tracer_provider.get_tracer("app").start_as_current_span("app") as app:
            read(api, server)
        observed.check()
    assert {call.parent.span_id for call in observed.calls} == {app.get_span_context().span_id}
    assert observed.turns == []


@every_api
def test_a_span_of_the_app_is_no_inference_span(api: Api, server: ModelServer, observed: Observed) -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "openinference.span.kind": "AGENT"}
    with observed.instrumented():
        tracer = observed.tracer_provider.get_tracer("app")
        with tracer.start_as_current_span("agent", attributes=agent) as app:
            read(api, server)
        observed.check()
    (turn,) = observed.turns
    assert turn.parent.span_id == app.get_span_context().span_id


def traces_itself() -> None:
    anthropic = pytest.importorskip("anthropic")
    if not hasattr(anthropic.Anthropic(api_key="none"), "open_telemetry"):
        pytest.skip("this anthropic does not trace itself")


@pytest.mark.parametrize("surface", SURFACES)
def test_anthropics_own_tracing_is_adopted(surface: str, server: ModelServer, observed: Observed) -> None:
    traces_itself()
    options = {"open_telemetry": {"tracer_provider": observed.tracer_provider}}
    with observed.instrumented():
        read(ANTHROPIC, server, surface, options)
        observed.check()
    assert scope(one_inference_span(observed)) == "com.anthropic.sdk.python"


@pytest.mark.parametrize("surface", SURFACES)
def test_anthropics_own_span_says_which_calls_its_request_answers(
    surface: str, server: ModelServer, observed: Observed
) -> None:
    traces_itself()
    options = {"open_telemetry": {"tracer_provider": observed.tracer_provider}}
    with observed.instrumented(ledger="memory"):
        read(ANTHROPIC, server, "stream", options)
        asked = list(observed.calls)
        read(ANTHROPIC, server, surface, options, **RESULTS["anthropic"])
        observed.check()
    first, second = inferences(observed)
    assert scope(first) == scope(second) == "com.anthropic.sdk.python"
    answers_are_on(second, asked)


def test_anthropics_own_tracing_switched_off_leaves_the_turn_to_us(server: ModelServer, observed: Observed) -> None:
    traces_itself()
    with observed.instrumented():
        read(ANTHROPIC, server, "stream", {"open_telemetry": False})
        observed.check()
    assert scope(one_inference_span(observed)) == "otel_toolcalls"
