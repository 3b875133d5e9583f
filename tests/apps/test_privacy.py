"""No argument, result, prompt or exception text leaves unasked: in no span, metric or log record, whatever becomes of a call."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

import otel_toolcalls
from otel_toolcalls import conventions as c
from otel_toolcalls.cli.model_server import ModelServer
from tests.support.account import Account
from tests.support.conversation import Claude, Conversation, Gpt
from tests.support.replies import Announced, anthropic_reply, chat_reply

MARKER = "marker-5b8e02"
ARGUMENTS = json.dumps({"note": MARKER})
ORDER = Announced("call_order", "get_order", ARGUMENTS)
NAME = Announced("call_name", "get_name", ARGUMENTS)


class Marked(Conversation):
    """All that is said in it, on either side, is the marker."""

    def send(self) -> Any:
        self.messages = json.loads(json.dumps(self.messages).replace('"Well?"', f'"{MARKER}"').replace("done", MARKER))
        return super().send()


class MarkedClaude(Marked, Claude):
    reply = staticmethod(lambda calls: anthropic_reply(calls, MARKER))


class MarkedGpt(Marked, Gpt):
    reply = staticmethod(lambda calls: chat_reply(calls, MARKER))


each_app = pytest.mark.parametrize("app", [MarkedClaude, MarkedGpt], ids=["Claude", "Gpt"])
unasked = pytest.mark.parametrize("capture", ["no_content", "event_only"])

# ---- what becomes of calls -------------------------------------------------------------------------------------------


def none_answers(app: Conversation) -> None:
    app.turn(ORDER)


def a_sibling_is_answered(app: Conversation) -> None:
    app.turn(ORDER, NAME)
    app.answer(NAME.id)


def the_app_goes_on_without(app: Conversation) -> None:
    app.turn(ORDER)
    app.messages.append({"role": "user", "content": MARKER})
    app.turn()


def the_process_ends(app: Conversation) -> None:
    app.turn(ORDER)
    otel_toolcalls.shutdown()


def the_ledger_is_full(app: Conversation) -> None:
    app.turn(ORDER, NAME)


LOSSES: dict[str, tuple[Callable[[Conversation], None], dict[str, Any]]] = {
    "deadline": (none_answers, {"dispatch_deadline": 0.05}),
    "siblings_answered": (a_sibling_is_answered, {"sibling_grace": 0.05}),
    "turn_answered_without": (the_app_goes_on_without, {}),
    "shutdown": (the_process_ends, {}),
    "evicted": (the_ledger_is_full, {"ledger_capacity": 1}),
}


def spans_of(account: Account) -> str:
    return "\n".join(span.to_json() for span in account.spans)


def logs_of(account: Account) -> str:
    return "\n".join(str(vars(each.log_record)) for each in account.logs.get_finished_logs())


def metrics_of(account: Account) -> str:
    return str(account.reader.get_metrics_data().to_json())


@each_app
@unasked
@pytest.mark.parametrize("reason", LOSSES)
def test_the_record_of_a_lost_call_holds_no_content(
    reason: str, capture: str, app: type[Conversation], model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    play, settings = LOSSES[reason]
    with caplog.at_level(logging.DEBUG, "otel_toolcalls"):
        with Account().instrumented(capture_content=capture, **settings) as account:
            play(app(model_server))
            account.wait_for(lambda: account.lost)
        assert account.lost == [(ORDER.id, reason)]
    (record,) = account.logs.get_finished_logs()
    assert record.log_record.event_name == c.EVENT_UNDISPATCHED
    assert record.log_record.attributes[c.UNDISPATCHED_REASON] == reason
    assert MARKER in model_server.requests[0].body.decode()
    for signal in (spans_of(account), logs_of(account), metrics_of(account), caplog.text):
        assert MARKER not in signal


@each_app
@pytest.mark.parametrize("capture", ["span_only", "span_and_event"])
@pytest.mark.parametrize("reason", LOSSES)
def test_content_that_was_asked_for_is_on_the_span_and_not_in_the_record(
    reason: str, capture: str, app: type[Conversation], model_server: ModelServer
) -> None:
    play, settings = LOSSES[reason]
    with Account().instrumented(capture_content=capture, **settings) as account:
        play(app(model_server))
        account.wait_for(lambda: account.lost)
    assert MARKER in spans_of(account)
    assert MARKER not in logs_of(account)
    assert MARKER not in metrics_of(account)


def ran(app: Conversation) -> None:
    app.turn(ORDER)
    with otel_toolcalls.dispatch(ORDER.id) as execution:
        execution.result(MARKER)
    app.answer(ORDER.id)


def raised(app: Conversation) -> None:
    app.turn(ORDER)
    with pytest.raises(ValueError, match=MARKER), otel_toolcalls.dispatch(ORDER.id):
        raise ValueError(MARKER)


def acknowledged(app: Conversation) -> None:
    app.turn(ORDER)
    otel_toolcalls.acknowledge(ORDER.id, by="browser")


def answered(app: Conversation) -> None:
    app.turn(ORDER)
    app.answer(ORDER.id)


def invalid(app: Conversation) -> None:
    app.turn(Announced(ORDER.id, ORDER.name, ARGUMENTS[:-1]))


def truncated(app: Conversation) -> None:
    body = app.reply([Announced(ORDER.id, ORDER.name, ARGUMENTS[:-1])])
    app.server.reply(
        body.replace('"tool_use", "stop_seq', '"max_tokens", "stop_seq').replace('"tool_calls"}', '"length"}')
    )
    list(app.send())


def abandoned(app: Conversation) -> None:
    body = app.reply([ORDER]).encode()
    app.server.reply(body, cut=body.index(b'{\\"note\\"') + 40)
    with pytest.raises(Exception):  # noqa: B017  (which one differs by SDK)
        list(app.send())


def contradicted(app: Conversation) -> None:
    app.server.reply(app.reply([ORDER]).replace('"index": 1, "delta"', '"index": 7, "delta"'))
    list(app.send())


FATES = [ran, raised, acknowledged, answered, invalid, truncated, abandoned]


@each_app
@unasked
@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.__name__)
def test_nothing_tells_the_content_of_a_call_that_was_not_lost(
    fate: Callable[[Conversation], None],
    capture: str,
    app: type[Conversation],
    model_server: ModelServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.DEBUG, "otel_toolcalls"),
        Account().instrumented(capture_content=capture) as account,
    ):
        fate(app(model_server))
    (call,) = account.of(c.OP_ANNOUNCE)
    outcome = fate.__name__ if fate in (invalid, truncated, abandoned) else "completed"
    assert call.attributes[c.CALL_OUTCOME] == outcome
    assert logs_of(account) == ""
    for signal in (spans_of(account), metrics_of(account), caplog.text):
        assert MARKER not in signal


@unasked
def test_nothing_tells_the_content_of_what_contradicts_the_protocol(capture: str, model_server: ModelServer) -> None:
    with Account().instrumented(capture_content=capture) as account:
        contradicted(MarkedClaude(model_server))
    assert account.total("otel_toolcalls.violations") > 0
    for signal in (spans_of(account), logs_of(account), metrics_of(account)):
        assert MARKER not in signal
