"""Every way a stream can end ends its spans exactly once, with the right outcome. Sync; its async twin is beside it."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from typing import Any

import pytest

import otel_toolcalls
from tests.hooks.apis import APIS, Api
from tests.hooks.observed import Observed
from tests.hooks.server import ModelServer

COMPLETED = ("completed", None)

every_api = pytest.mark.parametrize("api", APIS, ids=str)
surfaces = pytest.mark.parametrize("surface", ["create", "stream"])


@pytest.fixture
def client(api: Api, server: ModelServer) -> Any:
    with api.client(server.url) as client:
        yield client


def opened(api: Api, client: Any, surface: str) -> Any:
    """A context manager that gives the stream, by either surface."""
    return getattr(api, surface)(client)


def read_until_both_are_announced(stream: Any, on: Observed) -> None:
    """Take events until the second call is announced; the reference to the iterator dies here."""
    while len(on.started()) < 2:
        next(stream)


def left_early(api: Api, error_type: str) -> list[tuple[str, str | None]]:
    """The outcomes where the reply is left while the second call is under way."""
    lost = ("abandoned", error_type)
    return [COMPLETED if api.ends_calls else lost, lost]


# ---- the provider ends it -------------------------------------------------------------------------------------------


@every_api
@surfaces
def test_read_to_the_end_completes_each_call(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    with opened(api, client, surface) as stream:
        for _ in stream:
            pass
    assert on.outcomes == [COMPLETED, COMPLETED]
    assert [call.attributes["gen_ai.tool.call.id"] for call in on.calls] == ["call_1", "call_2"]
    (turn,) = on.turns
    assert turn.status.is_unset
    assert {call.parent.span_id for call in on.calls} == {turn.context.span_id}


@every_api
@surfaces
def test_bytes_that_stop_without_a_finish_abandon_what_is_open(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events[: api.until_open()])
    with opened(api, client, surface) as stream:
        for _ in stream:
            pass
    assert on.outcomes == left_early(api, "stream_ended")
    (turn,) = on.turns
    assert turn.attributes["error.type"] == "stream_ended"


@every_api
@surfaces
def test_a_cut_connection_is_named_by_its_exception(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events[: api.until_open()], end="cut")
    with pytest.raises(Exception) as raised, opened(api, client, surface) as stream:
        for _ in stream:
            pass
    name = f"{type(raised.value).__module__}.{type(raised.value).__qualname__}"
    assert on.outcomes == left_early(api, name)
    assert on.turns[0].attributes["error.type"] == name


@every_api
@surfaces
def test_an_error_event_is_named_by_the_exception_that_the_sdk_makes_of_it(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    server.stream([*api.events[: api.until_open()], error])
    with pytest.raises(Exception) as raised, opened(api, client, surface) as stream:
        for _ in stream:
            pass
    assert type(raised.value).__module__.startswith(api.sdk)
    name = f"{type(raised.value).__module__}.{type(raised.value).__qualname__}"
    assert on.outcomes == left_early(api, name)


@every_api
def test_a_request_that_is_refused_is_a_turn_without_calls(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    server.whole({"error": {"type": "rate_limit_error", "message": "slow down"}}, status=429)
    with pytest.raises(Exception) as raised:
        api.create(client)
    (turn,) = on.turns
    assert turn.attributes["error.type"] == f"{type(raised.value).__module__}.RateLimitError"
    assert on.calls == []


# ---- the app leaves it ----------------------------------------------------------------------------------------------


@every_api
@surfaces
def test_break_inside_with_is_known_when_the_with_ends(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    with opened(api, client, surface) as stream:
        for _ in stream:
            if len(on.started()) == 2:
                break
        assert on.turns == []
    assert on.outcomes == left_early(api, "closed_early")
    assert on.turns[0].attributes["error.type"] == "closed_early"


@every_api
def test_break_without_with_is_known_when_the_stream_is_dropped(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    gc.disable()
    try:
        for _ in api.create(client):
            if len(on.started()) == 2:
                break
        assert on.outcomes == left_early(api, "closed_early")
    finally:
        gc.enable()


@every_api
def test_break_and_a_kept_reference_keeps_the_calls_open_until_it_is_dropped(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    stream = api.create(client)
    for _ in stream:
        if len(on.started()) == 2:
            break
    assert len(on.calls) == int(api.ends_calls)
    for _ in stream:  # the app goes on where it left
        pass
    assert on.outcomes == [COMPLETED, COMPLETED]


@every_api
@surfaces
def test_close_ends_at_once(api: Api, surface: str, client: Any, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    if surface == "create":
        stream = api.create(client)
        read_until_both_are_announced(stream, on)
        stream.close()
        assert on.outcomes == left_early(api, "closed_early")
        stream.close()
    else:
        with api.stream(client) as stream:
            read_until_both_are_announced(stream, on)
            stream.close()
            assert on.outcomes == left_early(api, "closed_early")


@every_api
@surfaces
def test_an_exception_of_the_app_inside_with_is_the_app_leaving(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    mine = ValueError("the app's own")

    def read() -> None:
        with opened(api, client, surface) as stream:
            read_until_both_are_announced(stream, on)
            raise mine

    with pytest.raises(ValueError) as raised:
        read()
    assert raised.value is mine
    assert on.outcomes == left_early(api, "closed_early")


@every_api
def test_closing_after_the_end_changes_nothing(api: Api, client: Any, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    stream = api.create(client)
    for _ in stream:
        pass
    stream.close()
    assert on.outcomes == [COMPLETED, COMPLETED]
    assert len(on.turns) == 1


@every_api
def test_a_close_from_another_thread_while_reading_ends_once(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    count = api.until_open()
    released = server.stream(api.events[:count], end="hold")
    stream = api.create(client)
    for _ in range(count):
        next(stream)

    def close() -> None:
        stream.close()
        released.set()

    thread = threading.Thread(target=close)
    thread.start()
    # What the SDK makes of a close under its feet is its own affair, and differs by version.
    with contextlib.suppress(Exception):
        next(stream)
    thread.join()
    assert len(on.calls) == 2
    assert on.outcomes[1][0] == "abandoned"


# ---- nobody ends it -------------------------------------------------------------------------------------------------


@every_api
def test_a_dropped_stream_ends_without_the_collector(api: Api, client: Any, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    gc.disable()
    try:
        stream = api.create(client)
        read_until_both_are_announced(stream, on)
        del stream
        assert on.outcomes == left_early(api, "closed_early")
    finally:
        gc.enable()


class Holder:
    """Keeps a stream in a reference cycle."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.itself = self


def lose_in_a_cycle(api: Api, client: Any, on: Observed) -> int:
    """Returns when the last event was read."""
    holder = Holder(api.create(client))
    read_until_both_are_announced(holder.stream, on)
    return on.started()[1].start_time


@every_api
@pytest.mark.parametrize("collector", ["this thread", "another thread"])
def test_a_stream_lost_in_a_cycle_ends_when_it_is_collected(
    api: Api, collector: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    gc.disable()
    try:
        last_event = lose_in_a_cycle(api, client, on)
        assert on.turns == []
        if collector == "this thread":
            gc.collect()
        else:
            thread = threading.Thread(target=gc.collect)
            thread.start()
            thread.join()
        on.wait_for(lambda: on.turns)
    finally:
        gc.enable()
    assert on.outcomes == left_early(api, "garbage_collected")
    assert on.calls[1].end_time == last_event, "the end was noticed late: its time is the last event's"


@every_api
def test_a_stream_that_nobody_iterates_makes_no_span(api: Api, client: Any, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    stream = api.create(client)
    stream.close()
    del stream
    gc.collect()
    assert on.account.started == []


@every_api
def test_reading_keeps_no_event_alive(api: Api, client: Any, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    stream = iter(api.create(client))
    before = None
    for event in stream:
        if before is not None:
            assert before() is None
        before = weakref.ref(event)
        del event


def is_freed_at_once(api: Api, client: Any, server: ModelServer) -> bool:
    """Whether a response that was read goes with the last reference to its stream."""
    server.stream(api.events)
    gc.collect()
    gc.disable()
    try:
        stream = api.create(client)
        for _ in stream:
            pass
        response = weakref.ref(stream.response)
        del stream
        return response() is None
    finally:
        gc.enable()


@every_api
def test_a_response_that_was_read_waits_for_the_collector_only_where_it_does_without_us(
    api: Api, client: Any, server: ModelServer, observed: Observed
) -> None:
    without_us = is_freed_at_once(api, client, server)  # old versions of httpx make a cycle of their own
    with observed.instrumented():
        assert is_freed_at_once(api, client, server) == without_us


@every_api
def test_the_worker_ends_with_the_last_stream_that_is_read_after_uninstrument(
    api: Api, client: Any, server: ModelServer, observed: Observed
) -> None:
    before = set(threading.enumerate())
    server.stream(api.events)
    with observed.instrumented():
        stream = api.create(client)
        next(stream)
        workers = [thread for thread in threading.enumerate() if thread.name == "otel-toolcalls"]
        started = [thread for thread in workers if thread not in before]
    assert started
    list(stream)
    for worker in started:
        worker.join(60)
        assert not worker.is_alive()


@every_api
def test_shutdown_ends_what_is_open_and_leaves_the_stream_readable(
    api: Api, client: Any, server: ModelServer, observed: Observed
) -> None:
    server.stream(api.events)
    with observed.instrumented(on_violation="raise"):
        stream = api.create(client)
        first = [next(stream)]
        while not observed.started():
            first.append(next(stream))
        otel_toolcalls.shutdown()
        assert observed.outcomes == [("abandoned", "process_exit")]
        rest = list(stream)
        assert len(first) + len(rest) == len(api.events)
        observed.check()
        assert len(observed.account.ended) == 2, "what comes after the shutdown is not taken for a violation"


@every_api
def test_streams_in_many_threads_do_not_meet(api: Api, client: Any, server: ModelServer, on: Observed) -> None:
    for _ in range(8):
        server.stream(api.events)

    def read() -> None:
        for _ in api.create(client):
            pass

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert on.outcomes == [COMPLETED] * 16
    assert len(on.turns) == 8


@every_api
def test_a_stream_read_in_another_thread_than_it_was_opened_in_keeps_its_parent(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    with on.tracer_provider.get_tracer("app").start_as_current_span("app") as span:
        stream = api.create(client)
    thread = threading.Thread(target=lambda: list(stream))
    thread.start()
    thread.join()
    (turn,) = on.turns
    assert turn.parent.span_id == span.get_span_context().span_id
