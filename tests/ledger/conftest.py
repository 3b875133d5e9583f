"""The stores of the ledger, each as it is used: in memory, in a file of its own, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_toolcalls.ledger import Store
from otel_toolcalls.ledger.memory import MemoryStore
from otel_toolcalls.ledger.redis import RedisStore
from otel_toolcalls.ledger.shared import SharedStore
from otel_toolcalls.ledger.sqlite import SqliteStore
from tests.ledger.redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_server(redis_of_session: RedisServer) -> RedisServer:
    """A running server that holds nothing."""
    redis_of_session.flush()
    return redis_of_session


Open = Callable[[], SharedStore]


@pytest.fixture(params=["sqlite", "redis"])
def open_shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens one and the same ledger again and again, each time as another process would."""
    opened: list[SharedStore] = []
    server = request.getfixturevalue("redis_server") if request.param == "redis" else None

    def open_one() -> SharedStore:
        store: SharedStore
        if server is None:
            store = SqliteStore(str(tmp_path / "ledger.db"), recovery=0)
        else:
            store = RedisStore(server.url, recovery=0)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close(0)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    made: Store
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SqliteStore(str(tmp_path / "ledger.db"), recovery=0)
    else:
        made = RedisStore(request.getfixturevalue("redis_server").url, recovery=0)
    yield made
    made.close(0)
