"""Promises that were broken once, each with the real SDK over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import sys
import threading
import time
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

import otel_toolcalls
from otel_toolcalls import conventions as c
from otel_toolcalls import runtime
from otel_toolcalls.accumulator import json_text
from otel_toolcalls.config import SettingsError, resolve
from tests.support.account import Account
from tests.support.account import account as account  # noqa: PLC0414  # a fixture
from tests.support.loopback import ModelServer
from tests.support.loopback import model_server as model_server  # noqa: PLC0414  # a fixture
from tests.support.replies import Announced, anthropic_reply, chat_reply

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")

REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
TWO = anthropic_reply([Announced("tu_1", "t"), Announced("tu_2", "t")])


def _anthropic(server: ModelServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0)


def _openai(server: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)


def _on(account: Account, start: threading.Barrier | None = None) -> None:
    if start is not None:
        start.wait()
    otel_toolcalls.instrument(
        tracer_provider=account.tracer_provider,
        meter_provider=account.meter_provider,
        logger_provider=account.logger_provider,
    )


def test_threads_that_instrument_at_once_observe_each_call_once(model_server: ModelServer) -> None:
    account = Account()
    before, interval = vars(anthropic.Stream)["__stream__"], sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(10):
            start = threading.Barrier(8)
            threads = [threading.Thread(target=_on, args=(account, start)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            model_server.reply(TWO)
            list(_anthropic(model_server).messages.create(**REQUEST, stream=True))
            otel_toolcalls.uninstrument()
            assert vars(anthropic.Stream)["__stream__"] is before
    finally:
        sys.setswitchinterval(interval)
    assert len(account.of(c.OP_ANNOUNCE)) == 2 * 10


def test_a_call_that_completes_after_uninstrument_is_not_judged_lost(model_server: ModelServer) -> None:
    account = Account()
    _on(account)
    model_server.reply(TWO)
    events = iter(_anthropic(model_server).messages.create(**REQUEST, stream=True))
    next(events)
    otel_toolcalls.uninstrument()
    list(events)
    runtime._end_all()
    assert account.lost == []
    account.check()


@pytest.mark.parametrize("index", [[0], {"a": 1}])
def test_a_call_at_an_index_that_is_no_key_has_its_span(
    account: Account, model_server: ModelServer, index: object
) -> None:
    model_server.reply(TWO.replace('"index": 1', f'"index": {json.dumps(index)}'))
    list(_anthropic(model_server).messages.create(**REQUEST, stream=True))
    assert [span.attributes[c.CALL_OUTCOME] for span in account.of(c.OP_ANNOUNCE)] == ["completed"] * 2


def test_a_request_closed_in_another_context_raises_nothing_of_ours(account: Account) -> None:
    client = anthropic.AsyncAnthropic(base_url="http://127.0.0.1:9", api_key="x", max_retries=0)
    request = client.messages.create(**REQUEST, stream=True)

    async def begin() -> None:
        contextvars.copy_context().run(request.send, None)
        with contextlib.suppress(anthropic.APIConnectionError):  # the SDK's own
            request.close()

    asyncio.run(begin())


@pytest.mark.parametrize(("call_id", "spans"), [("a", 1), (None, 2)])
def test_one_dispatch_object_entered_twice_leaves_the_context_as_it_was(
    account: Account, call_id: str | None, spans: int
) -> None:
    once = otel_toolcalls.dispatch(call_id, name="t")
    with once, once:
        pass
    once.__exit__(None, None, None)
    assert not trace.get_current_span().get_span_context().is_valid
    assert len(account.of(c.OP_EXECUTE)) == spans


def test_a_dispatch_settles_its_call_where_its_span_cannot_be_made(model_server: ModelServer) -> None:
    class Raising(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            if span.name.startswith(c.OP_EXECUTE):
                raise RuntimeError

    account = Account()
    account.tracer_provider.add_span_processor(Raising())
    _on(account)
    try:
        model_server.reply(TWO)
        list(_anthropic(model_server).messages.create(**REQUEST, stream=True))
        with otel_toolcalls.dispatch("tu_1"):
            pass
        assert [entry.call_id for entry in otel_toolcalls.pending()] == ["tu_2"]
    finally:
        otel_toolcalls.uninstrument()


def test_results_in_an_extra_body_answer_their_calls(account: Account, model_server: ModelServer) -> None:
    client = _openai(model_server)
    model_server.reply(chat_reply([Announced("call_1", "t")]))
    list(client.chat.completions.create(model="m", messages=[], stream=True))
    model_server.reply(chat_reply([]))
    body = {"messages": [{"role": "tool", "tool_call_id": "call_1", "content": "r"}]}
    list(client.chat.completions.create(model="m", messages=[], stream=True, extra_body=body))
    assert not otel_toolcalls.pending()


def test_a_raw_response_read_as_text_first_is_observed_when_it_is_parsed(
    account: Account, model_server: ModelServer
) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    model_server.reply({"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
    raw = _openai(model_server).chat.completions.with_raw_response.create(model="m", messages=[])
    raw.parse(to=str)
    raw.parse()
    raw.parse()
    assert len(account.of(c.OP_ANNOUNCE)) == 1


def test_counting_merged_values_does_not_delay_the_app() -> None:
    began = time.perf_counter()
    assert json_text(["{}" * 500_000]).values == 100
    assert time.perf_counter() - began < 0.5


@pytest.mark.parametrize(
    "setting",
    [
        {"ledger_capacity": float("inf")},
        {"dispatch_deadline": 10**400},
        {"dispatch_deadlines": '{"a": ' + "9" * 400 + "}"},
        {"dispatch_deadlines": "[" * 100_000},
    ],
)
def test_a_number_out_of_range_is_a_settings_error(setting: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        resolve(setting, {})


def test_each_instrumentation_that_is_undone_leaves_no_thread(model_server: ModelServer) -> None:
    def ours() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "otel-toolcalls"]

    before = len(ours())
    for _ in range(3):
        otel_toolcalls.instrument()
        model_server.reply(anthropic_reply([]))
        with anthropic.Anthropic(api_key="test", base_url=model_server.url) as client:
            list(
                client.messages.create(
                    model="m", max_tokens=9, messages=[{"role": "user", "content": "q"}], stream=True
                )
            )
        otel_toolcalls.uninstrument()
    assert len(ours()) == before
