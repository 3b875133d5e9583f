"""Every way an async stream can end ends its spans exactly once, with the right outcome."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.hooks.apis import Api
from tests.hooks.observed import Observed
from tests.hooks.server import ModelServer
from tests.hooks.test_endings import COMPLETED, Holder, every_api, left_early, surfaces

pytestmark = pytest.mark.filterwarnings("error::ResourceWarning")


@pytest.fixture
async def client(api: Api, server: ModelServer) -> AsyncIterator[Any]:
    async with api.async_client(server.url) as client:
        yield client


@asynccontextmanager
async def opened(api: Api, client: Any, surface: str) -> AsyncIterator[Any]:
    """The stream inside its own ``async with``, by either surface."""
    if surface == "create":
        async with await api.create(client) as stream:
            yield stream
    else:
        async with api.stream(client) as stream:
            yield stream


async def read_until_both_are_announced(stream: Any, on: Observed) -> None:
    while len(on.started()) < 2:
        await stream.__anext__()


async def read_to_the_end(api: Api, client: Any, surface: str) -> None:
    async with opened(api, client, surface) as stream:
        async for _ in stream:
            pass


async def settle() -> None:
    """Let the loop run what a finaliser has left for it."""
    for _ in range(5):
        await asyncio.sleep(0)


# ---- the provider ends it -------------------------------------------------------------------------------------------


@every_api
@surfaces
async def test_read_to_the_end_completes_each_call(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    async with opened(api, client, surface) as stream:
        async for _ in stream:
            pass
    assert on.outcomes == [COMPLETED, COMPLETED]
    (turn,) = on.turns
    assert turn.status.is_unset
    assert {call.parent.span_id for call in on.calls} == {turn.context.span_id}


@every_api
@surfaces
async def test_bytes_that_stop_without_a_finish_abandon_what_is_open(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events[: api.until_open()])
    async with opened(api, client, surface) as stream:
        async for _ in stream:
            pass
    assert on.outcomes == left_early(api, "stream_ended")


@every_api
@surfaces
async def test_a_cut_connection_is_named_by_its_exception(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events[: api.until_open()], end="cut")
    with pytest.raises(Exception) as raised:
        await read_to_the_end(api, client, surface)
    name = f"{type(raised.value).__module__}.{type(raised.value).__qualname__}"
    assert on.outcomes == left_early(api, name)


@every_api
async def test_an_error_event_is_named_by_the_exception_that_the_sdk_makes_of_it(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    server.stream([*api.events[: api.until_open()], error])
    with pytest.raises(Exception) as raised:
        async for _ in await api.create(client):
            pass
    name = f"{type(raised.value).__module__}.{type(raised.value).__qualname__}"
    assert on.outcomes == left_early(api, name)


# ---- the app leaves it ----------------------------------------------------------------------------------------------


@every_api
@surfaces
async def test_break_inside_with_is_known_when_the_with_ends(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    async with opened(api, client, surface) as stream:
        async for _ in stream:
            if len(on.started()) == 2:
                break
    assert on.outcomes == left_early(api, "closed_early")


@every_api
async def test_break_without_with_is_known_when_the_stream_is_dropped(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    gc.disable()
    try:
        async for _ in await api.create(client):
            if len(on.started()) == 2:
                break
        await settle()
        assert on.outcomes == left_early(api, "closed_early")
    finally:
        gc.enable()


@every_api
async def test_close_ends_at_once(api: Api, client: Any, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    stream = await api.create(client)
    await read_until_both_are_announced(stream, on)
    await stream.close()
    assert on.outcomes == left_early(api, "closed_early")


@every_api
async def test_closing_the_iterator_ends_at_once(api: Api, client: Any, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    stream = await api.create(client)
    await read_until_both_are_announced(stream, on)
    await stream._iterator.aclose()
    assert on.outcomes == left_early(api, "closed_early")


@every_api
@surfaces
async def test_an_exception_of_the_app_inside_with_is_the_app_leaving(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    mine = ValueError("the app's own")

    async def read() -> None:
        async with opened(api, client, surface) as stream:
            await read_until_both_are_announced(stream, on)
            raise mine

    with pytest.raises(ValueError) as raised:
        await read()
    assert raised.value is mine
    assert on.outcomes == left_early(api, "closed_early")


# ---- cancellation ---------------------------------------------------------------------------------------------------


async def cancel_when_waiting(task: asyncio.Task[None], ready: asyncio.Event) -> None:
    await asyncio.wait_for(ready.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@every_api
@surfaces
async def test_cancelled_between_reads_inside_with(
    api: Api, surface: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    ready = asyncio.Event()

    async def read() -> None:
        async with opened(api, client, surface) as stream:
            async for _ in stream:
                if len(on.started()) == 2:
                    ready.set()
                    await asyncio.Event().wait()

    await cancel_when_waiting(asyncio.create_task(read()), ready)
    assert on.outcomes == left_early(api, "cancelled")


@every_api
async def test_cancelled_between_reads_without_with(api: Api, client: Any, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    ready = asyncio.Event()

    async def read() -> None:
        async for _ in await api.create(client):
            if len(on.started()) == 2:
                ready.set()
                await asyncio.Event().wait()

    await cancel_when_waiting(asyncio.create_task(read()), ready)
    gc.collect()
    await settle()
    on.wait_for(lambda: on.turns)
    assert on.outcomes == left_early(api, "cancelled")


@every_api
@pytest.mark.parametrize("surface", ["create", "stream", "without with"])
async def test_cancelled_inside_a_read(api: Api, surface: str, client: Any, server: ModelServer, on: Observed) -> None:
    released = server.stream(api.events[: api.until_open()], end="hold")

    ready = asyncio.Event()

    async def read_events(stream: Any) -> None:
        async for _ in stream:
            if len(on.started()) == 2:
                ready.set()

    async def read() -> None:
        if surface == "without with":
            await read_events(await api.create(client))
        else:
            async with opened(api, client, surface) as stream:
                await read_events(stream)

    task = asyncio.create_task(read())
    await asyncio.wait_for(ready.wait(), 10)
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    released.set()
    assert on.outcomes == left_early(api, "cancelled")


@every_api
async def test_a_timeout_inside_a_read_is_a_cancellation(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    released = server.stream(api.events[: api.until_open()], end="hold")

    async def read() -> None:
        async with await api.create(client) as stream:
            async for _ in stream:
                pass

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(read(), 0.5)
    released.set()
    assert on.outcomes == left_early(api, "cancelled")


# ---- nobody ends it -------------------------------------------------------------------------------------------------


@every_api
async def test_a_dropped_stream_ends_without_the_collector(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    gc.disable()
    try:
        stream = await api.create(client)
        await read_until_both_are_announced(stream, on)
        del stream
        await settle()
        assert on.outcomes == left_early(api, "closed_early")
    finally:
        gc.enable()


async def lose_in_a_cycle(api: Api, client: Any, on: Observed) -> int:
    """Returns when the last event was read."""
    holder = Holder(await api.create(client))
    await read_until_both_are_announced(holder.stream, on)
    return on.started()[1].start_time


@every_api
@pytest.mark.parametrize("collector", ["this thread", "another thread"])
async def test_a_stream_lost_in_a_cycle_ends_when_it_is_collected(
    api: Api, collector: str, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    gc.disable()
    try:
        last_event = await lose_in_a_cycle(api, client, on)
        assert on.turns == []
        if collector == "this thread":
            gc.collect()
        else:
            thread = threading.Thread(target=gc.collect)
            thread.start()
            thread.join()
        await settle()
        on.wait_for(lambda: on.turns)
    finally:
        gc.enable()
    assert on.outcomes == left_early(api, "garbage_collected")
    assert on.calls[1].end_time == last_event, "the end was noticed late: its time is the last event's"


@every_api
async def test_streams_lost_by_one_task_leave_no_more_on_it_than_one(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    task: Any = asyncio.current_task()

    async def lose(streams: int) -> int:
        """How many callbacks the task has then."""
        for _ in range(streams):
            server.stream(api.events)
            holder = Holder(await api.create(client))
            await anext(holder.stream)
            del holder
            gc.collect()
            await settle()
        return len(task._callbacks or ())

    assert await lose(1) == await lose(4)
    on.wait_for(lambda: len(on.turns) == 5)


@every_api
async def test_a_stream_that_nobody_iterates_makes_no_span(
    api: Api, client: Any, server: ModelServer, on: Observed
) -> None:
    server.stream(api.events)
    stream = await api.create(client)
    await stream.close()
    del stream
    gc.collect()
    assert on.account.started == []


@every_api
def test_a_stream_that_outlives_its_loop_ends_when_it_is_dropped(api: Api, server: ModelServer, on: Observed) -> None:
    server.stream(api.events)
    kept: list[Any] = []

    async def read() -> None:
        client = api.async_client(server.url)
        kept.append(client)
        stream = await api.create(client)
        kept.append(stream)
        await read_until_both_are_announced(stream, on)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(read())
    loop.close()
    assert on.turns == []
    with pytest.warns(ResourceWarning):  # the app's own fault: its connections are still open
        drop(kept)
    assert on.outcomes == left_early(api, "closed_early")


def drop(kept: list[Any]) -> None:
    kept.clear()
    gc.collect()


@every_api
def test_asyncio_run_closes_what_the_app_has_left(api: Api, server: ModelServer, observed: Observed) -> None:
    server.stream(api.events)
    kept: list[Any] = []

    async def read() -> None:
        async with api.async_client(server.url) as client:
            kept.append(await api.create(client))
            await read_until_both_are_announced(kept[0], observed)

    with observed.instrumented():
        asyncio.run(read())
        assert observed.outcomes == left_early(api, "closed_early")
        kept.clear()
        # asyncio closes the SDK's and httpx' nested generators all at once, and complains, with us and without.
        observed.complaints[:] = [text for text in observed.complaints if not text.startswith("asyncio:")]
        observed.check()


@every_api
async def test_many_streams_in_one_loop_do_not_meet(api: Api, client: Any, server: ModelServer, on: Observed) -> None:
    for _ in range(8):
        server.stream(api.events)

    async def read() -> None:
        async for _ in await api.create(client):
            await asyncio.sleep(0)

    await asyncio.gather(*(read() for _ in range(8)))
    assert on.outcomes == [COMPLETED] * 16
    assert len(on.turns) == 8
