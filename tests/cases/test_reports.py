"""Situations from public bug reports, one test for each, through the real SDKs over loopback.

The tests are named after the line of ``reports.jsonl`` whose trigger they play and whose right behaviour they assert.
Reports about a call that is followed after its announcement are in ``test_reports_ledger.py``.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import json
import logging
import re
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import anthropic as anthropic_sdk
import openai as openai_sdk
import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan

import otel_toolcalls
from otel_toolcalls import guard
from otel_toolcalls.wire.openai_chat import OpenAIChat
from tests.cases.observed import Observed, attributes
from tests.cases.replay import SHARED, Reading, Script, Sdks, load, sse
from tests.cases.wires import (
    FINISHED,
    announced,
    anthropic,
    bare_chunk,
    chat,
    chunk,
    fragment,
    function_call,
    responses,
    text_block,
    tool,
    tool_use,
    whole,
)
from tests.e2e.backends import eventually

pytestmark = pytest.mark.slow

REPORTS = {line["case"]: line for line in load("reports.jsonl")}

LATER = {
    "r002": "boto3's converse_stream: botocore is not hooked",
    "r003": "google-genai's generators: the SDK is not hooked",
    "r048": "boto3's converse_stream: botocore is not hooked; that events pass unchanged is held for each hooked SDK "
    "by test_cut_everywhere.py",
    "r052": "google-genai's generate_content_stream: the SDK is not hooked",
    "r062": "the mistralai SDK's default id: the SDK is not hooked",
}
"""Reports on SDKs that are not hooked."""

CAPTURE = {"capture_content": "span_only", "content_limit": 1_000_000}

OUTCOME = "otel_toolcalls.call.outcome"
INDEX = "otel_toolcalls.call.index"
KEY = "otel_toolcalls.call.key"
CALL_ID = "gen_ai.tool.call.id"
ARGUMENTS = "gen_ai.tool.call.arguments"


def column(calls: list[ReadableSpan], name: str) -> list[Any]:
    """One attribute of each call; None where it is absent."""
    return [attributes(call).get(name) for call in calls]


def read(sdks: Sdks, family: str, script: Script, reader: str = "create") -> Reading:
    reading = sdks.read(family, script, reader)
    assert reading.error is None
    return reading


TWO_CALLS = chat(
    chunk(announced(0, "tc_a", "look_up", '{"q":'), role="assistant"),
    chunk(fragment(0, "1}")),
    chunk(announced(1, "tc_b", "look_up", '{"q":')),
    chunk(fragment(1, "2}")),
    FINISHED,
)


@pytest.fixture
def on(observed: Observed) -> Iterator[Observed]:
    """The package is on for the test, content is captured, and everything holds at its end."""
    with observed.instrumented(**CAPTURE):
        yield observed
    observed.check()


# ---- how a stream ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["break inside with", "close()"])
def test_r001_stream_left_early_ends_its_span_as_closed_early(leave: str, sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "look_up", '{"q":')), *[chunk(fragment(0, str(n))) for n in range(20)], FINISHED
    )
    stream = sdks.create("chat", script)
    if leave == "close()":
        next(stream)
        next(stream)
        stream.close()
    else:
        with stream:
            for _ in itertools.islice(stream, 2):
                pass

    assert column(on.calls, OUTCOME) == ["abandoned"]
    assert column(on.calls, "error.type") == ["closed_early"]
    assert stream.response.is_closed


def test_r004_started_equals_ended_and_the_exported_span_is_the_one_that_was_started(sdks: Sdks, on: Observed) -> None:
    with on.tracer_provider.get_tracer("app").start_as_current_span("app") as app:
        read(sdks, "chat", TWO_CALLS)

    on.check_ends()
    assert [turn.parent.span_id for turn in on.turns] == [app.context.span_id]
    assert {call.parent.span_id for call in on.calls} == {on.turns[0].context.span_id}
    assert on.turns[0].start_time <= on.calls[0].start_time <= on.calls[0].end_time


@pytest.mark.parametrize("family", ["anthropic", "chat"])
def test_r005_dropped_half_read_stream_ends_its_span(family: str, sdks: Sdks, on: Observed) -> None:
    script = {
        "anthropic": anthropic(tool_use(0, "tc_a", "look_up", '{"q":', "1", "2}")),
        "chat": chat(chunk(announced(0, "tc_a", "look_up", '{"q":')), chunk(fragment(0, "1}")), FINISHED),
    }[family]
    stream = sdks.create(family, script)
    while not on.started("announce_tool"):
        next(stream)
    del stream
    gc.collect()

    assert column(on.calls, OUTCOME) == ["abandoned"]
    assert column(on.calls, "error.type")[0] in ("garbage_collected", "closed_early")


@pytest.mark.parametrize("family", ["anthropic", "chat", "responses"])
def test_r011_raw_response_that_is_drained_without_parse_leaks_no_span(family: str, sdks: Sdks, on: Observed) -> None:
    script = {"anthropic": anthropic(tool_use(0, "tc_a", "look_up", "{}")), "chat": TWO_CALLS}.get(
        family, responses(function_call(0, "tc_a", "look_up", "{}"))
    )
    raw = _raw(sdks, family).create(stream=True, **sdks.arguments(family, script))
    body = b"".join(raw.http_response.iter_bytes())

    assert b"look_up" in body
    assert on.calls == []
    on.check_ends()


def _raw(sdks: Sdks, family: str) -> Any:
    client = sdks.client(family)
    resource = {"anthropic": "messages", "responses": "responses"}.get(family)
    return (getattr(client, resource) if resource else client.chat.completions).with_raw_response


def test_r015_abandoned_async_generator_never_touches_a_context(sdks: Sdks, on: Observed) -> None:
    script = anthropic(tool_use(0, "tc_a", "look_up", '{"q":', "1", "}"), text_block(1, "a", "b", "c"))

    async def leave_early() -> None:
        async def app() -> Any:
            async with sdks.async_client("anthropic").messages.stream(**sdks.arguments("anthropic", script)) as stream:
                async for event in stream:
                    yield event

        events = app()
        async for event in events:
            if event.type == "content_block_delta":
                break
        await asyncio.create_task(events.aclose())

        dropped = app()
        async for event in dropped:
            if event.type == "content_block_delta":
                break
        del dropped, event
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(0)

    sdks.run(leave_early())
    sdks.run(sdks.loop.shutdown_asyncgens())

    assert len(on.calls) == 2
    assert [text for text in on.complaints if "opentelemetry.context" in text] == []


def test_r019_stream_in_a_cycle_that_another_thread_collects_ends_quietly(sdks: Sdks, on: Observed) -> None:
    holder: dict[str, Any] = {}
    stream = sdks.create("chat", TWO_CALLS)
    next(stream)
    holder["stream"], holder["self"] = stream, holder
    gc.disable()
    try:
        del stream, holder
        with ThreadPoolExecutor(1) as other:
            other.submit(gc.collect).result()
    finally:
        gc.enable()

    eventually(lambda: on.calls, what="the worker ends what the collector found")
    assert column(on.calls, OUTCOME) == ["abandoned"]
    assert on.complaints == []


def test_r023_parent_is_the_context_of_create_wherever_the_stream_is_read(sdks: Sdks, on: Observed) -> None:
    with on.tracer_provider.get_tracer("app").start_as_current_span("app") as app:
        stream = sdks.create("chat", TWO_CALLS)
    with ThreadPoolExecutor(1) as other:
        other.submit(contextvars.Context().run, list, stream).result()

    assert [turn.parent.span_id for turn in on.turns] == [app.context.span_id]
    assert {call.context.trace_id for call in on.calls} == {app.context.trace_id}


def test_r055_stream_that_is_never_read_starts_no_announced_span(sdks: Sdks, on: Observed) -> None:
    stream = sdks.create("chat", TWO_CALLS)
    asynchronous = sdks.run(sdks.create_async("chat", TWO_CALLS))
    stream.close()
    sdks.run(asynchronous.close())
    del stream, asynchronous
    gc.collect()

    assert on.started("announce_tool") == []
    on.check_ends()


# ---- the SDK's own objects ------------------------------------------------------------------------------------------


def test_r025_raw_response_keeps_its_type_and_its_parsed_stream_is_watched(sdks: Sdks, on: Observed) -> None:
    bare_type = type(_uninstrumented(on, lambda: _raw(sdks, "chat").create(stream=True, **_chat_arguments(sdks))))
    raw = _raw(sdks, "chat").create(stream=True, **_chat_arguments(sdks))
    assert type(raw) is bare_type
    stream = raw.parse()

    assert isinstance(stream, openai_sdk.Stream)
    assert len(list(stream)) == 5
    assert column(on.calls, CALL_ID) == ["tc_a", "tc_b"]


def _chat_arguments(sdks: Sdks) -> dict[str, Any]:
    return sdks.arguments("chat", TWO_CALLS)


def _uninstrumented(on: Observed, make: Callable[[], Any]) -> Any:
    otel_toolcalls.uninstrument()
    try:
        return make()
    finally:
        otel_toolcalls.instrument(**on.providers, **CAPTURE)


def test_r026_headers_and_request_id_are_readable_at_any_time_and_parse_is_memoised(sdks: Sdks, on: Observed) -> None:
    raw = _raw(sdks, "chat").create(stream=True, **_chat_arguments(sdks))
    before = raw.headers["x-request-id"], raw.request_id, raw.http_response.status_code
    stream = raw.parse()
    assert raw.parse() is stream
    list(stream)

    assert (raw.headers["x-request-id"], raw.request_id, raw.http_response.status_code) == before
    assert len(on.calls) == 2


def test_r027_raw_responses_stream_is_not_touched_as_if_it_were_a_response(sdks: Sdks, on: Observed) -> None:
    script = responses(function_call(0, "tc_a", "look_up", "{}"))
    raw = _raw(sdks, "responses").create(stream=True, **sdks.arguments("responses", script))
    events = list(raw.parse())

    assert events[-1].type == "response.completed"
    assert column(on.calls, CALL_ID) == ["tc_a"]
    assert on.total("otel_toolcalls.internal.errors") == 0


def test_r030_helper_closes_the_http_response_that_is_the_sdks_own(sdks: Sdks, on: Observed) -> None:
    async def drain() -> Any:
        client = sdks.async_client("chat")
        async with client.chat.completions.stream(**_chat_arguments(sdks)) as stream:
            async for _ in stream:
                pass
            return stream

    stream = sdks.run(drain())

    assert type(stream._response).__module__.partition(".")[0].startswith("httpx")
    assert stream._response.is_closed
    assert len(on.calls) == 2


def test_r032_next_and_for_mix_and_each_chunk_is_seen_once(sdks: Sdks, on: Observed) -> None:
    stream = sdks.create("chat", TWO_CALLS)
    first = next(stream)
    assert first.choices[0].delta.tool_calls[0].id == "tc_a"
    assert 1 + len(list(stream)) == 5

    async def mixed() -> int:
        asynchronous = await sdks.create_async("chat", TWO_CALLS)
        await anext(asynchronous)
        return 1 + len([chunk async for chunk in asynchronous])

    assert sdks.run(mixed()) == 5
    assert column(on.calls, "otel_toolcalls.call.arguments.fragments") == [2, 2, 2, 2]


def test_r034_every_dunder_of_the_sdks_stream_exists_on_ours(sdks: Sdks, on: Observed) -> None:
    with sdks.create("chat", TWO_CALLS) as stream:
        assert type(stream) is openai_sdk.Stream
        list(stream)

    async def entered() -> type:
        async with await sdks.create_async("chat", TWO_CALLS) as asynchronous:
            async for _ in asynchronous:
                pass
            return type(asynchronous)

    assert sdks.run(entered()) is openai_sdk.AsyncStream
    assert len(on.calls) == 4


def test_r035_async_stream_helper_gives_its_manager_and_no_unawaited_coroutine(sdks: Sdks, on: Observed) -> None:
    script = anthropic(tool_use(0, "tc_a", "look_up", "{}"))

    async def drain() -> str:
        client = sdks.async_client("anthropic")
        async with client.messages.stream(**sdks.arguments("anthropic", script)) as stream:
            async for _ in stream:
                pass
            return (await stream.get_final_message()).content[0].name

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert sdks.run(drain()) == "look_up"
        gc.collect()
    assert len(on.calls) == 1


def test_r038_library_that_calls_through_the_raw_response_works(sdks: Sdks, on: Observed) -> None:
    def library(client: Any) -> Iterator[Any]:
        response = client.chat.completions.with_raw_response.create(stream=True, **_chat_arguments(sdks))
        assert response.headers
        yield from response.parse()

    assert len(list(library(sdks.client("chat")))) == 5
    assert len(on.calls) == 2
    assert on.total("otel_toolcalls.internal.errors") == 0


HELPERS: dict[str, Callable[[Any], Any]] = {
    "text_stream": lambda stream: list(stream.text_stream),
    "get_final_message": lambda stream: stream.get_final_message(),
    "get_final_text": lambda stream: stream.get_final_text(),
    "until_done": lambda stream: stream.until_done(),
    "for": list,
    "mixed": lambda stream: (next(iter(stream)), stream.until_done(), stream.get_final_message()),
}


@pytest.mark.parametrize("helper", HELPERS)
def test_r049_every_way_to_read_the_message_stream_gives_the_same_spans(helper: str, sdks: Sdks, on: Observed) -> None:
    script = anthropic(text_block(0, "well"), tool_use(1, "tc_a", "look_up", '{"q":', "1}"))
    with sdks.helper("anthropic", script) as stream:
        HELPERS[helper](stream)

    assert column(on.calls, CALL_ID) == ["tc_a"]
    assert column(on.calls, ARGUMENTS) == ['{"q":1}']
    assert column(on.calls, OUTCOME) == ["completed"]


ASYNC_HELPERS = ["text_stream", "get_final_message", "get_final_text", "until_done"]


@pytest.mark.parametrize("helper", ASYNC_HELPERS)
def test_r049_every_way_to_read_the_async_message_stream_gives_the_same_spans(
    helper: str, sdks: Sdks, on: Observed
) -> None:
    script = anthropic(text_block(0, "well"), tool_use(1, "tc_a", "look_up", '{"q":', "1}"))

    async def drain() -> None:
        client = sdks.async_client("anthropic")
        async with client.messages.stream(**sdks.arguments("anthropic", script)) as stream:
            if helper == "text_stream":
                assert [text async for text in stream.text_stream] == ["well"]
            else:
                await getattr(stream, helper)()

    sdks.run(drain())

    assert column(on.calls, ARGUMENTS) == ['{"q":1}']
    assert column(on.calls, OUTCOME) == ["completed"]


def test_r051_manager_gives_the_sdks_own_object_with_every_public_helper(sdks: Sdks, on: Observed) -> None:
    script = anthropic(text_block(0, "well"), tool_use(1, "tc_a", "look_up", "{}"))
    with sdks.helper("anthropic", script) as stream:
        assert type(stream) is anthropic_sdk.MessageStream
        assert stream.get_final_message().stop_reason == "tool_use"
        assert stream.get_final_text() == "well"
        assert stream.current_message_snapshot.id == "msg_1"
        assert stream.response.status_code == 200
        stream.until_done()
        stream.close()

    assert len(on.calls) == 1


Item = TypeVar("Item")


def test_r054_sdk_imported_and_client_made_before_instrument_are_watched(sdks: Sdks, observed: Observed) -> None:
    class Subclass(openai_sdk.Stream[Item]):
        """Defined before instrument()."""

    client = sdks.client("chat")
    with observed.instrumented():
        stream = client.chat.completions.create(stream=True, **_chat_arguments(sdks))
        list(stream)
        raw = client.chat.completions.with_raw_response.create(stream=True, **_chat_arguments(sdks))
        list(raw.parse(to=Subclass[openai_sdk.types.chat.ChatCompletionChunk]))

    assert len(observed.calls) == 4
    observed.check()


# ---- the app comes first --------------------------------------------------------------------------------------------


def test_r039_accumulator_that_raises_costs_the_app_nothing(
    sdks: Sdks, observed: Observed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original, count = OpenAIChat._entries, itertools.count(1)

    def entries(self: Any, *args: Any) -> None:
        if next(count) == 2:
            raise ZeroDivisionError("ours")
        original(self, *args)

    monkeypatch.setattr(OpenAIChat, "_entries", entries)
    monkeypatch.setattr(guard, "_logged", set())
    fragments = [chunk(fragment(0, text)) for text in ("1", "2", "3}")]
    with observed.instrumented(), caplog.at_level(logging.WARNING, "otel_toolcalls"):
        reading = read(sdks, "chat", chat(chunk(announced(0, "tc_a", "look_up", '{"q":')), *fragments, FINISHED))

    assert len(reading.events) == 5
    assert len([record for record in caplog.records if record.name.startswith("otel_toolcalls")]) == 1
    assert observed.total("otel_toolcalls.internal.errors") >= 1
    assert len(observed.calls) == 1
    observed.check_ends()


def test_r041_gateway_error_without_choices_passes_and_the_record_goes_on(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "look_up", '{"q":')),
        {"object": "error", "message": "upstream", "choices": None},
        chunk(fragment(0, "1}")),
        FINISHED,
    )
    reading = read(sdks, "chat", script)

    assert len(reading.events) == 4
    assert reading.events[1].choices is None
    assert column(on.calls, OUTCOME) == ["completed"]
    assert column(on.calls, ARGUMENTS) == ['{"q":1}']


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"q": {"enum": ["a", "b"]}}, "required": ["q"]},
        },
    }
]


def test_r042_tool_schemas_with_lists_reach_no_metric(sdks: Sdks, on: Observed) -> None:
    read_all = list(sdks.create("chat", TWO_CALLS, tools=TOOLS))

    assert len(read_all) == 5
    assert on.total("otel_toolcalls.announced.calls", gen_ai__tool__name="look_up") == 2
    assert all(
        isinstance(value, (str, bool, int, float))
        for points in map(on.metric, ("otel_toolcalls.announced.calls", "otel_toolcalls.finished.calls"))
        for point in points
        for _, value in point
    )


def test_r043_optional_parameters_given_as_none_count_as_absent(sdks: Sdks, on: Observed) -> None:
    stream = sdks.create("chat", TWO_CALLS, n=None, tools=None, tool_choice=None, stream_options=None)
    assert len(list(stream)) == 5

    async def drain() -> int:
        asynchronous = await sdks.create_async("chat", TWO_CALLS, n=None, tools=None, tool_choice=None)
        return len([chunk async for chunk in asynchronous])

    assert sdks.run(drain()) == 5
    assert len(on.calls) == 4
    assert on.total("otel_toolcalls.internal.errors") == 0


def test_r044_chunks_without_choices_are_skipped_anywhere(sdks: Sdks, on: Observed) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    script = chat(
        bare_chunk([], prompt_filter_results=[{"prompt_index": 0}]),
        chunk(announced(0, "tc_a", "look_up", '{"q":')),
        bare_chunk([]),
        chunk(fragment(0, "1}")),
        FINISHED,
        bare_chunk([], usage=usage),
    )
    assert len(read(sdks, "chat", script).events) == 6

    assert column(on.calls, OUTCOME) == ["completed"]


# ---- one span for each announced call -------------------------------------------------------------------------------


def test_r058_size_is_the_sum_of_the_fragments(sdks: Sdks, on: Observed) -> None:
    texts = ['{"city":', '"Łódź"', "}"]
    read(
        sdks,
        "chat",
        chat(chunk(announced(0, "tc_a", "look_up")), *[chunk(fragment(0, text)) for text in texts], FINISHED),
    )

    assert column(on.calls, "otel_toolcalls.call.arguments.size") == [len("".join(texts).encode())]
    assert column(on.calls, ARGUMENTS) == ["".join(texts)]


def test_r059_streamed_reply_with_usage_shows_its_call(sdks: Sdks, on: Observed) -> None:
    usage = bare_chunk([], usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})
    script = chat(chunk(announced(0, "tc_a", "look_up", "{}")), chunk(finish="stop"), usage)
    forced = {"type": "function", "function": {"name": "look_up"}}
    list(sdks.create("chat", script, tools=TOOLS, tool_choice=forced, stream_options={"include_usage": True}))

    assert column(on.calls, OUTCOME) == ["completed"]
    message = {"role": "assistant", "content": None, "tool_calls": [announced(0, "tc_b", "look_up", "{}")]}
    reply = {
        **bare_chunk([{"index": 0, "message": message, "finish_reason": "tool_calls"}]),
        "object": "chat.completion",
    }
    sdks.client("chat").chat.completions.create(**sdks.arguments("chat", whole(reply)))

    assert column(on.calls, CALL_ID) == ["tc_a", "tc_b"]
    assert column(on.calls, OUTCOME) == ["completed", "completed"]


CLAUDE = {"anthropic": anthropic(tool_use(0, "tc_a", "look_up", '{"q":', "1}"), tool_use(1, "tc_b", "look_up", "{}"))}
GPT = {
    "chat": TWO_CALLS,
    "responses": responses(function_call(0, "tc_a", "look_up", "{}"), function_call(1, "tc_b", "look_up", "{}")),
}
OTHERS = {
    "opentelemetry-instrumentation-genai-anthropic": ("opentelemetry.instrumentation.genai.anthropic", CLAUDE),
    "opentelemetry-instrumentation-genai-openai": ("opentelemetry.instrumentation.genai.openai", GPT),
    "openinference-instrumentation-anthropic": ("openinference.instrumentation.anthropic", CLAUDE),
    "openinference-instrumentation-openai": ("openinference.instrumentation.openai", GPT),
}
"""Distribution → its module, and by family the replies that it sees."""


@pytest.mark.parametrize("reader", ["create", "helper"])
@pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "ours second"])
@pytest.mark.parametrize(
    ("other", "family"), [(other, family) for other, (_, replies) in OTHERS.items() for family in replies]
)
def test_r063_with_another_instrumentor_there_is_one_inference_span_and_one_span_of_ours_per_call(
    other: str, family: str, ours_first: bool, reader: str, sdks: Sdks, observed: Observed
) -> None:
    module, replies = OTHERS[other]
    name = "AnthropicInstrumentor" if replies is CLAUDE else "OpenAIInstrumentor"
    instrumentor = getattr(pytest.importorskip(module, reason=f"{other} is not installed"), name)()

    def instrument_other() -> None:
        instrumentor.instrument(tracer_provider=observed.tracer_provider, meter_provider=observed.meter_provider)

    if not ours_first:
        instrument_other()
    try:
        with observed.instrumented():
            if ours_first:
                instrument_other()
            read(sdks, family, replies[family], reader)
            gc.collect()
    finally:
        instrumentor.uninstrument()

    assert observed.turns == [span for span in observed.turns if span.instrumentation_scope.name != "otel_toolcalls"]
    (inference,) = [span for span in observed.spans if span.instrumentation_scope.name != "otel_toolcalls"]
    assert column(observed.calls, CALL_ID) == ["tc_a", "tc_b"]
    assert {call.parent.span_id for call in observed.calls} == {inference.context.span_id}


# ---- patches --------------------------------------------------------------------------------------------------------


def _public_and_private_attributes() -> dict[tuple[str, str], Any]:
    """Every attribute of every class and module of the two SDKs that is loaded, by identity."""
    found: dict[tuple[str, str], Any] = {}
    for module_name, module in sorted(sys.modules.items()):
        if module_name.partition(".")[0] not in ("anthropic", "openai") or module is None:
            continue
        for name, value in list(vars(module).items()):
            found[module_name, name] = value
            # Not isinstance(): openai's lazy proxies make their client when they are asked for their class.
            if issubclass(type(value), type) and value.__module__.partition(".")[0] in ("anthropic", "openai"):
                owner = f"{value.__module__}.{value.__qualname__}"
                found.update(((owner, key), member) for key, member in list(vars(value).items()))
    return found


def test_r067_uninstrument_restores_every_attribute_to_the_identical_object(sdks: Sdks, observed: Observed) -> None:
    for family in ("anthropic", "chat", "responses", "bedrock"):
        assert sdks.client(family)
    before = _public_and_private_attributes()
    with observed.instrumented():
        during = _public_and_private_attributes()
    after = _public_and_private_attributes()

    changed = {key for key, value in before.items() if during.get(key) is not value}
    assert ("anthropic.Stream", "__stream__") in changed
    assert ("openai.AsyncStream", "__stream__") in changed
    assert {key for key, value in before.items() if after.get(key) is not value} - _volatile(before) == set()


def _volatile(before: dict[tuple[str, str], Any]) -> set[tuple[str, str]]:
    """Attributes that change by themselves, as pydantic's and abc's caches do."""
    now = _public_and_private_attributes()
    again = _public_and_private_attributes()
    return {key for key in before if now.get(key) is not again.get(key)}


def test_r068_spans_go_to_the_provider_that_is_on_and_open_streams_finish_where_they_began(
    sdks: Sdks, observed: Observed
) -> None:
    second = Observed()
    with observed.instrumented():
        opened_under_first = sdks.create("chat", TWO_CALLS)
        next(opened_under_first)
    with second.instrumented():
        read(sdks, "chat", TWO_CALLS)
        list(opened_under_first)
    read(sdks, "chat", TWO_CALLS)

    assert len(observed.calls) == 2
    assert len(second.calls) == 2
    observed.check()
    second.check()
    second.close()


@pytest.mark.parametrize("missing", ["anthropic", "openai"])
def test_r071_one_missing_target_leaves_the_others_patched(
    missing: str, sdks: Sdks, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = {"anthropic": anthropic_sdk, "openai": openai_sdk}[missing]._streaming
    monkeypatch.delattr(module.AsyncStream, "__stream__")
    assert sdks.client("chat")

    with observed.instrumented():
        for family, script in (
            ("anthropic", anthropic(tool_use(0, "tc_a", "look_up", "{}"))),
            ("chat", TWO_CALLS),
            ("responses", responses(function_call(0, "tc_a", "look_up", "{}"))),
        ):
            read(sdks, family, script)

    assert len(observed.calls) == 4


def test_r072_moved_target_is_told_in_one_warning_that_names_sdk_and_version(
    sdks: Sdks, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(openai_sdk._streaming.AsyncStream, "__stream__")

    with observed.instrumented():
        read(sdks, "chat", TWO_CALLS)

    (warning,) = observed.complaints
    assert "openai" in warning
    assert openai_sdk.__version__ in warning
    assert len(observed.calls) == 2


# ---- content and memory ---------------------------------------------------------------------------------------------

MARKER = "marker-7f3a91"


def test_r074_with_content_off_a_marker_is_in_no_exported_field_on_any_path(sdks: Sdks, observed: Observed) -> None:
    argument = json.dumps({"secret": MARKER})
    half = len(argument) // 2
    pieces = argument[:half], argument[half:]
    result = [
        {"role": "user", "content": MARKER},
        {"role": "assistant", "tool_calls": [announced(0, "tc_0", "look_up", argument)]},
        {"role": "tool", "tool_call_id": "tc_0", "content": MARKER},
    ]
    message = {"role": "assistant", "content": MARKER, "tool_calls": [announced(0, "tc_w", "look_up", argument)]}
    reply = {
        **bare_chunk([{"index": 0, "message": message, "finish_reason": "tool_calls"}]),
        "object": "chat.completion",
    }
    with observed.instrumented():
        for reader in ("create", "create_async", "helper"):
            read(sdks, "anthropic", anthropic(tool_use(0, "tc_a", "look_up", *pieces)), reader)
            read(sdks, "responses", responses(function_call(0, "tc_b", "look_up", *pieces)), reader)
            read(sdks, "chat", chat(chunk(announced(0, "tc_c", "look_up", argument)), FINISHED), reader)
        list(sdks.create("chat", chat(chunk(announced(0, "tc_d", "look_up", argument[:-1])), FINISHED)))
        list(sdks.create("chat", chat(chunk(announced(0, "tc_e", "look_up", argument)), done=False)))
        list(sdks.create("chat", chat(chunk(fragment(3, argument)), chunk(finish="length"))))
        list(sdks.create("chat", chat(chunk(content=MARKER), FINISHED), messages=result))
        list(sdks.create("anthropic", anthropic(tool_use(0, "tc_f", "look_up", argument)[1:])))
        sdks.client("chat").chat.completions.create(**sdks.arguments("chat", whole(reply)))

    assert len(observed.calls) >= 12
    assert MARKER not in observed.everything()
    assert argument[:half] not in observed.everything()


def test_r076_abandoned_streams_leave_nothing_behind(sdks: Sdks, observed: Observed) -> None:
    """Five hundred here, not the report's ten thousand: what is asserted is none left, not a bound."""

    def kept() -> int:
        gc.collect()
        owners = (str(type(thing).__module__) for thing in gc.get_objects())
        return sum(owner.startswith("otel_toolcalls.") and ".cli." not in owner for owner in owners)

    with observed.instrumented():
        before = kept()
        for _ in range(500):
            stream = sdks.create("chat", TWO_CALLS)
            next(stream)
            stream.close()
        del stream
        after = kept()

    assert len(observed.calls) == 500
    assert after - before < 10


def _bytes_kept(root: object) -> int:
    """Size of what an object of ours keeps alive: our own objects, containers and text, no classes or modules."""
    containers = (str, bytes, list, dict, tuple, set, deque)
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        thing = waiting.pop()
        ours = type(thing).__module__.startswith("otel_toolcalls")
        if id(thing) not in seen and (ours or isinstance(thing, containers)):
            seen[id(thing)] = thing
            waiting.extend(gc.get_referents(thing))
    return sum(map(sys.getsizeof, seen.values()))


def test_r078_with_content_off_chunks_are_not_buffered(sdks: Sdks, observed: Observed) -> None:
    begun, first, last, closed = tool_use(1, "tc_a", "look_up", '{"q":', "1}")
    opened, text, ended = text_block(0, "x" * 20)
    beginning, end = anthropic(opened, begun, first), anthropic(last, closed, ended)
    script = Script([*beginning.pieces[:-2], *[sse(text)] * 50_000, *end.pieces[1:]])
    with observed.instrumented(), sdks.create("anthropic", script) as stream:
        for _ in itertools.islice(stream, 100):
            pass
        (turn,) = [thing for thing in gc.get_objects() if type(thing).__qualname__ == "Turn" and not thing.over]
        early = _bytes_kept(turn)
        for _ in itertools.islice(stream, 49_000):
            pass
        late = _bytes_kept(turn)
        events = [thing for thing in gc.get_objects() if type(thing).__qualname__ == "RawContentBlockDeltaEvent"]
        list(stream)

    assert late - early < 1_000
    assert len(events) <= 2
    assert column(observed.calls, OUTCOME) == ["completed"]


SHAPES: dict[str, tuple[int, Callable[[int], Script]]] = {
    "fragments of one call": (
        100_000,
        lambda number: anthropic(tool_use(0, "tc_0", "look_up", '{"q":"', *["x"] * number, '"}')),
    ),
    "calls of 50 fragments": (
        500,
        lambda number: anthropic(
            *[tool_use(n, f"tc_{n}", "look_up", '{"q":"', *["x"] * 48, '"}') for n in range(number)]
        ),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_r079_assembly_of_many_costs_no_more_for_each(shape: str, sdks: Sdks, observed: Observed) -> None:
    many, script = SHAPES[shape]
    with observed.instrumented():
        few = [_calls_made_by_us(partial(read, sdks, "anthropic", script(number))) for number in (20, 40, 80)]
        observed.forget()
        read(sdks, "anthropic", script(many))

    # Twice as many more of them make twice as many more calls; were it quadratic, four times as many.
    assert few[2] - few[1] < 3 * (few[1] - few[0])
    sizes = column(observed.calls, "otel_toolcalls.call.arguments.size")
    assert sizes == ([100_008] if shape == "fragments of one call" else [56] * 500)
    assert set(column(observed.calls, OUTCOME)) == {"completed"}


def _calls_made_by_us(run: Callable[[], object]) -> int:
    """How many functions, of Python and of C, are called from the package while ``run`` does its work."""
    package = str(Path(otel_toolcalls.__file__).parent)
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        caller = frame if event == "c_call" else frame.f_back if event == "call" else None
        count += caller is not None and caller.f_code.co_filename.startswith(package)

    gc.collect()
    gc.disable()  # each of its runs calls us too, whenever it happens to come
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


# ---- chat completions and the servers that imitate them -------------------------------------------------------------


def test_r081_index_always_zero_with_distinct_ids_gives_a_span_each(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "write_note", '{"p":1}')),
        chunk(announced(0, "tc_b", "write_note", '{"p":2}')),
        FINISHED,
    )
    read(sdks, "chat", script)

    assert column(on.calls, CALL_ID) == ["tc_a", "tc_b"]
    assert column(on.calls, ARGUMENTS) == ['{"p":1}', '{"p":2}']
    assert column(on.calls, INDEX) == [0, 0]
    assert column(on.calls, "otel_toolcalls.call.ordinal") == [0, 1]
    assert "index_reused" in on.calls[1].attributes["otel_toolcalls.call.anomalies"]


def test_r083_call_with_and_call_without_index_are_two_spans(sdks: Sdks, on: Observed) -> None:
    unplaced = tool(id="tc_b", type="function", name="look_up", arguments='{"q":2}')
    read(sdks, "chat", chat(chunk(announced(0, "tc_a", "look_up", '{"q":1}')), chunk(unplaced), FINISHED))

    assert column(on.calls, CALL_ID) == ["tc_a", "tc_b"]
    assert column(on.calls, INDEX) == [0, None]
    assert column(on.calls, ARGUMENTS) == ['{"q":1}', '{"q":2}']
    assert "index_missing" in on.calls[1].attributes["otel_toolcalls.call.anomalies"]


def test_r089_two_entries_of_one_index_in_the_first_delta_are_one_call(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "look_up", '{"q":'), fragment(0, '"a')),
        chunk(fragment(0, 'b"}')),
        FINISHED,
    )
    read(sdks, "chat", script)

    assert column(on.calls, ARGUMENTS) == ['{"q":"ab"}']


def test_r091_gateway_that_gives_every_call_index_zero_gives_two_spans(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "look_up")),
        chunk(fragment(0, '{"q":')),
        chunk(fragment(0, "1}")),
        chunk(announced(0, "tc_b", "look_up")),
        chunk(fragment(0, '{"q":')),
        chunk(fragment(0, "2}")),
        FINISHED,
    )
    read(sdks, "chat", script)

    assert column(on.calls, CALL_ID) == ["tc_a", "tc_b"]
    assert column(on.calls, ARGUMENTS) == ['{"q":1}', '{"q":2}']


def test_r093_index_that_restarts_with_each_chunk_gives_three_spans(sdks: Sdks, on: Observed) -> None:
    chunks = [chunk(announced(0, f"tc_{n}", "look_up", f'{{"q":{n}}}')) for n in range(3)]
    read(sdks, "chat", chat(*chunks, FINISHED))

    assert column(on.calls, CALL_ID) == ["tc_0", "tc_1", "tc_2"]
    assert column(on.calls, INDEX) == [0, 0, 0]
    assert column(on.calls, ARGUMENTS) == ['{"q":0}', '{"q":1}', '{"q":2}']


def test_r099_several_json_values_on_one_call_are_counted_and_fail_it(sdks: Sdks, on: Observed) -> None:
    chunks = [chunk(announced(0, "tc_a", "look_up", f'{{"q":{n}}}')) for n in range(3)]
    read(sdks, "chat", chat(*chunks, FINISHED))

    assert column(on.calls, OUTCOME) == ["invalid"]
    assert column(on.calls, "otel_toolcalls.call.arguments.values") == [3]
    assert "arguments_merged" in on.call.attributes["otel_toolcalls.call.anomalies"]


def test_r100_new_name_after_arguments_have_begun_is_a_new_call(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(tool(index=0, name="look_up", arguments='{"q":1}')),
        chunk(tool(index=0, name="send_mail", arguments='{"to":2}')),
        FINISHED,
    )
    read(sdks, "chat", script)

    assert column(on.calls, "gen_ai.tool.name") == ["look_up", "send_mail"]
    assert column(on.calls, ARGUMENTS) == ['{"q":1}', '{"to":2}']


def test_r101_interleaved_fragments_go_where_their_index_says(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "look_up", '{"q":"')),
        chunk(announced(1, "tc_b", "look_up", '{"q":"')),
        chunk(fragment(0, "refu"), fragment(1, "op")),
        chunk(fragment(1, 'en"}')),
        chunk(fragment(0, 'nded"}')),
        FINISHED,
    )
    read(sdks, "chat", script)

    assert column(on.calls, ARGUMENTS) == ['{"q":"refunded"}', '{"q":"open"}']
    assert column(on.calls, "otel_toolcalls.call.anomalies") == [None, None]


def test_r103_id_repeated_on_each_fragment_is_one_call(sdks: Sdks, on: Observed) -> None:
    texts = ['{"q":', '"a', "b", "c", '"}']
    entries = [tool(index=0, id="tc_a", type="function", name="look_up", arguments=texts[0])]
    entries += [tool(index=0, id="tc_a", arguments=text) for text in texts[1:]]
    read(sdks, "chat", chat(*map(chunk, entries), FINISHED))

    assert column(on.calls, ARGUMENTS) == ['{"q":"abc"}']


def test_r104_empty_name_and_id_on_continuations_change_nothing(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "plan_trip", '{"to":')),
        chunk(tool(index=0, id="", type="function", name="", arguments="1}")),
        FINISHED,
    )
    read(sdks, "chat", script)

    assert [call.name for call in on.calls] == ["announce_tool plan_trip"]
    assert column(on.calls, CALL_ID) == ["tc_a"]
    assert column(on.calls, ARGUMENTS) == ['{"to":1}']


def test_r105_nulls_on_continuations_change_nothing(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "plan_trip", '{"to":')),
        chunk(tool(index=0, id=None, type=None, name=None, arguments="1}")),
        FINISHED,
    )
    read(sdks, "chat", script)

    assert [call.name for call in on.calls] == ["announce_tool plan_trip"]
    assert column(on.calls, CALL_ID) == ["tc_a"]
    assert column(on.calls, ARGUMENTS) == ['{"to":1}']


def test_r106_empty_id_on_continuations_is_no_new_call(sdks: Sdks, on: Observed) -> None:
    pieces = [tool(index=0, id="", type="function", arguments=text) for text in ("1", "2", "}")]
    read(sdks, "chat", chat(chunk(announced(0, "tc_a", "look_up", '{"q":')), *map(chunk, pieces), FINISHED))

    assert column(on.calls, CALL_ID) == ["tc_a"]
    assert column(on.calls, ARGUMENTS) == ['{"q":12}']


def test_r111_id_that_returns_each_round_gives_a_span_each_round(sdks: Sdks, on: Observed) -> None:
    for n in range(3):
        read(sdks, "chat", chat(chunk(announced(0, "search:0", "search", f'{{"q":{n}}}')), FINISHED))

    assert column(on.calls, CALL_ID) == ["search:0"] * 3
    assert len(set(column(on.calls, KEY))) == 3
    assert column(on.calls, ARGUMENTS) == ['{"q":0}', '{"q":1}', '{"q":2}']


def test_r117_call_without_an_id_has_no_id_attribute(sdks: Sdks, on: Observed) -> None:
    read(sdks, "chat", chat(chunk(tool(index=0, name="look_up", arguments="{}")), FINISHED))

    assert CALL_ID not in on.call.attributes
    assert on.call.attributes[KEY]
    assert "id_missing" in on.call.attributes["otel_toolcalls.call.anomalies"]


def test_r120_name_that_comes_late_names_a_span_that_began_with_the_first_fragment(sdks: Sdks, on: Observed) -> None:
    hold = threading.Event()
    script = chat(
        chunk(tool(id="tc_a", type="function", arguments='{"q":')),
        chunk(tool(arguments="1")),
        chunk(tool(name="look_up", arguments="}")),
        FINISHED,
        hold=hold,
        hold_after=1,
    )
    with sdks.create("chat", script) as stream:
        next(stream)
        first_read = time.time_ns()
        hold.set()
        list(stream)

    assert [call.name for call in on.calls] == ["announce_tool look_up"]
    assert column(on.calls, ARGUMENTS) == ['{"q":1}']
    assert on.call.start_time <= first_read


def test_r120_name_that_never_comes_leaves_a_span_without_one(sdks: Sdks, on: Observed) -> None:
    read(sdks, "chat", chat(chunk(tool(id="tc_a", type="function", arguments="{}")), FINISHED))

    assert [call.name for call in on.calls] == ["announce_tool"]
    assert column(on.calls, CALL_ID) == ["tc_a"]


def test_r121_arguments_as_an_object_raise_nothing(sdks: Sdks, on: Observed) -> None:
    entry = tool(index=0, id="tc_a", type="function", name="look_up", arguments={"q": 1})
    reading = read(sdks, "chat", chat(chunk(entry), FINISHED))

    assert reading.events[0].choices[0].delta.tool_calls[0].function.arguments == {"q": 1}
    assert column(on.calls, OUTCOME) == ["completed"]
    assert json.loads(on.call.attributes[ARGUMENTS]) == {"q": 1}
    assert on.total("otel_toolcalls.internal.errors") == 0


def test_r127_cut_call_is_not_completed_though_the_reason_says_tool_calls(sdks: Sdks, on: Observed) -> None:
    read(sdks, "chat", chat(chunk(announced(0, "tc_a", "look_up", '{"city": "Par')), FINISHED))

    assert column(on.calls, OUTCOME) == ["invalid"]
    assert column(on.calls, "error.type") == ["invalid_arguments"]


def test_r135_clean_disconnect_without_a_finish_abandons_the_calls(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "look_up", '{"q":1}')), chunk(announced(1, "tc_b", "look_up", '{"q":')), done=False
    )
    read(sdks, "chat", script)

    assert column(on.calls, OUTCOME) == ["abandoned", "abandoned"]
    assert column(on.calls, "error.type") == ["stream_ended", "stream_ended"]


def test_r141_choices_with_the_same_index_are_apart(sdks: Sdks, on: Observed) -> None:
    script = chat(
        chunk(announced(0, "tc_a", "look_up", '{"q":'), choice=0),
        chunk(announced(0, "tc_b", "look_up", '{"q":'), choice=1),
        chunk(fragment(0, "1}"), choice=0),
        chunk(fragment(0, "2}"), choice=1),
        chunk(finish="tool_calls", choice=0),
        chunk(finish="tool_calls", choice=1),
    )
    read(sdks, "chat", script)

    assert column(on.calls, ARGUMENTS) == ['{"q":1}', '{"q":2}']
    assert column(on.calls, "otel_toolcalls.choice.index") == [None, 1]


def test_r159_empty_id_is_no_id_and_our_own_key_is_apart(sdks: Sdks, on: Observed) -> None:
    entry = tool(index=0, id="", type="function", name="look_up", arguments="{}")
    read(sdks, "chat", chat(chunk(entry), FINISHED))

    assert CALL_ID not in on.call.attributes
    assert on.call.attributes[KEY]


# ---- responses ------------------------------------------------------------------------------------------------------


def test_r115_id_of_a_responses_call_is_its_call_id(sdks: Sdks, on: Observed) -> None:
    read(sdks, "responses", responses(function_call(0, "tc_1", "look_up", "{}", item_id="fc_1")))

    assert column(on.calls, CALL_ID) == ["tc_1"]


def test_r116_items_that_share_a_made_up_item_id_are_two_calls(sdks: Sdks, on: Observed) -> None:
    script = responses(
        function_call(0, "tc_a", "look_up", '{"q":', "1}", item_id="__x__"),
        function_call(1, "tc_b", "look_up", '{"q":', "2}", item_id="__x__"),
    )
    read(sdks, "responses", script)

    assert column(on.calls, CALL_ID) == ["tc_a", "tc_b"]
    assert column(on.calls, ARGUMENTS) == ['{"q":1}', '{"q":2}']


def test_r155_replay_of_a_resumed_response_announces_nothing_twice(sdks: Sdks, observed: Observed) -> None:
    both = [function_call(0, "tc_a", "look_up", '{"q":', "1}"), function_call(1, "tc_b", "look_up", '{"q":', "2}")]
    with observed.instrumented(**CAPTURE):
        read(sdks, "responses", responses(both[0], end=None))
        headers = sdks.server.put(responses(*both))
        with sdks.client("responses").responses.retrieve("resp_1", stream=True, extra_headers=headers) as resumed:
            assert len(list(resumed)) == 2 + 2 * 5

    assert column(observed.calls, CALL_ID) == ["tc_a", "tc_b"]
    assert column(observed.calls, OUTCOME) == ["completed", "completed"]
    # The response is one turn with one span, and that had ended, with its counts, when it was read on.
    assert len(observed.turns) == 1
    observed.check_ends()
    assert observed.complaints == []


def test_r155_suffix_of_a_resumed_response_without_an_announcement_is_tolerated(sdks: Sdks, on: Observed) -> None:
    script = responses(function_call(0, "tc_a", "look_up", '{"q":', "1}")[2:], start=False)
    headers = sdks.server.put(script)
    client = sdks.client("responses")
    with client.responses.retrieve("resp_1", stream=True, starting_after=3, extra_headers=headers) as resumed:
        assert len(list(resumed)) == 4

    assert column(on.calls, CALL_ID) == ["tc_a"]
    assert column(on.calls, OUTCOME) == ["completed"]
    assert column(on.calls, ARGUMENTS) == ['{"q":1}']
    assert "announced_late" in on.call.attributes["otel_toolcalls.call.anomalies"]
    assert on.total("otel_toolcalls.violations") == 0


# ---- anthropic ------------------------------------------------------------------------------------------------------


def test_r123_call_without_any_fragment_is_completed_and_empty(sdks: Sdks, on: Observed) -> None:
    read(sdks, "anthropic", anthropic(tool_use(0, "tc_a", "look_up")))

    assert column(on.calls, OUTCOME) == ["completed"]
    assert column(on.calls, "otel_toolcalls.call.arguments.size") == [0]


def test_r139_reason_that_promises_a_call_when_none_came_is_noted_on_the_turn(sdks: Sdks, on: Observed) -> None:
    read(sdks, "anthropic", anthropic(stop="tool_use"))

    assert on.started("announce_tool") == []
    assert "finish_without_call" in on.turns[0].attributes["otel_toolcalls.turn.anomalies"]


def test_r144_fifty_threads_share_nothing(sdks: Sdks, on: Observed) -> None:
    tracer = on.tracer_provider.get_tracer("app")
    client = sdks.client("anthropic")
    start = threading.Barrier(10)

    def run(number: int) -> tuple[int, int]:
        script = anthropic(tool_use(0, f"tc_{number}", "look_up", '{"q":', str(number), "}"))
        if number < 10:
            start.wait(10)
        with tracer.start_as_current_span("app", context=Context()) as app:
            for _ in client.messages.create(stream=True, **sdks.arguments("anthropic", script)):
                pass
        return number, app.get_span_context().trace_id

    with ThreadPoolExecutor(10) as pool:
        traces = dict(pool.map(run, range(50)))

    assert len(on.calls) == 50
    for call in on.calls:
        number = json.loads(call.attributes[ARGUMENTS])["q"]
        assert call.attributes[CALL_ID] == f"tc_{number}"
        assert call.context.trace_id == traces[number]


# ---- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not REPORTS, reason=f"77 reports skipped: {SHARED.name} of the shared folder is absent")
def test_each_report_has_a_test_or_a_reason_why_not_yet() -> None:
    here = Path(__file__).parent
    sources = [path.read_text() for path in (here / "test_reports.py", here / "test_reports_ledger.py")]
    tested = {name for source in sources for name in re.findall(r"^def test_(r\d{3})_", source, re.MULTILINE)}

    assert tested | LATER.keys() == REPORTS.keys()
    assert tested & LATER.keys() == set()
    assert len(REPORTS) == 77
