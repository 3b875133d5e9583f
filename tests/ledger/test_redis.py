"""What is particular to the ledger in Redis."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_toolcalls import instrument
from otel_toolcalls.config import SettingsError, resolve
from otel_toolcalls.conventions import LostReason
from otel_toolcalls.ledger.redis import RedisStore
from otel_toolcalls.ledger.shared import Add, Settle, StoreError
from tests.e2e.backends import eventually, free_ports
from tests.ledger.making import NOW, claim, entry
from tests.ledger.redis_server import RedisServer

redis = pytest.importorskip("redis")


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """One that the test may stop."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


def test_all_keys_of_a_ledger_lie_in_one_slot_and_none_is_kept_for_ever(redis_server: RedisServer) -> None:
    store = RedisStore(f"{redis_server.url}?name=orders", recovery=0)
    store.settle(claim("early"))
    for call_id in ("a", "b", None, "due"):
        store.add(entry(call_id, deadline=-1 if call_id == "due" else 300))
    store.settle(claim("a"))
    store.judge(NOW)
    with redis_server.client() as client:
        keys = client.keys("*")
        assert keys
        assert all(key.startswith("{otel-toolcalls:orders}:") for key in keys)
        assert {key for key in keys if client.ttl(key) < 0} == set()
    store.close(NOW)


def test_ledgers_of_different_names_know_nothing_of_each_other(redis_server: RedisServer) -> None:
    one, other = (RedisStore(f"{redis_server.url}?name={name}") for name in ("one", "other"))
    one.add(entry())
    assert other.settle(claim()) is None
    assert not other.pending()
    for store in (one, other):
        store.close(NOW)


def test_the_scripts_run_on_a_server_in_cluster_mode(tmp_path: Path) -> None:
    def is_up() -> bool:
        with server.client() as client:
            return bool(client.cluster("INFO")["cluster_state"] == "ok")

    [bus] = free_ports(1)  # by itself it would be the server's own and 10,000, which may be more than there are
    server = RedisServer(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(bus))
    server.start()
    try:
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(is_up, what="the cluster is up")
        store = RedisStore(server.url, recovery=0)
        for number in range(50):
            store.add(entry(f"call-{number}"))
        assert store.settle(claim("call-7")) is not None
        assert len(store.pending()) == 49
        assert len(store.judge(NOW + 1000)) == 49
        server.stop()
        with pytest.raises(StoreError):
            store.add(entry("after"))
        server.start()
        eventually(is_up, what="the cluster is up again")  # before, older redis-py tells of an error at once
        store.add(entry("after"))
        store.close(NOW)
    finally:
        server.stop()


def test_scripts_are_loaded_again_after_a_restart(own_server: RedisServer) -> None:
    store = RedisStore(own_server.url, recovery=0)
    store.add(entry("before"))
    own_server.stop()
    with pytest.raises(StoreError):
        store.add(entry("after"))
    own_server.start()
    store.add(entry("after"))
    assert [one.call_id for one in store.pending()] == ["before", "after"]
    store.close(NOW)


def test_a_batch_whose_answer_was_lost_is_not_done_twice(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RedisStore(redis_server.url, recovery=0)
    store.add(entry(key="first"))
    store.add(entry(key="second"))
    batch = [Settle(claim()), Add(entry("other"))]
    run = store._run

    def answer_is_lost(*arguments: object) -> object:
        run(*arguments)  # type: ignore[arg-type]
        raise StoreError("the connection broke after the server had done it")

    monkeypatch.setattr(store, "_run", answer_is_lost)
    with pytest.raises(StoreError):
        store.apply(batch)
    monkeypatch.undo()
    settlement, _ = store.apply(batch)
    assert (settlement.first, settlement.entry.key, settlement.dispatches) == (True, "second", 1)  # type: ignore[union-attr]
    assert [one.key for one in store.pending()][:1] == ["first"]
    assert len(store.pending()) == 2
    store.close(NOW)


def test_a_full_server_takes_nothing_and_goes_on_when_it_has_room(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url, recovery=0)
    store.add(entry("before"))
    with redis_server.client() as client:
        client.config_set("maxmemory", "1mb")
        try:
            with pytest.raises(StoreError, match="OutOfMemory"):
                store.apply([Add(entry("after")), Settle(claim("before"))])
        finally:
            client.config_set("maxmemory", "0")
    assert [one.call_id for one in store.pending()] == ["before"]
    results = store.apply([Add(entry("after")), Settle(claim("before"))])
    assert results[1].first  # type: ignore[union-attr]
    store.close(NOW)


def test_a_process_that_was_not_heard_of_for_a_while_is_lost(redis_server: RedisServer) -> None:
    silent, sweeper = (RedisStore(f"{redis_server.url}?lost_after=1", recovery=0) for _ in range(2))
    silent.add(entry("a"))
    silent.add(entry("due", deadline=-1))
    assert [one.entry.call_id for one in silent.judge(NOW)] == ["due"], "taken, and never reported"
    assert not sweeper.judge(NOW)
    judged: list[tuple[str | None, str]] = []

    def silent_for_long() -> bool:
        judged[:] = [(one.entry.call_id, one.reason) for one in sweeper.judge(NOW)]
        return len(judged) == 2

    eventually(silent_for_long, what="the silent process is taken for dead")
    assert sorted(judged) == [("a", LostReason.PROCESS_LOST), ("due", LostReason.DEADLINE)]
    for store in (sweeper, silent):
        store.close(NOW)


def test_a_process_that_is_heard_of_is_not_lost(redis_server: RedisServer) -> None:
    announcer, sweeper = (RedisStore(f"{redis_server.url}?lost_after=1.5", recovery=0) for _ in range(2))
    announcer.add(entry())
    end = time.monotonic() + 4
    while time.monotonic() < end:
        announcer.judge(NOW - 1000)
        assert not sweeper.judge(NOW - 1000)
        time.sleep(0.2)
    for store in (announcer, sweeper):
        store.close(NOW)


def test_after_a_restart_nothing_is_judged_until_the_others_could_write_what_they_held_back(
    own_server: RedisServer,
) -> None:
    old, writer = RedisStore(own_server.url, recovery=3), RedisStore(own_server.url, recovery=3)
    writer.add(entry(deadline=-1))
    own_server.stop()
    with pytest.raises(StoreError):
        old.judge(NOW)
    own_server.start()
    fresh = RedisStore(own_server.url, recovery=3)
    for sweeper in (old, fresh):
        assert not sweeper.judge(NOW)
        assert 0 < sweeper.patience() <= 3
        due = sweeper.next_due()
        assert due is not None
        assert due > time.time()
    settlement = writer.settle(claim())
    assert settlement is not None
    assert settlement.first
    for store in (old, writer, fresh):
        store.close(NOW)


class TestAPassword:
    SECRET = "s3cret-p@ss/word"
    QUOTED = "s3cret-p%40ss%2Fword"

    def test_opens_the_ledger_and_appears_in_no_error_and_no_repr(self, tmp_path: Path) -> None:
        server = RedisServer(tmp_path, "--requirepass", self.SECRET)
        server._ready = lambda: _listens(server.port)  # type: ignore[method-assign]
        server.start()
        try:
            store = RedisStore(f"redis://:{self.QUOTED}@127.0.0.1:{server.port}/0", recovery=0)
            store.add(entry())
            assert len(store.pending()) == 1
            store.close(NOW)
            wrong = RedisStore(f"redis://someone:wrong{self.QUOTED}@127.0.0.1:{server.port}/0")
            with pytest.raises(StoreError) as caught:
                wrong.add(entry())
            for text in (repr(store), repr(wrong), str(caught.value), repr(caught.value)):
                assert "s3cret" not in text
                assert "someone" not in text
        finally:
            server.stop()

    @pytest.mark.parametrize(
        "url",
        [
            f"redis://user:{QUOTED}@host:port/0",
            f"redis://user:{SECRET}@host/0?name=a b",
            f"postgres://user:{SECRET}@host/0",
            f"redis:/user:{SECRET}@host/0",
            f"redis://host/0?password={QUOTED}&name=$",
        ],
    )
    def test_appears_in_no_error_about_the_setting(self, url: str) -> None:
        with pytest.raises(SettingsError) as caught:
            instrument(ledger=url)
        assert "s3cret" not in str(caught.value)
        assert "word" not in str(caught.value)

    def test_appears_in_no_repr_of_the_settings(self) -> None:
        assert "s3cret" not in repr(resolve({"ledger": f"redis://:{self.QUOTED}@host/0"}, {}))


def _listens(port: int) -> bool:
    try:
        redis.Redis(port=port).ping()
    except redis.AuthenticationError:
        return True
    except redis.ConnectionError:
        return False
    return True


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SettingsError, match=r"pip install 'otel-toolcalls\[redis\]'"):
        instrument(ledger="redis://:hidden@localhost/0")
