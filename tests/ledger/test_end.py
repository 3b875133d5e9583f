"""The orderly end of a process whose store is slow or out of reach: one deadline, handed down to each that waits."""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_toolcalls
from otel_toolcalls import guard, runtime
from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.ledger import Entry, Judged, Settlement
from otel_toolcalls.ledger.redis import RedisStore
from otel_toolcalls.ledger.shared import Result, SharedAccount, StoreError
from otel_toolcalls.ledger.sqlite import SqliteStore
from otel_toolcalls.worker import Worker
from tests.ledger.making import claim, entry


class Held(SqliteStore):
    """A file that is slow: what is written there is held up until the test lets it go."""

    def __init__(self, path: str) -> None:
        super().__init__(path, recovery=0)
        self.reached, self.go = threading.Event(), threading.Event()
        self.asked: list[str] = []

    def apply(self, operations: Any) -> list[Result]:
        self.asked.append("apply")
        self.reached.set()
        assert self.go.wait(60)
        return super().apply(operations)

    def judge(self, now: float) -> Any:
        self.asked.append("judge")
        return super().judge(now)

    def close(self, now: float) -> Any:
        self.asked.append("close")
        return super().close(now)


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """Where errors were counted."""
    places: list[str] = []
    guard.listen(places.append)
    yield places
    guard.listen(None)


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a Redis that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the sockets of this thread were told to wait at most."""
    asked: list[float] = []
    settimeout, thread = socket.socket.settimeout, threading.get_ident()

    def noted(self: socket.socket, seconds: float | None) -> None:
        if threading.get_ident() == thread:
            asked.append(float("inf") if seconds is None else seconds)
        settimeout(self, seconds)

    monkeypatch.setattr(socket.socket, "settimeout", noted)
    return asked


END: list[Callable[[SharedAccount, float], object]] = [SharedAccount.close, SharedAccount.release]
each_end = pytest.mark.parametrize("end", END, ids=["shutdown", "uninstrument"])


@each_end
def test_what_the_worker_is_held_up_with_is_taken_from_it_and_settled_by_what_is_known_here(
    tmp_path: Path, errors: list[str], end: Callable[[SharedAccount, float], object]
) -> None:
    store = Held(str(tmp_path / "ledger.db"))
    lost: list[Judged] = []
    settled: list[tuple[Entry, SettledBy]] = []
    met: list[Settlement | None] = []
    account = SharedAccount(store, 100, lost.append, lambda *one: settled.append(one), lambda: None)
    account.add(entry("waits", at=time.time()))
    account.add(entry("runs", at=time.time()))
    account.settle(claim("runs"), met.append)
    worker = threading.Thread(target=account.tick)
    worker.start()
    assert store.reached.wait(60)
    account.settle(claim("unknown"), met.append)

    ended = end(account, time.monotonic())

    assert [one and one.first for one in met] == [True, None]
    follows = [one.entry.call_id for one in lost] or [one.call_id for one in ended or ()]  # type: ignore[attr-defined]
    assert follows == ["waits"]
    assert [one.reason for one in lost] in ([], [LostReason.SHUTDOWN])
    assert sorted(errors) == ["ledger.dropped.add"] * 2 + ["ledger.dropped.settle"] * 2
    store.go.set()
    worker.join()
    assert store.asked == ["apply"], "nothing more was asked of it"
    assert (len(met), len(lost) + len(ended or ()), settled) == (2, 1, [])  # type: ignore[arg-type]
    store.close(0)


@each_end
def test_a_store_that_took_nothing_is_not_asked_to_say_good_bye(
    silent: str, errors: list[str], monkeypatch: pytest.MonkeyPatch, end: Callable[[SharedAccount, float], object]
) -> None:
    pytest.importorskip("redis")
    closed: list[float] = []
    monkeypatch.setattr(RedisStore, "close", lambda self, now: closed.append(now))
    account = SharedAccount(RedisStore(silent), 100, lambda one: None, lambda *one: None, lambda: None)
    account.add(entry(at=time.time()))
    end(account, time.monotonic() + 0.2)
    assert errors == ["ledger.store", "ledger.dropped.add"]
    assert closed == []


@each_end
def test_no_socket_waits_beyond_the_deadline(
    silent: str, errors: list[str], waits: list[float], end: Callable[[SharedAccount, float], object]
) -> None:
    pytest.importorskip("redis")
    account = SharedAccount(RedisStore(silent), 100, lambda one: None, lambda *one: None, lambda: None)
    account.add(entry(at=time.time()))
    end(account, time.monotonic() + 0.2)
    assert waits
    assert max(waits) <= 0.2


def test_a_connection_made_for_ordinary_waits_is_made_anew_for_short_ones(
    redis_server: Any, waits: list[float]
) -> None:
    store = RedisStore(redis_server.url, recovery=0)
    store.add(entry("before"))
    waits.clear()
    store.hurry(time.monotonic() + 1.5)
    store.add(entry("after"))
    assert waits
    assert max(waits) <= 1.5
    store.hurry(time.monotonic())
    waits.clear()
    with pytest.raises(StoreError, match="no time is left"):
        store.pending()
    assert waits == []
    store.abandon()
    assert [one.call_id for one in store.pending()] == ["before", "after"], "and it is as it was made"
    store.close(0)


def test_a_file_that_another_process_holds_is_waited_for_no_longer_than_there_is_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    store = SqliteStore(str(path), recovery=0)
    store.add(entry("before"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.hurry(time.monotonic() + 0.2)
    with store._reading() as db:
        assert db.execute("PRAGMA busy_timeout").fetchone()[0] <= 200
    with pytest.raises(StoreError, match="locked"):
        store.add(entry("after"))
    store.hurry(time.monotonic())
    with pytest.raises(StoreError, match="no time is left"):
        store.pending()
    store.abandon()
    other.execute("ROLLBACK")
    other.close()
    assert [one.call_id for one in store.pending()] == ["before"]
    store.close(0)


@pytest.mark.parametrize(
    ("end", "asked"),
    [
        (otel_toolcalls.shutdown, [(Worker, "stop"), (SharedAccount, "close"), (SqliteStore, "hurry")]),
        (otel_toolcalls.uninstrument, [(SharedAccount, "release"), (SqliteStore, "hurry"), (Worker, "stop")]),
    ],
    ids=["shutdown", "uninstrument"],
)
def test_all_that_wait_at_the_end_are_handed_the_same_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[], None], asked: list[tuple[type, str]]
) -> None:
    handed: list[tuple[str, float]] = []

    def noted(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def note(self: object, until: float) -> object:
            handed.append((name, until))
            return original(self, until)

        monkeypatch.setattr(owner, name, note)

    for owner, name in asked:
        noted(owner, name)
    otel_toolcalls.instrument(ledger=f"sqlite:///{tmp_path}/ledger.db")
    try:
        before = time.monotonic()
        end()
        after = time.monotonic()
        assert [name for name, _ in handed] == [name for _, name in asked]
        [until] = {until for _, until in handed}
        assert before <= until - runtime._LONGEST_SHUTDOWN <= after
    finally:
        otel_toolcalls.uninstrument()
