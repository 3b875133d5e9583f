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


def read(api: Api, server: ModelServer, *, streaming: bool, **client_options: Any) -> None:
    with api.client(server.url, **client_options) as client:
        if streaming:
            server.stream(api.events)
            with api.create(client) as stream:
                for _ in stream:
                    pass
        else:
            server.whole(WHOLE[api.name])
            api.create(client, stream=False)


def one_inference_span(observed: Observed) -> ReadableSpan:
    """The one span that stands for the response, which the calls are children of."""
    (inference,) = [span for span in observed.account.ended if not span.name.startswith("announce_tool")]
    assert observed.outcomes == [COMPLETED, COMPLETED]
    assert {call.parent.span_id for call in observed.calls} == {inference.context.span_id}
    assert {call.context.trace_id for call in observed.calls} == {inference.context.trace_id}
    return inference


@with_each_peer
@pytest.mark.parametrize("order", ["peer first", "ours first"])
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
def test_the_peers_span_is_adopted(
    peer: str, api: Api, order: str, streaming: bool, server: ModelServer, observed: Observed
) -> None:
    with instrumented(peer, order, observed):
        read(api, server, streaming=streaming)
    assert scope(one_inference_span(observed)) != "otel_toolcalls"


@with_each_peer
def test_the_peers_span_is_adopted_by_async_clients(
    peer: str, api: Api, server: ModelServer, observed: Observed
) -> None:
    async def read_async() -> None:
        server.stream(api.events)
        async with api.async_client(server.url) as client, await api.create(client) as stream:
            async for _ in stream:
                pass

    with instrumented(peer, "peer first", observed):
        asyncio.run(read_async())
    assert scope(one_inference_span(observed)) != "otel_toolcalls"


@with_each_peer
def test_mode_never_makes_no_span_for_a_turn(peer: str, api: Api, server: ModelServer, observed: Observed) -> None:
    with instrumented(peer, "peer first", observed, turn_span="never"):
        read(api, server, streaming=True)
    assert scope(one_inference_span(observed)) != "otel_toolcalls"


@with_each_peer
def test_mode_always_makes_our_own_inside_the_peers(
    peer: str, api: Api, server: ModelServer, observed: Observed
) -> None:
    with instrumented(peer, "peer first", observed, turn_span="always"):
        read(api, server, streaming=True)
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
            read(api, server, streaming=True)
        observed.check()
    assert {call.parent.span_id for call in observed.calls} == {app.get_span_context().span_id}
    assert observed.turns == []


@every_api
def test_a_span_of_the_app_is_no_inference_span(api: Api, server: ModelServer, observed: Observed) -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "openinference.span.kind": "AGENT"}
    with observed.instrumented():
        tracer = observed.tracer_provider.get_tracer("app")
        with tracer.start_as_current_span("agent", attributes=agent) as app:
            read(api, server, streaming=True)
        observed.check()
    (turn,) = observed.turns
    assert turn.parent.span_id == app.get_span_context().span_id


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
def test_anthropics_own_tracing_is_adopted(streaming: bool, server: ModelServer, observed: Observed) -> None:
    anthropic = pytest.importorskip("anthropic")
    if not hasattr(anthropic.Anthropic(api_key="none"), "open_telemetry"):
        pytest.skip("this anthropic does not trace itself")
    with observed.instrumented():
        options = {"tracer_provider": observed.tracer_provider}
        read(ANTHROPIC, server, streaming=streaming, open_telemetry=options)
        observed.check()
    assert scope(one_inference_span(observed)) == "com.anthropic.sdk.python"


def test_anthropics_own_tracing_switched_off_leaves_the_turn_to_us(server: ModelServer, observed: Observed) -> None:
    anthropic = pytest.importorskip("anthropic")
    if not hasattr(anthropic.Anthropic(api_key="none"), "open_telemetry"):
        pytest.skip("this anthropic does not trace itself")
    with observed.instrumented():
        read(ANTHROPIC, server, streaming=True, open_telemetry=False)
        observed.check()
    assert scope(one_inference_span(observed)) == "otel_toolcalls"
