"""`dispatch()` around a tool's body, and `acknowledge()`: the span, its link, and which call it settles.

The calls are announced by replies read through the real SDKs; what became of each is checked at the end of each test.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import StatusCode

import otel_toolcalls
from otel_toolcalls import conventions as c
from otel_toolcalls.cli.model_server import ModelServer
from otel_toolcalls.dispatch import ExecutionAdopter
from otel_toolcalls.ledger import Claim, Entry
from otel_toolcalls.ledger.account import MemoryAccount
from otel_toolcalls.ledger.book import Ledger
from otel_toolcalls.turn import Call
from tests.support.account import Account
from tests.support.conversation import Claude, Gpt
from tests.support.replies import Announced, chat_reply

ORDER = Announced("call_order", "get_order", '{"number": "4821"}')
NAME = Announced("call_name", "get_name", '{"id": "7"}')


@pytest.fixture
def claude(model_server: ModelServer) -> Claude:
    return Claude(model_server)


@pytest.fixture
def gpt(model_server: ModelServer) -> Gpt:
    return Gpt(model_server)


def announced(account: Account, call_id: str) -> ReadableSpan:
    """The newest announcement of that id."""
    return [span for span in account.of(c.OP_ANNOUNCE) if span.attributes.get(c.TOOL_CALL_ID) == call_id][-1]


def only(account: Account, operation: str = c.OP_EXECUTE) -> ReadableSpan:
    (span,) = account.of(operation)
    return span


def matches(account: Account) -> list[Any]:
    return [span.attributes[c.DISPATCH_MATCH] for span in account.of(c.OP_EXECUTE)]


# ---- each way to say that a call runs --------------------------------------------------------------------------------


def with_block(call_id: str, body: Callable[[], str]) -> str:
    with otel_toolcalls.dispatch(call_id, name="get_order"):
        return body()


def async_with_block(call_id: str, body: Callable[[], str]) -> str:
    async def run() -> str:
        async with otel_toolcalls.dispatch(call_id, name="get_order"):
            return body()

    return asyncio.run(run())


def decorated(call_id: str, body: Callable[[], str]) -> str:
    @otel_toolcalls.dispatch
    def get_order(call_id: str) -> str:
        return body()

    return get_order(call_id)


def decorated_with_names(call_id: str, body: Callable[[], str]) -> str:
    @otel_toolcalls.dispatch(name="get_order", parameter="of")
    def tool(number: str, *, of: str) -> str:
        return body()

    return tool("4821", of=call_id)


def decorated_coroutine_function(call_id: str, body: Callable[[], str]) -> str:
    @otel_toolcalls.dispatch(name="get_order")
    async def tool(tool_use_id: str) -> str:
        await asyncio.sleep(0)
        return body()

    return asyncio.run(tool(call_id))


def decorated_method(call_id: str, body: Callable[[], str]) -> str:
    class Shop:
        @otel_toolcalls.dispatch(name="get_order")
        def tool(self, tool_call_id: str) -> str:
            return body()

    return Shop().tool(call_id)


def decorated_class_method(call_id: str, body: Callable[[], str]) -> str:
    class Shop:
        @otel_toolcalls.dispatch
        @classmethod
        def get_order(cls, call_id: str) -> str:
            assert cls is Shop
            return body()

    return Shop.get_order(call_id)


def decorated_static_method(call_id: str, body: Callable[[], str]) -> str:
    class Shop:
        @otel_toolcalls.dispatch(name="get_order")
        @staticmethod
        def tool(call_id: str) -> str:
            return body()

    return Shop().tool(call_id)


def get_order(number: str, body: Callable[[], str], call_id: str) -> str:
    return body()


def decorated_partial(call_id: str, body: Callable[[], str]) -> str:
    tool = otel_toolcalls.dispatch(functools.partial(functools.partial(get_order, "4821"), body=body))
    assert tool.__name__ == "get_order"
    return tool(call_id=call_id)


def decorated_partial_that_holds_the_id(call_id: str, body: Callable[[], str]) -> str:
    return otel_toolcalls.dispatch(functools.partial(get_order, "4821", call_id=call_id))(body)


def decorated_partial_of_a_coroutine_function(call_id: str, body: Callable[[], str]) -> str:
    async def get_order(number: str, call_id: str) -> str:
        await asyncio.sleep(0)
        return body()

    return asyncio.run(otel_toolcalls.dispatch(functools.partial(get_order, "4821"))(call_id))


def decorated_callable_object(call_id: str, body: Callable[[], str]) -> str:
    class Tool:
        def __call__(self, call_id: str) -> str:
            return body()

    return otel_toolcalls.dispatch(name="get_order")(Tool())(call_id)


def decorated_callable_object_that_is_awaited(call_id: str, body: Callable[[], str]) -> str:
    class Tool:
        async def __call__(self, call_id: str) -> str:
            await asyncio.sleep(0)
            return body()

    return asyncio.run(otel_toolcalls.dispatch(name="get_order")(Tool())(call_id))


def decorated_generator_function(call_id: str, body: Callable[[], str]) -> str:
    @otel_toolcalls.dispatch
    def get_order(call_id: str) -> Iterator[str]:
        yield "a piece"
        yield body()

    return list(get_order(call_id))[-1]


def decorated_async_generator_function(call_id: str, body: Callable[[], str]) -> str:
    @otel_toolcalls.dispatch
    async def get_order(call_id: str) -> AsyncIterator[str]:
        yield "a piece"
        await asyncio.sleep(0)
        yield body()

    async def run() -> str:
        return [piece async for piece in get_order(call_id)][-1]

    return asyncio.run(run())


WAYS = [
    with_block,
    async_with_block,
    decorated,
    decorated_with_names,
    decorated_coroutine_function,
    decorated_method,
    decorated_class_method,
    decorated_static_method,
    decorated_partial,
    decorated_partial_that_holds_the_id,
    decorated_partial_of_a_coroutine_function,
    decorated_callable_object,
    decorated_callable_object_that_is_awaited,
    decorated_generator_function,
    decorated_async_generator_function,
]
in_each_way = pytest.mark.parametrize("run", WAYS, ids=[way.__name__ for way in WAYS])


@in_each_way
def test_a_dispatch_settles_the_call_and_is_a_span_of_its_own(
    account: Account, claude: Claude, run: Callable[..., str]
) -> None:
    claude.turn(ORDER)
    assert run(ORDER.id, lambda: "shipped") == "shipped"
    span, call = only(account), announced(account, ORDER.id)
    assert span.name == "execute_tool get_order"
    assert span.attributes[c.TOOL_NAME] == "get_order"
    assert span.attributes[c.TOOL_TYPE] == "function"
    assert span.attributes[c.TOOL_CALL_ID] == ORDER.id
    assert span.attributes[c.CALL_KEY] == call.attributes[c.CALL_KEY]
    assert span.attributes[c.DISPATCH_MATCH] == "matched"
    assert span.status.status_code is StatusCode.UNSET
    assert account.total(c.SETTLED_CALLS, by="dispatch") == 1
    assert account.total(c.DISPATCHED_CALLS, match="matched") == 1
    assert otel_toolcalls.pending() == []


@in_each_way
def test_the_span_is_current_in_the_body_and_no_longer_after_it(
    account: Account, claude: Claude, run: Callable[..., str]
) -> None:
    claude.turn(ORDER)
    before = otel_context.get_current()
    inside: list[int] = []

    def body() -> str:
        inside.append(trace.get_current_span().get_span_context().span_id)
        return ""

    run(ORDER.id, body)
    assert inside == [only(account).context.span_id]
    assert otel_context.get_current() is before


@in_each_way
def test_an_exception_marks_the_span_and_passes_unchanged(
    account: Account, claude: Claude, run: Callable[..., str]
) -> None:
    claude.turn(ORDER)
    error = LookupError("4821")

    def body() -> str:
        raise error

    with pytest.raises(LookupError) as raised:
        run(ORDER.id, body)
    assert raised.value is error
    span = only(account)
    assert span.attributes[c.ERROR_TYPE] == "LookupError"
    assert span.status.status_code is StatusCode.ERROR
    assert not span.status.description
    assert span.events == ()
    assert account.total(c.SETTLED_CALLS, by="dispatch") == 1


@in_each_way
def test_nothing_happens_while_nothing_is_instrumented(run: Callable[..., str]) -> None:
    before = otel_context.get_current()
    assert run(ORDER.id, lambda: "shipped") == "shipped"
    otel_toolcalls.acknowledge(ORDER.id, by="browser")
    assert otel_context.get_current() is before


def test_a_failure_without_an_exception_is_a_word_of_the_tools_own(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    with otel_toolcalls.dispatch(ORDER.id) as execution:
        execution.fail("out_of_stock")
    span = only(account)
    assert span.name == "execute_tool get_order"
    assert (span.attributes[c.ERROR_TYPE], span.status.status_code) == ("out_of_stock", StatusCode.ERROR)


def test_a_decorator_needs_a_parameter_for_the_call_id() -> None:
    with pytest.raises(TypeError, match=r"get_order receives no call id: expected a parameter call_id or tool_call_id"):

        @otel_toolcalls.dispatch
        def get_order(number: str) -> str:
            return number


def test_a_decorated_function_is_called_wrongly_as_before(account: Account) -> None:
    @otel_toolcalls.dispatch
    def get_order(call_id: str) -> str:
        return call_id

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        get_order()
    assert get_order.__name__ == "get_order"
    assert matches(account) == ["unmatched"]


class Tool:
    def __init__(self, call_id: str) -> None:
        pass


@pytest.mark.parametrize(
    ("what", "got"),
    [
        (Tool, "Tool"),
        (property(lambda self: "4821"), "property"),
        (functools.partialmethod(get_order, "4821"), "partialmethod"),
    ],
    ids=["a class", "a property", "a partial method"],
)
def test_what_is_no_function_is_refused_where_it_is_decorated(what: Any, got: str) -> None:
    for decorate in (otel_toolcalls.dispatch, otel_toolcalls.dispatch(name="get_order")):
        with pytest.raises(TypeError) as raised:
            decorate(what)
        assert str(raised.value) == f"dispatch: expected a function that receives the call id; got {got}"


def test_a_decorated_function_stays_of_its_kind() -> None:
    async def coroutine(call_id: str) -> str:
        return ""

    def generator(call_id: str) -> Iterator[str]:
        yield ""

    async def async_generator(call_id: str) -> AsyncIterator[str]:
        yield ""

    for function, is_such in (
        (coroutine, inspect.iscoroutinefunction),
        (generator, inspect.isgeneratorfunction),
        (async_generator, inspect.isasyncgenfunction),
    ):
        wrapped = otel_toolcalls.dispatch(function)
        assert is_such(wrapped)
        assert wrapped.__name__ == function.__name__
        assert inspect.signature(wrapped) == inspect.signature(function)


# ---- generators ------------------------------------------------------------------------------------------------------


def current_span_id() -> int:
    return trace.get_current_span().get_span_context().span_id


def test_a_generator_runs_from_its_first_step_to_its_last_and_is_current_in_none_between(
    account: Account, claude: Claude
) -> None:
    claude.turn(ORDER)
    tracer, inside = account.tracer_provider.get_tracer("app"), []

    @otel_toolcalls.dispatch
    def get_order(call_id: str) -> Iterator[str]:
        inside.append(current_span_id())
        with tracer.start_as_current_span("query") as query:
            yield "a"
            inside.append(current_span_id() == query.get_span_context().span_id)
            yield "b"
        inside.append(current_span_id())

    before, running = otel_context.get_current(), get_order(ORDER.id)
    assert [entry.call_id for entry in otel_toolcalls.pending()] == [ORDER.id], "it has not begun to run"
    for expected in ("a", "b"):
        assert next(running) == expected
        assert otel_context.get_current() is before
        assert account.of(c.OP_EXECUTE) == []
    assert list(running) == []
    span = only(account)
    assert inside == [span.context.span_id, True, span.context.span_id]
    assert otel_context.get_current() is before


def test_what_is_sent_and_thrown_into_a_generator_arrives_and_what_it_returns_comes_out(
    account: Account, claude: Claude
) -> None:
    claude.turn(ORDER)

    @otel_toolcalls.dispatch
    def get_order(call_id: str) -> Generator[str, str, str]:
        try:
            heard = yield "ask"
        except LookupError as error:
            heard = yield f"caught {error}"
        return f"heard {heard}"

    def caller() -> Generator[str, str, str]:
        return (yield from get_order(ORDER.id))

    running = caller()
    assert next(running) == "ask"
    assert running.throw(LookupError("nothing")) == "caught nothing"
    with pytest.raises(StopIteration) as end:
        running.send("4821")
    assert end.value.value == "heard 4821"
    assert c.ERROR_TYPE not in only(account).attributes


async def test_what_is_sent_and_thrown_into_an_async_generator_arrives(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)

    @otel_toolcalls.dispatch
    async def get_order(call_id: str) -> Any:
        try:
            yield "ask"
        except LookupError as error:
            yield f"heard {(yield f'caught {error}')}"

    running = get_order(ORDER.id)
    assert await anext(running) == "ask"
    assert await running.athrow(LookupError("nothing")) == "caught nothing"
    assert await running.asend("4821") == "heard 4821"
    assert [piece async for piece in running] == []
    assert c.ERROR_TYPE not in only(account).attributes


def test_a_generator_that_is_left_early_is_closed_and_has_not_failed(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    inside = []

    @otel_toolcalls.dispatch
    def get_order(call_id: str) -> Iterator[str]:
        try:
            yield "a"
        finally:
            inside.append(current_span_id())

    running = get_order(ORDER.id)
    next(running)
    running.close()
    span = only(account)
    assert inside == [span.context.span_id]
    assert (span.status.status_code, span.attributes.get(c.ERROR_TYPE)) == (StatusCode.UNSET, None)


async def test_an_async_generator_that_is_left_early_is_closed_and_has_not_failed(
    account: Account, claude: Claude
) -> None:
    claude.turn(ORDER)
    inside = []

    @otel_toolcalls.dispatch
    async def get_order(call_id: str) -> AsyncIterator[str]:
        try:
            yield "a"
        finally:
            await asyncio.sleep(0)
            inside.append(current_span_id())

    running = get_order(ORDER.id)
    await anext(running)
    await running.aclose()  # type: ignore[attr-defined]
    span = only(account)
    assert inside == [span.context.span_id]
    assert (span.status.status_code, span.attributes.get(c.ERROR_TYPE)) == (StatusCode.UNSET, None)


async def test_an_async_generator_may_be_read_by_one_task_after_another(
    account: Account, claude: Claude, caplog: pytest.LogCaptureFixture
) -> None:
    claude.turn(ORDER)

    @otel_toolcalls.dispatch
    async def get_order(call_id: str) -> AsyncIterator[int]:
        for _ in range(3):
            await asyncio.sleep(0)
            yield current_span_id()

    running = get_order(ORDER.id)

    async def step() -> int:
        return await anext(running, 0)

    with caplog.at_level(logging.DEBUG, "opentelemetry.context"):
        seen = [await asyncio.create_task(step()) for _ in range(4)]
    assert seen == [only(account).context.span_id] * 3 + [0]
    assert caplog.records == []


# ---- content ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "recorded"), [("no_content", None), ("span_only", '{"status": "shipped"}')])
def test_a_result_is_recorded_only_where_capture_is_on(claude: Claude, mode: str, recorded: str | None) -> None:
    with Account().instrumented(capture_content=mode) as account:
        claude.turn(ORDER, NAME)
        with otel_toolcalls.dispatch(ORDER.id) as execution:
            execution.result({"status": "shipped"})

        @otel_toolcalls.dispatch
        def get_name(call_id: str) -> dict[str, str]:
            return {"status": "shipped"}

        get_name(NAME.id)
        assert [span.attributes.get(c.TOOL_CALL_RESULT) for span in account.of(c.OP_EXECUTE)] == [recorded] * 2


def test_a_result_that_has_no_text_does_not_reach_the_app(account: Account, claude: Claude) -> None:
    class Mute:
        def __str__(self) -> str:
            raise AssertionError("nobody asked")

    claude.turn(ORDER)
    with otel_toolcalls.dispatch(ORDER.id) as execution:
        execution.result(Mute())
    assert matches(account) == ["matched"]


# ---- links and parents -----------------------------------------------------------------------------------------------


def test_under_a_current_span_the_execution_is_linked_to_its_call(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    tracer = account.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("agent") as agent, otel_toolcalls.dispatch(ORDER.id):
        pass
    span, call = only(account), announced(account, ORDER.id)
    assert span.parent.span_id == agent.get_span_context().span_id
    (link,) = span.links
    assert (link.context.trace_id, link.context.span_id) == (call.context.trace_id, call.context.span_id)
    assert link.attributes == {
        c.LINK_TYPE: "announced_by",
        c.CALL_KEY: call.attributes[c.CALL_KEY],
        c.TOOL_CALL_ID: ORDER.id,
    }


def test_without_a_current_span_the_execution_is_a_child_of_its_call_and_not_linked(
    account: Account, claude: Claude
) -> None:
    claude.turn(ORDER)
    with otel_toolcalls.dispatch(ORDER.id):
        pass
    span, call = only(account), announced(account, ORDER.id)
    assert (span.parent.span_id, span.context.trace_id) == (call.context.span_id, call.context.trace_id)
    assert span.links == ()


def test_spans_of_the_body_are_children_of_the_execution(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    tracer = account.tracer_provider.get_tracer("app")
    with otel_toolcalls.dispatch(ORDER.id), tracer.start_as_current_span("query") as query:
        pass
    assert query.parent.span_id == only(account).context.span_id


# ---- which call it meets ---------------------------------------------------------------------------------------------


class Incomparable:
    """As a table of numbers is, whose equality is a table too."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth of a table is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def test_what_the_app_keeps_in_its_context_is_never_compared(account: Account, claude: Claude) -> None:
    def keep_a_table() -> None:
        otel_context.attach(otel_context.set_value("table", Incomparable()))

    def run() -> None:
        keep_a_table()
        with otel_toolcalls.dispatch("call_nobody", name="get_order"):
            keep_a_table()
            raise KeyError("the app's own")

    with pytest.raises(KeyError, match="the app's own"):
        contextvars.Context().run(run)
    assert only(account).attributes[c.ERROR_TYPE] == "KeyError"


def test_a_dispatch_of_an_id_that_nobody_announced_is_unmatched(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    with otel_toolcalls.dispatch("call_other", name="get_order"):
        pass
    span = only(account)
    assert span.attributes[c.DISPATCH_MATCH] == "unmatched"
    assert (span.parent, span.links, span.attributes.get(c.CALL_KEY)) == (None, (), None)
    assert account.total(c.DISPATCHED_CALLS, match="unmatched", name="_OTHER") == 1
    assert [entry.call_id for entry in otel_toolcalls.pending()] == [ORDER.id]


def test_a_second_dispatch_of_a_call_is_a_duplicate(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    for _ in range(2):
        with otel_toolcalls.dispatch(ORDER.id):
            pass
    assert matches(account) == ["matched", "duplicate"]
    assert [span.attributes.get(c.DISPATCH_COUNT) for span in account.of(c.OP_EXECUTE)] == [None, 2]
    assert account.total(c.SETTLED_CALLS) == 1


def test_a_dispatch_after_the_answer_is_the_first_dispatch_and_settles_nothing(
    account: Account, claude: Claude
) -> None:
    claude.turn(ORDER)
    claude.answer(ORDER.id)
    with otel_toolcalls.dispatch(ORDER.id):
        pass
    assert matches(account) == ["matched"]
    assert [account.total(c.SETTLED_CALLS, by=by) for by in ("answer", "dispatch")] == [1, 0]


def test_a_dispatch_after_the_judgement_is_marked_late_with_its_true_delay(claude: Claude) -> None:
    with Account().instrumented(dispatch_deadline=0.05) as account:
        claude.turn(ORDER)
        account.wait_for(lambda: account.lost)
        with otel_toolcalls.dispatch(ORDER.id):
            pass
        span, call = only(account), announced(account, ORDER.id)
        assert account.lost == [(ORDER.id, "deadline")]
        assert (span.attributes[c.DISPATCH_MATCH], span.attributes[c.DISPATCH_LATE]) == ("matched", True)
        delay = span.attributes[c.DISPATCH_DELAY]
        assert delay >= 0.05
        assert delay == pytest.approx((span.start_time - call.end_time) / 1e9, abs=0.02)
        assert account.total(c.SETTLED_CALLS) == 0


def test_of_two_choices_that_share_an_id_each_dispatch_takes_another(account: Account, gpt: Gpt) -> None:
    shared = Announced("call_0", "get_order")
    first, second = (chat_reply([shared], choice=choice) for choice in range(2))
    gpt.server.reply(first.removesuffix("data: [DONE]\n\n") + second)
    for _ in gpt.send():
        pass
    for _ in range(2):
        with otel_toolcalls.dispatch("call_0"):
            pass
    runs = account.of(c.OP_EXECUTE)
    assert [run.attributes[c.DISPATCH_MATCH] for run in runs] == ["matched", "matched"]
    assert [run.attributes.get(c.DISPATCH_AMBIGUOUS) for run in runs] == [True, None]
    assert len({run.attributes[c.CALL_KEY] for run in runs}) == 2


def test_an_id_that_repeats_in_a_later_turn_means_the_call_of_that_turn(account: Account, gpt: Gpt) -> None:
    repeated = Announced("search:0", "search")
    for _ in range(3):
        gpt.turn(repeated)
        with otel_toolcalls.dispatch("search:0"):
            pass
        gpt.answer("search:0")
    keys = [span.attributes[c.CALL_KEY] for span in account.of(c.OP_ANNOUNCE)]
    assert [span.attributes[c.CALL_KEY] for span in account.of(c.OP_EXECUTE)] == keys
    assert matches(account) == ["matched"] * 3
    assert not any(c.DISPATCH_AMBIGUOUS in span.attributes for span in account.of(c.OP_EXECUTE))
    answered = [
        link.attributes[c.CALL_KEY]
        for span in account.of(c.OP_CHAT)
        for link in span.links
        if link.attributes[c.LINK_TYPE] == "answers"
    ]
    assert answered == keys


def test_calls_without_an_id_are_met_by_name_and_in_order_and_it_says_so(account: Account, gpt: Gpt) -> None:
    gpt.turn(Announced("", "search", '{"q": 1}'), Announced("", "order"), Announced("", "search", '{"q": 2}'))
    for name in ("search", "search", "order"):
        with otel_toolcalls.dispatch(name=name):
            pass
    by_key = {span.attributes[c.CALL_KEY]: span.attributes[c.CALL_ORDINAL] for span in account.of(c.OP_ANNOUNCE)}
    runs = account.of(c.OP_EXECUTE)
    assert [by_key[run.attributes[c.CALL_KEY]] for run in runs] == [0, 2, 1]
    assert all(run.attributes[c.DISPATCH_AMBIGUOUS] for run in runs)
    assert not any(c.TOOL_CALL_ID in run.attributes for run in runs)


# ---- before the stream is over ---------------------------------------------------------------------------------------


def test_a_call_that_is_complete_can_be_dispatched_while_the_stream_goes_on(account: Account, claude: Claude) -> None:
    for event in claude.stream(ORDER, NAME):
        if event.type == "content_block_stop" and event.index in (1, 2):
            with otel_toolcalls.dispatch((ORDER, NAME)[event.index - 1].id):
                pass
            assert otel_toolcalls.pending() == []
    assert matches(account) == ["matched", "matched"]
    assert account.total(c.SETTLED_CALLS, by="dispatch") == 2


def test_a_call_that_is_not_complete_yet_can_be_dispatched(account: Account, claude: Claude) -> None:
    for event in claude.stream(ORDER):
        if event.type == "content_block_start" and event.index == 1:
            for _ in range(2):
                with otel_toolcalls.dispatch(ORDER.id):
                    pass
    call, first, _ = announced(account, ORDER.id), *account.of(c.OP_EXECUTE)
    assert matches(account) == ["matched", "duplicate"]
    assert first.attributes[c.DISPATCH_DELAY] == 0
    assert first.parent.span_id == call.context.span_id
    assert account.total(c.SETTLED_CALLS, by="dispatch") == 1
    assert otel_toolcalls.pending() == []


def test_a_call_that_was_dispatched_and_then_cut_off_settles_nothing(account: Account, claude: Claude) -> None:
    body = claude.reply([ORDER])
    stream = claude.stream(ORDER, cut=body.index("event: content_block_stop", body.index("input_json_delta")))

    def read() -> None:
        for event in stream:
            if event.type == "content_block_start" and event.index == 1:
                with otel_toolcalls.dispatch(ORDER.id):
                    pass

    with pytest.raises(Exception, match=r"incomplete|closed|peer"):
        read()
    assert matches(account) == ["matched"]
    assert announced(account, ORDER.id).attributes[c.CALL_OUTCOME] == "abandoned"
    assert (account.total(c.SETTLED_CALLS), account.total(c.PENDING_CALLS)) == (0, 0)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_dispatch_in_the_moment_in_which_its_call_enters_the_account_settles_it(
    account: Account, claude: Claude, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    add = MemoryAccount.add

    def run(entry: Entry) -> None:
        with otel_toolcalls.dispatch(entry.call_id):
            pass

    def interrupted(self: MemoryAccount, entry: Entry) -> None:
        if moment == "before":
            in_a_thread(lambda: run(entry))
        add(self, entry)
        if moment == "after":
            in_a_thread(lambda: run(entry))

    monkeypatch.setattr(MemoryAccount, "add", interrupted)
    claude.turn(ORDER)
    assert matches(account) == ["matched"]
    assert account.total(c.SETTLED_CALLS, by="dispatch") == 1


def test_a_dispatch_that_finds_its_call_open_and_settles_it_only_after_its_end(
    account: Account, claude: Claude, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, claim_early = claude.stream(ORDER), Ledger._claim_early

    def overtaken(self: Ledger, call: Call, claim: Claim, then: Callable[[Any], None]) -> None:
        in_a_thread(lambda: [None for _ in stream])  # the call was found open; now it is complete, and in its account
        assert [entry.call_id for entry in otel_toolcalls.pending()] == [ORDER.id]
        claim_early(self, call, claim, then)

    for event in stream:
        if event.type == "content_block_start" and event.index == 1:
            break
    monkeypatch.setattr(Ledger, "_claim_early", overtaken)
    with otel_toolcalls.dispatch(ORDER.id):
        pass
    assert matches(account) == ["matched"]
    assert account.total(c.SETTLED_CALLS, by="dispatch") == 1
    assert otel_toolcalls.pending() == []


# ---- what an app may say that is no text -----------------------------------------------------------------------------

HALF = "call_\ud83d"
"""Half of a surrogate pair, as JSON can spell it."""


def execute(account: Account) -> None:
    tracer = account.tracer_provider.get_tracer("framework")
    with tracer.start_as_current_span("running tool", attributes=execution_of(HALF)):
        pass


def run_by_id(account: Account) -> None:
    with otel_toolcalls.dispatch(HALF, name=HALF) as execution:
        execution.fail(HALF)


def run_by_decoration(account: Account) -> None:
    @otel_toolcalls.dispatch
    def get_order(call_id: str) -> None:
        assert call_id == HALF, "it gets what it was given"

    get_order(HALF)


def run_elsewhere(account: Account) -> None:
    otel_toolcalls.acknowledge(HALF, by=HALF, name=HALF)


@pytest.mark.parametrize("say", [run_by_id, run_by_decoration, run_elsewhere, execute])
def test_half_a_surrogate_pair_in_an_id_meets_the_call_that_has_it_and_can_be_exported(
    account: Account, claude: Claude, say: Callable[[Account], None]
) -> None:
    trace_encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    claude.turn(Announced(HALF, "get_order"))
    assert [entry.call_id for entry in otel_toolcalls.pending()] == ["call_?"]
    say(account)
    assert otel_toolcalls.pending() == []
    ours = [span for span in account.spans if span.name != "running tool"]
    assert trace_encoder.encode_spans(ours).SerializeToString()


class Stubborn:
    """Nothing can be asked of it."""

    def __bool__(self) -> bool:
        raise AssertionError("nobody asked")

    __str__ = __repr__ = __len__ = __eq__ = __hash__ = __bool__  # type: ignore[assignment]


@pytest.mark.parametrize("what", [None, 7, b"call_order", "", Stubborn()], ids=lambda what: type(what).__name__)
def test_what_is_no_text_raises_nothing_and_says_nothing(account: Account, claude: Claude, what: Any) -> None:
    claude.turn(ORDER)
    otel_toolcalls.acknowledge(ORDER.id, by=what)
    otel_toolcalls.acknowledge(what, by=what, name=what)
    with otel_toolcalls.dispatch(what, name=what) as execution:
        execution.fail(what)
    told, stray = account.of(c.OP_ACKNOWLEDGE)
    assert [span.attributes[c.ACKNOWLEDGED_BY] for span in (told, stray)] == ["unknown"] * 2
    assert told.attributes[c.CALL_KEY] == announced(account, ORDER.id).attributes[c.CALL_KEY]
    assert c.CALL_KEY not in stray.attributes
    assert (only(account).attributes[c.DISPATCH_MATCH], only(account).attributes[c.ERROR_TYPE]) == (
        "unmatched",
        "unknown",
    )


# ---- threads, tasks, contexts ----------------------------------------------------------------------------------------


def in_a_thread(body: Callable[[], None]) -> None:
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def in_an_executor(body: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as executor:
        executor.submit(body).result()


def in_asyncios_executor(body: Callable[[], None]) -> None:
    asyncio.run(asyncio.to_thread(body))


def in_a_task(body: Callable[[], None]) -> None:
    async def run() -> None:
        await asyncio.create_task(_as_coroutine(body))

    asyncio.run(run())


def in_an_empty_context(body: Callable[[], None]) -> None:
    contextvars.Context().run(body)


async def _as_coroutine(body: Callable[[], None]) -> None:
    body()


PLACES = [in_a_thread, in_an_executor, in_asyncios_executor, in_a_task, in_an_empty_context]


@pytest.mark.parametrize("somewhere", PLACES, ids=[place.__name__ for place in PLACES])
def test_a_call_can_be_dispatched_anywhere(account: Account, claude: Claude, somewhere: Callable[..., None]) -> None:
    claude.turn(ORDER)

    def body() -> None:
        with otel_toolcalls.dispatch(ORDER.id):
            pass

    somewhere(body)
    assert matches(account) == ["matched"]
    assert only(account).context.trace_id == announced(account, ORDER.id).context.trace_id


def enter_and_leave_in_two_threads(entered: Any) -> None:
    in_a_thread(entered.__enter__)
    in_a_thread(lambda: entered.__exit__(None, None, None))


def enter_here_and_leave_in_a_copy(entered: Any) -> None:
    entered.__enter__()
    contextvars.copy_context().run(entered.__exit__, None, None, None)
    otel_context.attach(otel_context.Context())


def enter_and_leave_in_two_tasks(entered: Any) -> None:
    async def run() -> None:
        await asyncio.create_task(entered.__aenter__())
        await asyncio.create_task(entered.__aexit__(None, None, None))

    asyncio.run(run())


def leave_in_a_task_made_inside(entered: Any) -> None:
    async def run() -> None:
        async with _Left(entered):
            await asyncio.create_task(entered.__aexit__(None, None, None))

    asyncio.run(run())


class _Left:
    """Enters, and leaves the leaving to others."""

    def __init__(self, entered: Any) -> None:
        self._entered = entered

    async def __aenter__(self) -> None:
        await self._entered.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        pass


LEAVINGS = [
    enter_and_leave_in_two_threads,
    enter_here_and_leave_in_a_copy,
    enter_and_leave_in_two_tasks,
    leave_in_a_task_made_inside,
]


@pytest.mark.parametrize("leave", LEAVINGS, ids=[leaving.__name__ for leaving in LEAVINGS])
def test_a_block_may_be_left_elsewhere_than_it_was_entered(
    account: Account, claude: Claude, caplog: pytest.LogCaptureFixture, leave: Callable[..., None]
) -> None:
    claude.turn(ORDER)
    with caplog.at_level(logging.DEBUG, "opentelemetry.context"):
        contextvars.copy_context().run(leave, otel_toolcalls.dispatch(ORDER.id))
    assert caplog.records == []
    assert matches(account) == ["matched"]


def test_a_generators_block_that_the_collector_leaves_disturbs_nobody(
    account: Account, claude: Claude, caplog: pytest.LogCaptureFixture
) -> None:
    claude.turn(ORDER)

    def tool() -> Iterator[str]:
        with otel_toolcalls.dispatch(ORDER.id):
            yield "half"

    running = [tool()]
    with ThreadPoolExecutor(1) as executor:
        executor.submit(next, running[0]).result()
    tracer = account.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("later") as later:
        running.clear()
        assert trace.get_current_span() is later
    assert caplog.records == []
    assert matches(account) == ["matched"]


def test_many_threads_dispatch_each_call_once(account: Account, claude: Claude) -> None:
    calls = [Announced(f"call_{number}", "get_order") for number in range(64)]
    claude.turn(*calls)
    start = threading.Barrier(8)

    def work(share: list[Announced]) -> None:
        start.wait()
        for call in share:
            with otel_toolcalls.dispatch(call.id):
                pass

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(work, [calls[number::8] for number in range(8)]))
    assert sorted(matches(account)) == ["matched"] * 64
    assert account.total(c.SETTLED_CALLS, by="dispatch") == 64


# ---- acknowledge -----------------------------------------------------------------------------------------------------


def test_an_acknowledged_call_waits_no_more_and_the_trace_says_who_runs_it(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    otel_toolcalls.acknowledge(ORDER.id, by="browser")
    span, call = only(account, c.OP_ACKNOWLEDGE), announced(account, ORDER.id)
    assert span.name == "acknowledge_tool get_order"
    assert span.attributes[c.ACKNOWLEDGED_BY] == "browser"
    assert span.start_time == span.end_time
    assert (span.parent.span_id, span.links) == (call.context.span_id, ())
    assert account.total(c.SETTLED_CALLS, by="acknowledge") == 1
    assert otel_toolcalls.pending() == []


def test_under_a_current_span_an_acknowledgement_is_linked_to_its_call(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    tracer = account.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("handler") as handler:
        otel_toolcalls.acknowledge(ORDER.id, by="x" * 1000)
    span, call = only(account, c.OP_ACKNOWLEDGE), announced(account, ORDER.id)
    assert span.parent.span_id == handler.get_span_context().span_id
    assert [link.context.span_id for link in span.links] == [call.context.span_id]
    assert span.attributes[c.ACKNOWLEDGED_BY] == "x" * 256


def test_an_acknowledgement_of_a_call_without_an_id_goes_by_its_name(account: Account, gpt: Gpt) -> None:
    gpt.turn(Announced("", "show_map"), Announced("", "get_order"))
    otel_toolcalls.acknowledge(None, by="browser", name="show_map")
    assert [entry.name for entry in otel_toolcalls.pending()] == ["get_order"]


def test_an_acknowledgement_of_what_nobody_announced_is_on_record(account: Account, claude: Claude) -> None:
    otel_toolcalls.acknowledge("call_other", by="browser", name="show_map")
    span = only(account, c.OP_ACKNOWLEDGE)
    assert (span.name, span.attributes[c.TOOL_CALL_ID]) == ("acknowledge_tool show_map", "call_other")
    assert c.CALL_KEY not in span.attributes
    assert account.total(c.SETTLED_CALLS) == 0


# ---- other libraries' spans ------------------------------------------------------------------------------------------


def execution_of(call_id: str | None, **attributes: str) -> dict[str, str]:
    return {c.OPERATION_NAME: c.OP_EXECUTE, **({c.TOOL_CALL_ID: call_id} if call_id else {}), **attributes}


def test_another_librarys_execution_settles_the_call_and_is_linked(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    tracer = account.tracer_provider.get_tracer("framework")
    with tracer.start_as_current_span("running tool", attributes=execution_of(ORDER.id)):
        assert otel_toolcalls.pending() == []
    span, call = only(account), announced(account, ORDER.id)
    assert span.name == "running tool"
    assert [link.context.span_id for link in span.links] == [call.context.span_id]
    assert span.attributes[c.DISPATCH_MATCH] == "matched"
    assert span.attributes[c.CALL_KEY] == call.attributes[c.CALL_KEY]
    assert account.total(c.SETTLED_CALLS, by="span") == 1


def test_a_dispatch_inside_another_librarys_execution_counts_once(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    tracer = account.tracer_provider.get_tracer("framework")
    with (
        tracer.start_as_current_span("running tool", attributes=execution_of(ORDER.id)) as outer,
        otel_toolcalls.dispatch(ORDER.id) as execution,
    ):
        execution.result("shipped")
        assert trace.get_current_span() is outer
    assert matches(account) == ["matched"]
    assert account.total(c.DISPATCHED_CALLS) == account.total(c.SETTLED_CALLS, by="span") == 1


def test_a_dispatch_of_another_call_inside_an_execution_is_its_own(account: Account, claude: Claude) -> None:
    claude.turn(ORDER, NAME)
    tracer = account.tracer_provider.get_tracer("framework")
    with (
        tracer.start_as_current_span("running tool", attributes=execution_of(ORDER.id)),
        otel_toolcalls.dispatch(NAME.id),
    ):
        pass
    assert matches(account) == ["matched", "matched"]
    assert otel_toolcalls.pending() == []


def test_an_id_that_a_library_sets_later_settles_the_call_when_its_span_ends(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    with account.tracer_provider.get_tracer("framework").start_as_current_span("running tool") as span:
        span.set_attributes(execution_of(ORDER.id))
    assert account.total(c.SETTLED_CALLS, by="span") == 1
    # The span takes no link any more, so the trace says it by another.
    told, call = only(account, c.OP_ACKNOWLEDGE), announced(account, ORDER.id)
    assert told.parent.span_id == span.get_span_context().span_id
    assert [link.context.span_id for link in told.links] == [call.context.span_id]
    assert told.attributes[c.ACKNOWLEDGED_BY] == "execute_tool"


def test_a_dispatch_inside_a_span_whose_id_came_later_settles_the_call_at_once_and_once(
    account: Account, claude: Claude
) -> None:
    claude.turn(ORDER)
    with account.tracer_provider.get_tracer("framework").start_as_current_span("running tool") as span:
        span.set_attributes(execution_of(ORDER.id))
        with otel_toolcalls.dispatch(ORDER.id):
            assert otel_toolcalls.pending() == []
    assert matches(account) == ["matched"]
    assert account.total(c.DISPATCHED_CALLS) == account.total(c.SETTLED_CALLS, by="span") == 1


def test_a_dispatch_inside_an_execution_that_goes_to_another_provider_settles_the_call(
    account: Account, claude: Claude
) -> None:
    claude.turn(ORDER)
    other = Account()
    tracer = other.tracer_provider.get_tracer("framework")
    with (
        tracer.start_as_current_span("running tool", attributes=execution_of(ORDER.id)),
        otel_toolcalls.dispatch(ORDER.id),
    ):
        assert otel_toolcalls.pending() == []
    (span,) = other.spans
    assert [link.context.span_id for link in span.links] == [announced(account, ORDER.id).context.span_id]
    assert account.total(c.SETTLED_CALLS, by="span") == 1
    account.exporter.export(other.spans)  # the account closes with both of them


def test_an_execution_without_a_call_id_tells_of_no_call(account: Account, claude: Claude) -> None:
    claude.turn(ORDER)
    tracer = account.tracer_provider.get_tracer("framework")
    with tracer.start_as_current_span("running tool", attributes=execution_of(None, **{c.TOOL_NAME: "get_order"})):
        pass
    assert [entry.call_id for entry in otel_toolcalls.pending()] == [ORDER.id]
    assert account.total(c.DISPATCHED_CALLS) == 0


def test_a_span_that_starts_after_uninstrument_is_left_alone(claude: Claude) -> None:
    with Account().instrumented() as account:
        claude.turn(ORDER)
        claude.answer(ORDER.id)
    tracer = account.tracer_provider.get_tracer("framework")
    with tracer.start_as_current_span("running tool", attributes=execution_of(ORDER.id)):
        pass
    span = only(account)
    assert (span.links, c.DISPATCH_MATCH in span.attributes) == ((), False)


class Odd(TracerProvider):
    """A provider that can be no key."""

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [TracerProvider, Odd])
def test_switching_on_again_takes_other_libraries_spans_once(kind: type[TracerProvider], claude: Claude) -> None:
    account = Account(kind)
    for _ in range(3):
        claude.messages[1:] = []
        with account.instrumented():
            claude.turn(ORDER)
            tracer = account.tracer_provider.get_tracer("framework")
            with tracer.start_as_current_span("running tool", attributes=execution_of(ORDER.id)):
                pass
    assert matches(account) == ["matched", "matched", "matched"]
    assert account.total(c.SETTLED_CALLS, by="span") == 3
    processors = account.tracer_provider._active_span_processor._span_processors
    ours = [each for each in processors if isinstance(each, ExecutionAdopter)]
    assert len(ours) == (1 if kind is TracerProvider else 3)
