"""Every surface of the SDKs that gives a reply: each event is seen exactly once, and the reply stays the SDK's own."""

from __future__ import annotations

import copy
import gc
import importlib
import inspect
import json
import pickle
import socket
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.hooks.apis import ANTHROPIC, APIS, CHAT, MODEL, RESPONSES, Api
from tests.hooks.observed import Observed
from tests.hooks.server import ModelServer, load
from tests.hooks.test_endings import COMPLETED, every_api

WHOLE = {line["api"]: line["reply"] for line in load("whole")}
TURN = [{"role": "user", "content": "Show my orders."}]
FRAGMENTS = {"anthropic": [3, 2], "chat": [2, 2], "responses": [2, 2], "assistants": [2, 2]}


def announced_once(on: Observed, fragments: list[int]) -> None:
    """One turn with the two calls, and of each as many fragments as were sent."""
    assert on.outcomes == [COMPLETED, COMPLETED]
    assert [call.attributes["otel_toolcalls.call.arguments.fragments"] for call in on.calls] == fragments
    assert len(on.turns) == 1


def read(stream: Any) -> None:
    for _ in stream:
        pass


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def read_async(stream: Any) -> None:
    async for _ in stream:
        pass


# ---- ways to read one stream ----------------------------------------------------------------------------------------


def with_raw_response(api: Api, client: Any) -> None:
    response = api.resource(client, "create").with_raw_response.create(**api.request, stream=True)
    assert response.headers["x-request-id"] == "req_1"
    stream = response.parse()
    assert response.parse() is stream
    read(stream)


def with_streaming_response(api: Api, client: Any) -> None:
    with api.resource(client, "create").with_streaming_response.create(**api.request, stream=True) as response:
        assert response.headers["x-request-id"] == "req_1"
        stream = response.parse()
        assert response.parse() is stream
        read(stream)


def helper_until_done(api: Api, client: Any) -> None:
    with api.stream(client) as stream:
        stream.until_done()


def helper_final(api: Api, client: Any) -> None:
    with api.stream(client) as stream:
        final = {"anthropic": "get_final_message", "chat": "get_final_completion", "responses": "get_final_response"}
        reader = getattr(stream, final[api.name])
        assert reader() is not None
        assert reader() is not None


def helper_mixed(api: Api, client: Any) -> None:
    with api.stream(client) as stream:
        next(stream)
        for _ in stream:
            break
        stream.until_done()


def next_and_for(api: Api, client: Any) -> None:
    stream = api.create(client)
    next(stream)
    for _ in stream:
        break
    next(iter(stream))
    read(stream)
    assert next(stream, None) is None


WAYS = [with_raw_response, with_streaming_response, helper_until_done, helper_final, helper_mixed, next_and_for]


@every_api
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_way_of_reading_sees_each_event_once(
    api: Api, way: Callable[[Api, Any], None], server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    with api.client(server.url) as client:
        way(api, client)
    announced_once(on, FRAGMENTS[api.name])


async def async_with_raw_response(api: Api, client: Any) -> None:
    response = await api.resource(client, "create").with_raw_response.create(**api.request, stream=True)
    stream = response.parse()
    await read_async(await stream if inspect.isawaitable(stream) else stream)


async def async_with_streaming_response(api: Api, client: Any) -> None:
    create = api.resource(client, "create").with_streaming_response.create
    async with create(**api.request, stream=True) as response:
        await read_async(await response.parse())


async def async_helper_final(api: Api, client: Any) -> None:
    async with api.stream(client) as stream:
        final = {"anthropic": "get_final_message", "chat": "get_final_completion", "responses": "get_final_response"}
        assert await getattr(stream, final[api.name])() is not None


async def async_helper_mixed(api: Api, client: Any) -> None:
    async with api.stream(client) as stream:
        await stream.__anext__()
        async for _ in stream:
            break
        await stream.until_done()


ASYNC_WAYS = [async_with_raw_response, async_with_streaming_response, async_helper_final, async_helper_mixed]


@every_api
@pytest.mark.parametrize("way", ASYNC_WAYS, ids=lambda way: way.__name__)
async def test_each_async_way_of_reading_sees_each_event_once(
    api: Api, way: Callable[[Api, Any], Any], server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    async with api.async_client(server.url) as client:
        await way(api, client)
    announced_once(on, FRAGMENTS[api.name])


@pytest.mark.parametrize("reader", ["text_stream", "get_final_text"])
def test_anthropic_text_readers_see_each_event_once(reader: str, server: ModelServer, on: Observed) -> None:
    pytest.importorskip("anthropic")
    server.stream(ANTHROPIC.events)
    with ANTHROPIC.client(server.url) as client, ANTHROPIC.stream(client) as stream:
        text = "".join(stream.text_stream) if reader == "text_stream" else stream.get_final_text()
    assert text == "Looking"
    announced_once(on, FRAGMENTS["anthropic"])


# ---- replies that are not streamed ----------------------------------------------------------------------------------


@every_api
@pytest.mark.parametrize("surface", ["create", "with_raw_response", "with_streaming_response"])
def test_a_whole_reply_announces_and_closes_its_calls_at_once(
    api: Api, surface: str, server: ModelServer, on: Observed
) -> None:
    server.whole(WHOLE[api.name])
    with api.client(server.url) as client:
        resource = api.resource(client, "create")
        if surface == "create":
            reply = resource.create(**api.request)
        elif surface == "with_raw_response":
            response = resource.with_raw_response.create(**api.request)
            reply = response.parse()
            assert response.parse() is reply
        else:
            with resource.with_streaming_response.create(**api.request) as streamed:
                reply = streamed.parse()
    assert type(reply).__module__.startswith(f"{api.sdk}.types")
    announced_once(on, [0, 0])
    assert on.turns[0].attributes["gen_ai.response.model"] == "said-model"


@every_api
async def test_an_async_whole_reply_announces_and_closes_its_calls_at_once(
    api: Api, server: ModelServer, on: Observed
) -> None:
    server.whole(WHOLE[api.name])
    async with api.async_client(server.url) as client:
        await api.resource(client, "create").create(**api.request)
    announced_once(on, [0, 0])


@pytest.mark.parametrize("api", [api for api in APIS if api.sdk == "openai"], ids=str)
def test_parse_is_a_whole_reply(api: Api, server: ModelServer, on: Observed) -> None:
    server.whole(WHOLE[api.name])
    with api.client(server.url) as client:
        api.resource(client, "parse").parse(**api.request)
    announced_once(on, [0, 0])


# ---- other resources and clients ------------------------------------------------------------------------------------


def test_anthropic_beta_is_observed(server: ModelServer, on: Observed) -> None:
    pytest.importorskip("anthropic")
    server.stream(ANTHROPIC.events)
    with ANTHROPIC.client(server.url) as client:
        read(client.beta.messages.create(**ANTHROPIC.request, stream=True))
    announced_once(on, FRAGMENTS["anthropic"])


def anthropic_tools(ran: list[str]) -> list[Any]:
    anthropic = pytest.importorskip("anthropic")
    if not hasattr(anthropic, "beta_tool"):
        pytest.skip("this anthropic has no tool runner")

    def search_orders(status: str) -> str:
        """Find orders."""
        ran.append(status)
        return "none"

    return [anthropic.beta_tool(search_orders)]


def said(text: str) -> dict[str, Any]:
    return {**WHOLE["anthropic"], "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}


@pytest.mark.parametrize("streaming", [False, True])
def test_anthropic_tool_runner_is_observed_turn_by_turn(streaming: bool, server: ModelServer, on: Observed) -> None:
    ran: list[str] = []
    tools = anthropic_tools(ran)
    last = [event for event in ANTHROPIC.events if event.get("index", 0) == 0]
    last[-2]["delta"]["stop_reason"] = "end_turn"
    with ANTHROPIC.client(server.url) as client:
        if streaming:
            server.stream(ANTHROPIC.events)
            server.stream(last)
        else:
            server.whole(WHOLE["anthropic"])
            server.whole(said("none"))
        runner = client.beta.messages.tool_runner(
            model=MODEL, max_tokens=64, messages=TURN, tools=tools, stream=streaming
        )
        for turn in runner:
            if streaming:
                read(turn)
    assert ran == ["refunded", "open"]
    assert on.outcomes == [COMPLETED, COMPLETED]
    assert len(on.turns) == 2


COMPATIBLE = [
    ("groq", "Groq", "groq"),
    ("together", "Together", "together_ai"),
    ("cerebras.cloud.sdk", "Cerebras", "cerebras"),
]


def compatible(sdk: str, name: str, url: str) -> Any:
    module = pytest.importorskip(sdk)
    more = {"warm_tcp_connection": False} if "cerebras" in sdk else {}
    return getattr(module, name)(api_key="k", base_url=url, max_retries=0, **more)


@pytest.mark.parametrize(("sdk", "name", "provider"), COMPATIBLE, ids=[entry[0] for entry in COMPATIBLE])
@pytest.mark.parametrize("streaming", [True, False])
def test_an_sdk_of_the_family_is_observed(
    sdk: str, name: str, provider: str, streaming: bool, server: ModelServer, on: Observed
) -> None:
    with compatible(sdk, name, server.url) as client:
        if streaming:
            server.stream([*CHAT.events, b"data: [DONE]\n\n"])
            read(client.chat.completions.create(**CHAT.request, stream=True))
        else:
            server.whole(WHOLE["chat"])
            client.chat.completions.create(**CHAT.request)
    announced_once(on, FRAGMENTS["chat"] if streaming else [0, 0])
    assert on.turns[0].attributes["gen_ai.provider.name"] == provider


@pytest.mark.parametrize(("sdk", "name", "provider"), COMPATIBLE, ids=[entry[0] for entry in COMPATIBLE])
async def test_an_async_client_of_the_family_is_observed(
    sdk: str, name: str, provider: str, server: ModelServer, on: Observed
) -> None:
    server.stream([*CHAT.events, b"data: [DONE]\n\n"])
    async with compatible(sdk, f"Async{name}", server.url) as client:
        await read_async(await client.chat.completions.create(**CHAT.request, stream=True))
    announced_once(on, FRAGMENTS["chat"])


def test_assistants_runs_are_observed(server: ModelServer, on: Observed) -> None:
    pytest.importorskip("openai")
    server.stream([*load("assistants"), b"event: done\ndata: [DONE]\n\n"])
    with CHAT.client(server.url) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with client.beta.threads.runs.stream(thread_id="thread_1", assistant_id="asst_1") as stream:
            read(stream)
    announced_once(on, FRAGMENTS["assistants"])


# ---- responses that exist already -----------------------------------------------------------------------------------

needs_responses = pytest.mark.skipif(RESPONSES not in APIS, reason="this openai has no responses")


@needs_responses
def test_a_replay_of_a_response_announces_nothing_twice(server: ModelServer, on: Observed) -> None:
    with RESPONSES.client(server.url) as client:
        server.stream(RESPONSES.events)
        read(RESPONSES.create(client))
        assert on.outcomes == [COMPLETED, COMPLETED]
        server.stream(RESPONSES.events)
        read(client.responses.retrieve("resp_1", stream=True))
    assert on.outcomes == [COMPLETED, COMPLETED]


@needs_responses
def test_a_resumed_response_announces_what_the_first_stream_lost(server: ModelServer, on: Observed) -> None:
    cut = RESPONSES.until_open()
    with RESPONSES.client(server.url) as client:
        server.stream(RESPONSES.events[:cut], end="cut")
        with pytest.raises(Exception):  # noqa: B017  (which one differs by version)
            read(RESPONSES.create(client))
        server.stream(RESPONSES.events[cut:])
        read(client.responses.retrieve("resp_1", stream=True, starting_after=cut - 1))
    first, lost, resumed = on.account.ended[0], on.account.ended[1], on.account.ended[3]
    assert [span.attributes["gen_ai.tool.call.id"] for span in (first, lost, resumed)] == ["call_1", "call_2", "call_2"]
    assert [span.attributes["otel_toolcalls.call.outcome"] for span in (first, lost, resumed)] == [
        "completed",
        "abandoned",
        "completed",
    ]
    assert "announced_late" in resumed.attributes["otel_toolcalls.call.anomalies"]
    assert len(on.turns) == 1  # one response, one inference span, however often its events are read
    assert resumed.parent.span_id == on.turns[0].context.span_id


@needs_responses
def test_a_background_response_that_is_polled_announces_its_calls_once(server: ModelServer, on: Observed) -> None:
    queued = {**WHOLE["responses"], "status": "queued", "output": []}
    with RESPONSES.client(server.url) as client:
        server.whole(queued)
        client.responses.create(**RESPONSES.request, background=True)
        for reply in (queued, {**queued, "status": "in_progress"}, WHOLE["responses"], WHOLE["responses"]):
            server.whole(reply)
            client.responses.retrieve("resp_1")
    assert on.outcomes == [COMPLETED, COMPLETED]
    assert [turn.attributes.get("error.type") for turn in on.turns] == [None]
    assert {call.parent.span_id for call in on.calls} == {on.turns[0].context.span_id}


@pytest.mark.parametrize("switched_on", [False, True])
async def test_an_async_helper_that_is_never_entered_complains_as_before(
    switched_on: bool, server: ModelServer, observed: Observed
) -> None:
    pytest.importorskip("anthropic")
    with observed.instrumented() if switched_on else nullcontext(), warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        async with ANTHROPIC.async_client(server.url) as client:
            ANTHROPIC.stream(client)
            gc.collect()
    assert [str(complaint.message) for complaint in complaints] == ["coroutine 'AsyncAPIClient.post' was never awaited"]


# ---- requests by hand -----------------------------------------------------------------------------------------------


def takes_bytes(client: Any) -> bool:
    return "content" in inspect.signature(client.post).parameters


@every_api
def test_a_body_that_the_app_wrote_itself_is_read(api: Api, server: ModelServer, on: Observed) -> None:
    server.whole(WHOLE[api.name])
    path = {"anthropic": "/v1/messages", "chat": "/chat/completions", "responses": "/responses"}[api.name]
    with api.client(server.url) as client:
        if not takes_bytes(client):
            pytest.skip(f"this {api.sdk} sends no bytes")
        headers = {"content-type": "application/json"}
        client.post(path, content=json.dumps(api.request).encode(), cast_to=object, options={"headers": headers})
    announced_once(on, [0, 0])
    assert on.turns[0].attributes["gen_ai.request.model"] == MODEL
    assert server.seen[0].body == api.request


BODIES = {
    "no JSON": b"no JSON",
    "no object": b"[1]",
    "no text": b"\xff",
    "too long": b" " * 2_000_000 + b'{"model": "m"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_that_cannot_be_read_is_sent_all_the_same(body: bytes, model_server: Any, on: Observed) -> None:
    pytest.importorskip("openai")
    model_server.reply({"error": {}}, status=400)
    with CHAT.client(model_server.url) as client:
        if not takes_bytes(client):
            pytest.skip("this openai sends no bytes")
        with pytest.raises(Exception, match="400"):
            client.post("/chat/completions", content=body, cast_to=object)
    assert model_server.requests[0].body == body
    assert "gen_ai.request.model" not in on.turns[0].attributes


# ---- what is no reply -----------------------------------------------------------------------------------------------


def test_requests_that_are_no_replies_of_a_model_are_not_taken_for_one(server: ModelServer, on: Observed) -> None:
    pytest.importorskip("openai")
    page = {"object": "list", "data": [], "has_more": False}
    message = {"id": "msg_1", "object": "thread.message", "role": "user", "content": [], "thread_id": "thread_1"}
    with CHAT.client(server.url) as client:
        paths = {
            "/threads/thread_1/messages": message,
            "/chat/completions/chatcmpl_1/messages": page,
            "/threads/thread_1/runs": page,
            "/chat/completions": page,
            "/responses/resp_1/input_items": page,
            "/models": page,
        }
        for path, reply in paths.items():
            server.whole(reply)
            client.get(path, cast_to=object)
        server.whole(message)
        client.post("/threads/thread_1/messages", cast_to=object, body={"role": "user", "content": "hi"})
        server.whole({})
        client.delete("/responses/resp_1", cast_to=object)
    assert on.account.started == []


# ---- the reply is the SDK's own -------------------------------------------------------------------------------------


@every_api
def test_the_stream_is_the_sdks_own_object(api: Api, server: ModelServer, on: Observed) -> None:
    streaming = importlib.import_module(f"{api.sdk}._streaming")
    server.stream(api.events)
    with api.client(server.url) as client, api.create(client) as stream:
        assert type(stream) is streaming.Stream
        assert isinstance(stream, streaming.Stream)
        assert stream.response.headers["x-request-id"] == "req_1"
        assert iter(stream) is not None
        assert "Stream object at" in repr(stream)
        first = next(stream)
        assert type(first).__module__.startswith(f"{api.sdk}.types")
        assert copy.copy(stream).response is stream.response
        read(stream)


@every_api
def test_nothing_of_ours_goes_over_the_wire(api: Api, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    with api.client(server.url) as client:
        read(api.create(client))
    (seen,) = server.seen
    assert "toolcalls" not in json.dumps([seen.path, seen.headers, seen.body]).lower()
    assert not {name.lower() for name in seen.headers} & {"traceparent", "tracestate", "baggage"}


@every_api
def test_nothing_of_ours_stays_on_the_response(api: Api, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    with api.client(server.url) as client:
        stream = api.create(client)
        plain = set(vars(stream.response))
        assert not plain & {"close", "aclose"}
        next(stream)
        assert set(vars(stream.response)) - plain >= {"close", "aclose"}
        read(stream)
    assert not set(vars(stream.response)) & {"close", "aclose"}
    assert "otel_toolcalls" not in stream.response.request.extensions


@every_api
def test_an_error_of_the_sdk_pickles_as_before(api: Api, server: ModelServer, observed: Observed) -> None:
    refusal = {"error": {"type": "rate_limit_error", "message": "slow down"}}

    def refused() -> Any:
        server.whole(refusal, status=429)
        with api.client(server.url) as client, pytest.raises(Exception) as raised:
            api.create(client)
        return raised.value

    def pickled(error: Any) -> Any:
        return type(pickle.loads(pickle.dumps([error.request, error.response]))[0])

    plain = pickled(refused())
    with observed.instrumented():
        assert pickled(refused()) is plain


@every_api
@pytest.mark.parametrize("status", [429, None], ids=["refused", "not connected"])
def test_nothing_of_ours_stays_on_a_failed_request(
    api: Api, status: int | None, server: ModelServer, on: Observed
) -> None:
    url = server.url if status is not None else f"http://127.0.0.1:{free_port()}"
    server.whole({"error": {"type": "rate_limit_error", "message": "slow down"}}, status=status or 200)
    with api.client(url) as client, pytest.raises(Exception) as raised:
        api.create(client)
    assert "otel_toolcalls" not in raised.value.request.extensions
    assert len(on.turns) == 1


@every_api
def test_the_extensions_of_a_request_can_be_copied_and_pickled(api: Api, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    with api.client(server.url) as client:
        stream = api.create(client)
        ours = stream.response.request.extensions["otel_toolcalls"]
        assert copy.deepcopy({"ours": ours}) == {"ours": None}
        assert pickle.loads(pickle.dumps({"ours": ours})) == {"ours": None}
        assert copy.copy(stream.response.request.extensions)["otel_toolcalls"] is ours
        del ours
        read(stream)
    announced_once(on, FRAGMENTS[api.name])


@every_api
def test_somebody_elses_close_on_the_response_is_called_and_put_back(
    api: Api, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    with api.client(server.url) as client:
        stream = api.create(client)
        closed = []
        original = stream.response.close

        def close() -> None:
            closed.append(True)
            original()

        stream.response.close = close
        next(stream)
        stream.close()
    assert closed == [True]
    assert vars(stream.response)["close"] is close
