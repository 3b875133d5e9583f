"""Processes of a fleet on a real Redis that is restarted under them."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.backends import eventually
from tests.ledger.fleet import fleet, reported
from tests.ledger.redis_server import RedisServer

CALLS, BATCH, DEADLINE = 10_000, 25, 60.0
LEFT_OUT_EVERY = 100
ANNOUNCED = "{otel-toolcalls:default}:seq"


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[RedisServer]:
    server = RedisServer(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.slow
def test_redis_restarts_and_connections_break_and_exactly_the_lost_calls_are_reported_each_once(tmp_path: Path) -> None:
    """Two processes announce, two run, and three more sweep beside them."""
    calls = [[f"call-{member}-{number}" for number in range(CALLS // 2)] for member in range(2)]
    left_out = {ids[number] for ids in calls for number in range(7, len(ids), LEFT_OUT_EVERY)}
    choose = random.Random(4)
    with running(tmp_path) as server, fleet(7, server.url, tmp_path, DEADLINE) as members:
        announcers, runners, sweepers = members[:2], members[2:4], members[4:]
        for sweeper in sweepers:
            sweeper.tell("run", ["unknown"])  # its worker starts with the first thing there is to do

        def announce_and_run(batches: range) -> None:
            for start in batches:
                for member, ids in zip(announcers, calls, strict=True):
                    batch = ids[start : start + BATCH]
                    member.tell("announce", batch)
                    choose.choice(runners).tell("run", [one for one in batch if one not in left_out])

        with server.client() as client:
            announce_and_run(range(0, 3000, BATCH))
            eventually(lambda: int(client.get(ANNOUNCED) or 0) > 500, what="500 calls are in the ledger", seconds=60)
            server.stop()
            left = max(member.busy for member in announcers)
            eventually(lambda: all(one.busy <= left - 20 for one in announcers), what="the apps go on", seconds=60)
            server.start()
            announce_and_run(range(3000, 5000, BATCH))
            cut = 0
            while any(member.busy for member in members):
                cut += client.client_kill_filter(_type="normal", skipme=True)
                time.sleep(0.05)
        for member in members:
            member.done()
        expected = {(one, "deadline", "True"): 1 for one in left_out}
        eventually(lambda: len(reported(tmp_path)) >= len(expected), seconds=DEADLINE + 60, what="all are reported")
    assert reported(tmp_path) == expected
    assert len(expected) == 100
    assert cut > 50
