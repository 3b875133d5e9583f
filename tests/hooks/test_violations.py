"""What contradicts the protocol is recorded, and reaches the app only where that is asked for."""

from __future__ import annotations

import pytest

import otel_toolcalls
from tests.hooks.apis import ANTHROPIC, APIS
from tests.hooks.observed import Observed
from tests.hooks.server import ModelServer

pytestmark = pytest.mark.skipif(ANTHROPIC not in APIS, reason="anthropic is not installed")
EVENTS = ANTHROPIC.events
SECOND_ANNOUNCEMENT = [*EVENTS[:6], EVENTS[4], *EVENTS[6:]]


def test_it_is_recorded_and_the_app_reads_on(server: ModelServer, observed: Observed) -> None:
    server.stream(SECOND_ANNOUNCEMENT)
    with observed.instrumented(), ANTHROPIC.client(server.url) as client:
        assert len(list(ANTHROPIC.create(client))) == len(SECOND_ANNOUNCEMENT)
        observed.check()
    failed = ("invalid", "protocol_violation")
    assert observed.outcomes == [failed, failed, ("completed", None)]
    assert observed.total("otel_toolcalls.violations") == 1


def test_it_is_raised_where_that_is_asked_for(server: ModelServer, observed: Observed) -> None:
    server.stream(SECOND_ANNOUNCEMENT)
    with observed.instrumented(on_violation="raise"), ANTHROPIC.client(server.url) as client:
        with pytest.raises(otel_toolcalls.ProtocolError, match="duplicate announcement at position 1, which is open"):
            list(ANTHROPIC.create(client))
        observed.check()
    assert observed.turns[0].attributes["error.type"] == "otel_toolcalls.accumulator.ProtocolError"


async def test_it_is_raised_by_an_async_stream_too(server: ModelServer, observed: Observed) -> None:
    server.stream(SECOND_ANNOUNCEMENT)
    with observed.instrumented(on_violation="raise"):
        async with ANTHROPIC.async_client(server.url) as client:
            stream = await ANTHROPIC.create(client)
            with pytest.raises(otel_toolcalls.ProtocolError):
                async for _ in stream:
                    pass
        observed.check()
