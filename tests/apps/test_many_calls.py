"""28 calls announced, 24 run: four judgements, the right four, whatever the order, the threads and the processes."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import otel_toolcalls
from otel_toolcalls import conventions as c
from otel_toolcalls.cli.model_server import ModelServer
from tests.support.account import Account
from tests.support.conversation import Claude, Conversation, Gpt
from tests.support.replies import Announced

CALLS = [Announced(f"call_{number:02}", f"tool_{number % 3}", f'{{"n": {number}}}') for number in range(28)]
LOST = 4

APPS = [Claude, Gpt]
each_app = pytest.mark.parametrize("app", APPS, ids=[app.__name__ for app in APPS])


def run(call_id: str) -> str:
    with otel_toolcalls.dispatch(call_id):
        return call_id


@contextmanager
def at_shutdown_the_rest_is_lost(account: Account, left: list[str], reason: str = "shutdown") -> Iterator[None]:
    yield
    otel_toolcalls.shutdown()
    assert sorted(account.lost) == [(call_id, reason) for call_id in sorted(left)]
    assert account.total(c.SETTLED_CALLS, by="dispatch") == len(CALLS) - len(left)
    assert account.total(c.UNDISPATCHED_CALLS, reason=reason) == len(left)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations([call.id for call in CALLS]))
def test_in_any_order_the_four_that_were_not_run_are_judged(model_server: ModelServer, order: list[str]) -> None:
    with Account().instrumented() as account:
        Claude(model_server).turn(*CALLS)
        with at_shutdown_the_rest_is_lost(account, order[:LOST]):
            for call_id in order[LOST:]:
                run(call_id)


@each_app
def test_of_interleaved_runs_and_answers_the_four_with_neither_are_judged(
    account: Account, model_server: ModelServer, app: type[Conversation]
) -> None:
    order = random.Random(28).sample([call.id for call in CALLS], len(CALLS))
    left, run_here, answered = order[:LOST], order[LOST:16], order[12:]
    conversation = app(model_server)
    conversation.turn(*CALLS)
    for call_id in run_here:
        run(call_id)
    conversation.answer(*answered)
    account.wait_for(lambda: len(account.lost) == LOST)
    assert sorted(account.lost) == [(call_id, "siblings_answered") for call_id in sorted(left)]
    assert account.total(c.SETTLED_CALLS) == len(CALLS) - LOST


@each_app
def test_in_threads_without_the_apps_context_the_four_that_were_not_run_are_judged(
    account: Account, model_server: ModelServer, app: type[Conversation]
) -> None:
    order = random.Random(24).sample([call.id for call in CALLS], len(CALLS))
    tracer = account.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("request"), ThreadPoolExecutor(8) as executor:
        app(model_server).turn(*CALLS)
        with at_shutdown_the_rest_is_lost(account, order[:LOST]):
            assert list(executor.map(run, order[LOST:])) == order[LOST:]
    assert len({span.context.trace_id for span in account.spans}) == 1


def run_in_a_process_of_its_own(ledger: str, call_ids: list[str]) -> tuple[int, list[tuple[str, str, int]]]:
    """How many it settled; and of each run the id, how it met the ledger, and the span that it belongs to."""
    account = Account()
    otel_toolcalls.instrument(
        tracer_provider=account.tracer_provider, meter_provider=account.meter_provider, ledger=ledger
    )
    for call_id in call_ids:
        run(call_id)
    otel_toolcalls.shutdown()
    runs = [
        (str(span.attributes[c.TOOL_CALL_ID]), str(span.attributes[c.DISPATCH_MATCH]), link.context.span_id)
        for span in account.of(c.OP_EXECUTE)
        for link in span.links
    ]
    return account.total(c.SETTLED_CALLS, by="dispatch"), runs


@pytest.mark.slow
def test_in_several_processes_the_four_that_were_not_run_are_judged(model_server: ModelServer, tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    order = random.Random(4).sample([call.id for call in CALLS], len(CALLS))
    left, shares = order[:LOST], [order[LOST::3], order[LOST + 1 :: 3], order[LOST + 2 :: 3]]
    account = Account()
    otel_toolcalls.instrument(
        tracer_provider=account.tracer_provider,
        meter_provider=account.meter_provider,
        logger_provider=account.logger_provider,
        ledger=ledger,
        sibling_grace=0.5,
    )
    try:
        claude = Claude(model_server)
        claude.turn(*CALLS)
        with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as executor:
            told = list(executor.map(run_in_a_process_of_its_own, [ledger] * len(shares), shares))
        account.wait_for(lambda: len(otel_toolcalls.pending()) == LOST)
        claude.answer(order[-1])  # one of those that were run: its siblings that were not are left behind
        account.wait_for(lambda: len(account.lost) == LOST)
    finally:
        otel_toolcalls.uninstrument()
    assert sorted(account.lost) == [(call_id, "siblings_answered") for call_id in sorted(left)]
    runs = [run for _, runs in told for run in runs]
    assert {match for _, match, _ in runs} == {"matched"}
    announced = {span.attributes[c.TOOL_CALL_ID]: span.context.span_id for span in account.of(c.OP_ANNOUNCE)}
    assert {call_id: span_id for call_id, _, span_id in runs} == {
        call_id: announced[call_id] for call_id in order[LOST:]
    }
    assert sum(settled for settled, _ in told) == len(CALLS) - LOST
    assert account.total(c.UNDISPATCHED_CALLS) == LOST
