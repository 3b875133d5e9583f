"""Situations from public bug reports about a call after its announcement: dispatched, answered, or lost.

Named like the tests of ``test_reports.py``, and counted with them there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

import otel_toolcalls
from tests.cases.observed import Observed
from tests.cases.replay import Script, Sdks
from tests.cases.wires import announced, chat, chunk, function_call, responses, tool

pytestmark = pytest.mark.slow

CALL_ID = "gen_ai.tool.call.id"
NAME = "gen_ai.tool.name"
REASON = "otel_toolcalls.undispatched.reason"
MATCH = "otel_toolcalls.dispatch.match"


def column(spans: list[ReadableSpan], name: str) -> list[Any]:
    return [dict(span.attributes or {}).get(name) for span in spans]


def read(sdks: Sdks, script: Script, family: str = "chat", **more: Any) -> None:
    assert list(sdks.create(family, script, **more))


def calls(*entries: tuple[str, str], finish: str = "tool_calls") -> Script:
    """A reply that announces these calls, each an id and a name."""
    deltas = [
        chunk(tool(index=index, id=call_id, type="function", name=name, arguments="{}"))
        for index, (call_id, name) in enumerate(entries)
    ]
    return chat(*deltas, chunk(finish=finish))


def conversation(announced_ids: dict[str, str], answered: list[str]) -> list[dict[str, Any]]:
    """The messages of a request that carries these calls, and the results of some of them."""
    entries = [announced(index, call_id, name, "{}") for index, (call_id, name) in enumerate(announced_ids.items())]
    results = [{"role": "tool", "tool_call_id": call_id, "content": "done"} for call_id in answered]
    return [{"role": "user", "content": "hello"}, {"role": "assistant", "tool_calls": entries}, *results]


WORDS = chat(chunk(content="well"), chunk(finish="stop"))

PATIENCE_SECONDS = 20.0


def eventually(condition: Callable[[], bool]) -> bool:
    """Waits for what a background thread is to do."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


@contextmanager
def following(observed: Observed, **settings: Any) -> Iterator[Observed]:
    """The package is on, hurries with siblings, and its account closes at the end."""
    with observed.instrumented(**{"sibling_grace": 0.0, **settings}):
        yield observed
        check_account(observed)
    observed.check()


def check_account(observed: Observed) -> None:
    """Completed client calls = settled + undispatched + pending."""
    completed = observed.total(
        "otel_toolcalls.finished.calls", otel_toolcalls__call__outcome="completed", otel_toolcalls__call__kind="client"
    )
    settled = observed.total("otel_toolcalls.settled.calls")
    lost = observed.total("otel_toolcalls.undispatched.calls")
    waiting = observed.total("otel_toolcalls.pending.calls")
    assert completed == settled + lost + waiting
    assert waiting == len(otel_toolcalls.pending())
    assert lost == len(observed.of("await_dispatch"))


@pytest.fixture
def on(observed: Observed) -> Iterator[Observed]:
    with following(observed):
        yield observed


def test_r022_dispatch_in_a_pool_without_a_context_meets_the_announced_call(sdks: Sdks, on: Observed) -> None:
    with on.tracer_provider.get_tracer("app").start_as_current_span("app"):
        read(sdks, calls(("tc_a", "look_up"), ("tc_b", "look_up")))

        def run(call_id: str) -> None:
            with otel_toolcalls.dispatch(call_id, name="look_up"):
                pass

        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(run, call_id) for call_id in ("tc_a", "tc_b")]:
                future.result()

    announcements = {call.attributes[CALL_ID]: call.context.span_id for call in on.calls}
    executions = on.of("execute_tool")
    assert sorted(column(executions, CALL_ID)) == ["tc_a", "tc_b"]
    assert column(executions, MATCH) == ["matched", "matched"]
    for execution in executions:
        assert execution.parent.span_id == announcements[execution.attributes[CALL_ID]]
        assert execution.context.trace_id == on.calls[0].context.trace_id
    assert not otel_toolcalls.pending()


def test_r077_call_that_nobody_runs_is_judged_at_its_deadline(sdks: Sdks, observed: Observed) -> None:
    with following(observed, dispatch_deadline=0.05):
        read(sdks, calls(("tc_a", "look_up"), ("tc_b", "look_up")))
        assert eventually(lambda: len(observed.of("await_dispatch")) == 2)
        assert column(observed.of("await_dispatch"), REASON) == ["deadline", "deadline"]
        assert not otel_toolcalls.pending()


def test_r077_table_of_waiting_calls_is_bounded_and_evicted_calls_are_reported(sdks: Sdks, observed: Observed) -> None:
    with following(observed, ledger_capacity=3):
        read(sdks, calls(*[(f"tc_{n}", "look_up") for n in range(5)]))
        assert eventually(lambda: len(observed.of("await_dispatch")) == 2)
        assert column(observed.of("await_dispatch"), CALL_ID) == ["tc_0", "tc_1"]
        assert column(observed.of("await_dispatch"), REASON) == ["evicted", "evicted"]
        assert [entry.call_id for entry in otel_toolcalls.pending()] == ["tc_2", "tc_3", "tc_4"]


def test_r108_parallel_calls_that_share_an_id_are_two_spans_and_wait_apart(sdks: Sdks, on: Observed) -> None:
    read(sdks, calls(("tc_x", "look_up"), ("tc_x", "look_up")))

    assert column(on.calls, CALL_ID) == ["tc_x", "tc_x"]
    assert column(on.calls, "otel_toolcalls.call.index") == [0, 1]
    assert [entry.call_id for entry in otel_toolcalls.pending()] == ["tc_x", "tc_x"]
    with otel_toolcalls.dispatch("tc_x", name="look_up"):
        pass
    assert [entry.call_id for entry in otel_toolcalls.pending()] == ["tc_x"]


def test_r110_id_that_returns_in_the_next_turn_waits_for_a_dispatch_of_its_own(sdks: Sdks, on: Observed) -> None:
    read(sdks, calls(("list:0", "list")))
    with otel_toolcalls.dispatch("list:0", name="list"):
        pass
    read(sdks, calls(("list:0", "list")))
    second = on.calls[1]
    otel_toolcalls.shutdown()

    (lost,) = on.of("await_dispatch")
    assert (lost.parent.trace_id, lost.parent.span_id) == (second.context.trace_id, second.context.span_id)
    assert lost.attributes["otel_toolcalls.call.key"] == second.attributes["otel_toolcalls.call.key"]


def test_r110_dispatch_settles_the_newest_open_call_of_that_id_and_no_other(sdks: Sdks, on: Observed) -> None:
    read(sdks, calls(("list:0", "list")))
    read(sdks, calls(("list:0", "list")))
    with otel_toolcalls.dispatch("list:0", name="list"):
        pass

    (execution,) = on.of("execute_tool")
    assert execution.attributes["otel_toolcalls.call.key"] == on.calls[1].attributes["otel_toolcalls.call.key"]
    assert [entry.key for entry in otel_toolcalls.pending()] == [on.calls[0].attributes["otel_toolcalls.call.key"]]


@pytest.mark.parametrize("names", [("look_up", "send_mail"), ("look_up", "look_up")], ids=["two names", "one name"])
def test_r113_of_two_calls_without_ids_the_one_that_is_not_run_is_judged(
    names: tuple[str, str], sdks: Sdks, on: Observed
) -> None:
    read(sdks, calls(("", names[0]), ("", names[1])))
    with otel_toolcalls.dispatch(name=names[1]):
        pass
    otel_toolcalls.shutdown()

    (execution,) = on.of("execute_tool")
    assert execution.attributes["otel_toolcalls.dispatch.ambiguous"] is True
    (lost,) = on.of("await_dispatch")
    assert lost.attributes[NAME] == names[0]
    keys = {span.attributes["otel_toolcalls.call.key"] for span in (execution, lost)}
    assert keys == set(column(on.calls, "otel_toolcalls.call.key"))


def test_r115_output_that_names_the_call_id_answers_a_responses_call(sdks: Sdks, on: Observed) -> None:
    read(sdks, responses(function_call(0, "tc_1", "look_up", "{}", item_id="fc_1")), "responses")
    follow_up = [
        {"type": "function_call", "id": "fc_1", "call_id": "tc_1", "name": "look_up", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "tc_1", "output": "done"},
    ]
    assert [entry.call_id for entry in otel_toolcalls.pending()] == ["tc_1"]
    read(sdks, responses(), "responses", input=follow_up)

    assert not otel_toolcalls.pending()
    assert on.total("otel_toolcalls.settled.calls", otel_toolcalls__settled__by="answer") == 1


def test_r129_calls_of_an_unknown_finish_reason_are_judged_together(sdks: Sdks, on: Observed) -> None:
    read(sdks, calls(*[(f"tc_{n}", "look_up") for n in range(3)], finish="other"))
    otel_toolcalls.shutdown()

    lost = on.of("await_dispatch")
    assert sorted(column(lost, CALL_ID)) == ["tc_0", "tc_1", "tc_2"]
    assert {span.context.trace_id for span in lost} == {on.turns[0].context.trace_id}
    assert {span.parent.span_id for span in lost} == {call.context.span_id for call in on.calls}


def test_r146_siblings_of_an_answered_call_are_judged_and_it_is_not(sdks: Sdks, on: Observed) -> None:
    turn = {"tc_a": "look_up", "tc_b": "look_up", "tc_c": "send_mail"}
    read(sdks, calls(*turn.items()))
    read(sdks, WORDS, messages=conversation(turn, answered=["tc_a"]))

    assert eventually(lambda: len(on.of("await_dispatch")) == 2)
    assert sorted(column(on.of("await_dispatch"), CALL_ID)) == ["tc_b", "tc_c"]
    assert column(on.of("await_dispatch"), REASON) == ["siblings_answered", "siblings_answered"]
    assert not otel_toolcalls.pending()


def test_r148_run_that_was_cancelled_is_not_one_that_never_began(sdks: Sdks, on: Observed) -> None:
    read(sdks, calls(("tc_a", "look_up")))

    async def interrupted() -> None:
        begun = asyncio.Event()

        async def run() -> None:
            async with otel_toolcalls.dispatch("tc_a", name="look_up"):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(run())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    sdks.run(interrupted())
    otel_toolcalls.shutdown()

    (execution,) = on.of("execute_tool")
    assert execution.attributes[MATCH] == "matched"
    assert "CancelledError" in execution.attributes["error.type"]
    assert on.of("await_dispatch") == []


def test_r151_call_that_a_framework_answers_without_running_is_not_lost(sdks: Sdks, observed: Observed) -> None:
    turn = {"tc_a": "final_result", "tc_b": "send_mail"}
    with following(observed, exempt_tools=["final_*"]):
        read(sdks, calls(*turn.items()))
        read(sdks, WORDS, messages=conversation(turn, answered=["tc_a", "tc_b"]))
        otel_toolcalls.shutdown()
        assert observed.of("await_dispatch") == []
        assert column(observed.calls, "otel_toolcalls.call.exempt") == [True, None]
        assert observed.total("otel_toolcalls.settled.calls", otel_toolcalls__settled__by="exempt") == 1
        assert observed.total("otel_toolcalls.settled.calls", otel_toolcalls__settled__by="answer") == 1


def test_r155_replay_of_a_resumed_response_does_not_wait_twice(sdks: Sdks, on: Observed) -> None:
    item = function_call(0, "tc_a", "look_up", '{"q":', "1}")
    read(sdks, responses(item, end=None), "responses")
    headers = sdks.server.put(responses(item))
    with sdks.client("responses").responses.retrieve("resp_1", stream=True, extra_headers=headers) as resumed:
        assert list(resumed)

    assert len(on.calls) == 1
    assert len(otel_toolcalls.pending()) <= 1


def test_r157_second_dispatch_of_a_call_is_counted_as_a_duplicate(sdks: Sdks, on: Observed) -> None:
    read(sdks, calls(("tc_a", "look_up")))
    for _ in range(2):
        with otel_toolcalls.dispatch("tc_a", name="look_up"):
            pass

    executions = on.of("execute_tool")
    assert column(executions, MATCH) == ["matched", "duplicate"]
    assert column(executions, "otel_toolcalls.dispatch.count") == [None, 2]
    assert on.total("otel_toolcalls.settled.calls") == 1


@pytest.mark.parametrize("how", ["exempt", "acknowledged"])
def test_r168_call_that_the_front_end_runs_has_a_span_and_is_not_lost(how: str, sdks: Sdks, observed: Observed) -> None:
    with following(observed, exempt_tools=["show_map"] if how == "exempt" else []):
        read(sdks, calls(("tc_a", "show_map")))
        if how == "acknowledged":
            otel_toolcalls.acknowledge("tc_a", by="browser")
        otel_toolcalls.shutdown()
        assert column(observed.calls, NAME) == ["show_map"]
        assert observed.of("await_dispatch") == []
        acknowledged = observed.of("acknowledge_tool")
        assert column(acknowledged, "otel_toolcalls.acknowledged.by") == ([] if how == "exempt" else ["browser"])
