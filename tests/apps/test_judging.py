"""When a call is judged lost, when it is not, and what an app may do that is neither: through the real SDKs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

import otel_toolcalls
from otel_toolcalls import conventions as c
from otel_toolcalls.cli.model_server import ModelServer
from otel_toolcalls.wire import anthropic_messages, openai_chat, openai_responses
from tests.support.account import Account
from tests.support.conversation import Claude, Conversation, Gpt
from tests.support.replies import Announced, responses_reply

ORDER = Announced("call_order", "get_order", '{"number": "4821"}')
NAME = Announced("call_name", "get_name", '{"id": "7"}')
APPS = [Claude, Gpt]
each_app = pytest.mark.parametrize("app", APPS, ids=[app.__name__ for app in APPS])
LONG = 3600.0


def waiting() -> list[str | None]:
    return [entry.call_id for entry in otel_toolcalls.pending()]


def answering_links(account: Account) -> list[str]:
    """Ids of the calls that turns answer, each as often as it is linked."""
    return [
        str(link.attributes[c.TOOL_CALL_ID])
        for span in account.of(c.OP_CHAT)
        for link in span.links
        if link.attributes[c.LINK_TYPE] == c.LINK_ANSWERS
    ]


# ---- judged ----------------------------------------------------------------------------------------------------------


def test_a_judgement_lies_in_the_announcing_trace_and_says_why(model_server: ModelServer) -> None:
    with Account().instrumented(dispatch_deadline=0.05) as account:
        Claude(model_server).turn(ORDER)
        account.wait_for(lambda: account.lost)
        (judgement,), (call,) = account.of(c.OP_AWAIT), account.of(c.OP_ANNOUNCE)
        assert judgement.name == "await_dispatch get_order"
        assert (judgement.parent.span_id, judgement.context.trace_id) == (call.context.span_id, call.context.trace_id)
        assert judgement.start_time == pytest.approx(call.end_time, abs=1000)
        assert judgement.end_time - judgement.start_time >= 0.05e9
        assert judgement.status.status_code is StatusCode.ERROR
        assert judgement.attributes == {
            c.OPERATION_NAME: "await_dispatch",
            c.TOOL_NAME: "get_order",
            c.TOOL_CALL_ID: ORDER.id,
            c.CALL_KEY: call.attributes[c.CALL_KEY],
            c.PROVIDER_NAME: "anthropic",
            c.REQUEST_MODEL: "claude",
            c.RESPONSE_ID: "msg_1",
            c.UNDISPATCHED_REASON: "deadline",
            c.ERROR_TYPE: "undispatched",
        }
        (logged,) = account.logs.get_finished_logs()
        assert logged.log_record.event_name == "otel_toolcalls.call.undispatched"
        assert (logged.log_record.trace_id, logged.log_record.span_id) == (call.context.trace_id, call.context.span_id)
        assert account.total(c.UNDISPATCHED_CALLS, reason="deadline") == 1


def test_each_tool_has_the_deadline_of_its_pattern(model_server: ModelServer) -> None:
    settings = {"dispatch_deadline": 0.05, "dispatch_deadlines": {"slow_*": LONG}}
    with Account().instrumented(**settings) as account:
        Claude(model_server).turn(Announced("call_slow", "slow_report"), ORDER)
        account.wait_for(lambda: account.lost)
        assert account.lost == [(ORDER.id, "deadline")]
        assert waiting() == ["call_slow"]


@each_app
def test_siblings_of_an_answered_call_are_judged(
    account: Account, model_server: ModelServer, app: type[Conversation]
) -> None:
    conversation = app(model_server)
    conversation.turn(ORDER, NAME)
    conversation.answer(NAME.id)
    account.wait_for(lambda: account.lost)
    assert account.lost == [(ORDER.id, "siblings_answered")]


@each_app
def test_calls_that_a_request_carries_on_without_are_judged(
    account: Account, model_server: ModelServer, app: type[Conversation]
) -> None:
    conversation = app(model_server)
    conversation.turn(ORDER, NAME)
    conversation.messages.append({"role": "user", "content": "Never mind."})
    conversation.turn()
    account.wait_for(lambda: len(account.lost) > 1)
    assert account.lost == [(ORDER.id, "turn_answered_without"), (NAME.id, "turn_answered_without")]


def test_a_response_that_goes_on_from_another_without_its_results_leaves_its_calls_behind(
    account: Account, model_server: ModelServer
) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{model_server.url}/v1", api_key="test")
    if not hasattr(client, "responses"):
        pytest.skip("this openai has no responses API")

    def turn(calls: list[Announced], response_id: str, **request: Any) -> None:
        model_server.reply(responses_reply(calls, "Well.", response_id))
        for _ in client.responses.create(model="gpt", stream=True, **request):
            pass

    turn([ORDER], "resp_1", input="Well?")
    turn([NAME], "resp_2", input="And otherwise?")
    turn([], "resp_3", input="Never mind.", previous_response_id="resp_1")
    account.wait_for(lambda: account.lost)
    assert account.lost == [(ORDER.id, "turn_answered_without")]
    assert waiting() == [NAME.id]
    result = {"type": "function_call_output", "call_id": NAME.id, "output": "Ines"}
    turn([], "resp_4", input=[result], previous_response_id="resp_2")
    assert (waiting(), answering_links(account)) == ([], [NAME.id])


def test_what_waits_at_the_orderly_end_of_the_process_is_judged_for_that(
    account: Account, model_server: ModelServer
) -> None:
    Claude(model_server).turn(ORDER, NAME)
    otel_toolcalls.shutdown()
    otel_toolcalls.shutdown()
    assert account.lost == [(ORDER.id, "shutdown"), (NAME.id, "shutdown")]


def test_a_call_that_must_go_to_keep_the_ledger_within_its_bounds_is_reported(model_server: ModelServer) -> None:
    with Account().instrumented(ledger_capacity=2) as account:
        Claude(model_server).turn(*(Announced(f"call_{number}", "get_order") for number in range(5)))
        assert account.lost == [(f"call_{number}", "evicted") for number in range(3)]
        assert waiting() == ["call_3", "call_4"]
        assert account.total(c.UNDISPATCHED_CALLS, reason="evicted") == 3


# ---- not judged ------------------------------------------------------------------------------------------------------


@each_app
def test_results_that_come_in_several_requests_are_all_answers(
    model_server: ModelServer, app: type[Conversation]
) -> None:
    with Account().instrumented(sibling_grace=LONG) as account:
        conversation = app(model_server)
        conversation.turn(ORDER, NAME)
        before = list(conversation.messages)
        conversation.answer(NAME.id)
        assert waiting() == [ORDER.id]
        conversation.messages = before
        conversation.answer(ORDER.id)
        assert waiting() == []
        assert answering_links(account) == [NAME.id, ORDER.id]


def test_tools_that_are_meant_to_run_elsewhere_do_not_wait(model_server: ModelServer) -> None:
    with Account().instrumented(exempt_tools=["ui_*", "final_result"], dispatch_deadline=0.05) as account:
        Claude(model_server).turn(Announced("1", "ui_map"), Announced("2", "final_result"), Announced("3", "my_ui_map"))
        account.wait_for(lambda: account.lost)
        assert account.lost == [("3", "deadline")]
        exempt = [span.attributes.get(c.CALL_EXEMPT) for span in account.of(c.OP_ANNOUNCE)]
        assert exempt == [True, True, None]
        assert account.total(c.SETTLED_CALLS, by="exempt") == 2


def test_calls_that_the_provider_runs_never_wait(account: Account, model_server: ModelServer) -> None:
    Claude(model_server).turn(Announced("srv_1", "web_search", server=True), ORDER)
    assert waiting() == [ORDER.id]
    assert [span.attributes[c.CALL_KIND] for span in account.of(c.OP_ANNOUNCE)] == ["server", "client"]
    with otel_toolcalls.dispatch("srv_1"):
        pass
    (run,) = account.of(c.OP_EXECUTE)
    assert run.attributes[c.DISPATCH_MATCH] == "unmatched"


def test_complete_calls_of_a_turn_that_was_cut_off_are_not_followed(
    account: Account, model_server: ModelServer
) -> None:
    claude = Claude(model_server)
    stream = claude.stream(ORDER, NAME, cut=claude.reply([ORDER, NAME]).index(NAME.id) + 200)
    with pytest.raises(Exception, match=r"incomplete|closed|peer"):
        list(stream)
    outcomes = [span.attributes[c.CALL_OUTCOME] for span in account.of(c.OP_ANNOUNCE)]
    assert outcomes == ["completed", "abandoned"]
    (told,) = account.of(c.OP_ACKNOWLEDGE)
    assert (told.attributes[c.ACKNOWLEDGED_BY], told.attributes[c.TOOL_CALL_ID]) == ("turn_abandoned", ORDER.id)
    assert (waiting(), account.lost) == ([], [])


def test_calls_of_a_turn_that_the_app_left_once_they_were_complete_are_followed(
    account: Account, model_server: ModelServer
) -> None:
    stream = Claude(model_server).stream(ORDER)
    for event in stream:
        if event.type == "content_block_stop" and event.index == 1:
            break
    stream.close()
    assert waiting() == [ORDER.id]


def test_a_call_without_valid_arguments_does_not_wait(account: Account, model_server: ModelServer) -> None:
    Claude(model_server).turn(Announced("call_half", "get_order", '{"number": '), ORDER)
    assert waiting() == [ORDER.id]


# ---- retries ---------------------------------------------------------------------------------------------------------


@each_app
def test_a_retry_of_the_sdk_answers_once(account: Account, model_server: ModelServer, app: type[Conversation]) -> None:
    conversation = app(model_server, max_retries=2)
    conversation.turn(ORDER, NAME)
    for _ in range(2):
        model_server.reply({"error": {"message": "busy"}}, status=500, headers={"retry-after-ms": "1"})
    conversation.answer(ORDER.id, NAME.id)
    assert len(model_server.requests) == 4
    assert answering_links(account) == [ORDER.id, NAME.id]
    assert account.total(c.SETTLED_CALLS, by="answer") == 2
    assert [span.attributes.get(c.TURN_ANSWERED) for span in account.of(c.OP_CHAT)] == [None, 2]


@each_app
def test_a_request_that_failed_and_is_sent_again_by_the_app_settles_nothing_twice(
    account: Account, model_server: ModelServer, app: type[Conversation]
) -> None:
    conversation = app(model_server)
    conversation.turn(ORDER)
    conversation.answered(ORDER.id)
    model_server.reply({"error": {"message": "busy"}}, status=500)
    with pytest.raises(Exception, match="busy"):
        conversation.send()
    conversation.turn()
    failed, sent = account.of(c.OP_CHAT)[1:]
    assert (failed.status.status_code, sent.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert set(answering_links(account)) == {ORDER.id}
    assert account.total(c.SETTLED_CALLS, by="answer") == 1


def test_a_turn_that_the_app_asks_for_again_leaves_the_first_ones_calls_to_their_deadline(
    account: Account, model_server: ModelServer
) -> None:
    claude = Claude(model_server)
    list(claude.stream(ORDER))
    claude.turn(NAME)
    claude.answer(NAME.id)
    assert (waiting(), account.lost) == ([ORDER.id], [])


# ---- what waits ------------------------------------------------------------------------------------------------------


def test_what_waits_is_listed_oldest_first(account: Account, model_server: ModelServer) -> None:
    claude = Claude(model_server)
    claude.turn(ORDER, NAME)
    Gpt(model_server).turn(Announced("call_third", "get_order"))
    assert waiting() == [ORDER.id, NAME.id, "call_third"]
    with otel_toolcalls.dispatch(ORDER.id):
        pass
    assert waiting() == [NAME.id, "call_third"]


def test_uninstrument_lets_go_what_waits(model_server: ModelServer) -> None:
    account = Account()
    with account.instrumented(dispatch_deadline=LONG):
        Claude(model_server).turn(ORDER)
        assert waiting() == [ORDER.id]
    assert waiting() == []
    otel_toolcalls.shutdown()
    account.check()
    assert account.lost == []
    (told,) = account.of(c.OP_ACKNOWLEDGE)
    assert (told.attributes[c.ACKNOWLEDGED_BY], told.attributes[c.TOOL_CALL_ID]) == ("turn_abandoned", ORDER.id)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_follow_the_calls_of_its_parent(account: Account, model_server: ModelServer) -> None:
    Claude(model_server).turn(ORDER)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before = waiting()
            with otel_toolcalls.dispatch(ORDER.id):
                pass
            otel_toolcalls.shutdown()
            (run,) = account.of(c.OP_EXECUTE)
            os.write(write, json.dumps([before, run.attributes[c.DISPATCH_MATCH], account.lost]).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(read, 1000)) == [[], "unmatched", []]
    os.close(read)
    os.close(write)
    assert waiting() == [ORDER.id]


# ---- what is read of a request ---------------------------------------------------------------------------------------


class _Counted(list[Any]):
    """A list that counts the elements read of it."""

    def __init__(self, elements: list[Any]) -> None:
        super().__init__(elements)
        self.read = 0

    def __iter__(self) -> Any:
        for element in super().__iter__():
            self.read += 1
            yield element

    def __reversed__(self) -> Any:
        for element in super().__reversed__():
            self.read += 1
            yield element

    def __getitem__(self, index: Any) -> Any:
        self.read += 1
        return super().__getitem__(index)


HISTORIES: list[tuple[str, Callable[..., Any], list[Any], list[Any]]] = [
    (
        "messages",
        anthropic_messages.read_request,
        [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "Well."}],
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "last"}]}],
    ),
    (
        "messages",
        openai_chat.read_request,
        [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "Well."}],
        [{"role": "tool", "tool_call_id": "last", "content": "done"}],
    ),
    (
        "input",
        openai_responses.read_request,
        [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "Well."}],
        [
            {"type": "function_call", "call_id": "last", "name": "get_order", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "last", "output": "done"},
        ],
    ),
]


@pytest.mark.parametrize(("field", "read_request", "past", "end"), HISTORIES, ids=["anthropic", "chat", "responses"])
def test_of_a_long_history_the_end_is_read(
    field: str, read_request: Callable[..., Any], past: list[Any], end: list[Any]
) -> None:
    history = _Counted([*(past * 5000), *end])
    (result,) = read_request({"model": "m", field: history}).results
    assert result.call_id == "last"
    assert history.read == len(end) + 1


def test_a_generator_of_messages_is_left_to_the_sdk(account: Account, model_server: ModelServer) -> None:
    anthropic = pytest.importorskip("anthropic")
    claude = Claude(model_server)
    claude.turn(ORDER)
    claude.answered(ORDER.id)
    sent = claude.messages

    def read(messages: Any) -> list[Any]:
        model_server.reply(claude.reply([]))
        client = anthropic.Anthropic(base_url=model_server.url, api_key="test")
        list(client.messages.create(model="claude", max_tokens=100, messages=messages, stream=True))
        return list(model_server.requests[-1].json["messages"])

    otel_toolcalls.uninstrument()
    untouched = read(message for message in sent)
    with account.instrumented():
        assert read(message for message in sent) == untouched == sent
