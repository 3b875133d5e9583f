"""``otel-toolcalls sweep`` where reports do not leave: nothing is forgotten that the ledger judged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("click", reason="the commands need the extra cli")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_toolcalls.cli.model_server import ModelServer, Reply, Request
from otel_toolcalls.cli.sweep import Sweeper, UnsentError
from otel_toolcalls.ledger import Judged
from otel_toolcalls.ledger.redis import RedisStore
from otel_toolcalls.ledger.shared import SharedStore
from otel_toolcalls.ledger.sqlite import SqliteStore
from tests.e2e.backends import eventually
from tests.ledger.making import NOW, entry
from tests.ledger.redis_server import RedisServer
from tests.support.loopback import model_server

__all__ = ["model_server"]

Open = Callable[[], SharedStore]
UNSENT = "could not be sent; what is not sent stays in the ledger"


class Collector:
    """An OTLP endpoint that refuses until it is told to take what comes."""

    def __init__(self, server: ModelServer) -> None:
        self.takes = threading.Event()
        self.variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        }
        self._bodies: list[bytes] = []
        for which in ("traces", "metrics", "logs"):
            server.reply(self._answer, path=f"/v1/{which}")

    def _answer(self, request: Request) -> Reply:
        taken = self.takes.is_set()
        if taken and request.path == "/v1/traces":
            self._bodies.append(request.body)
        return Reply(b"", status=200 if taken else 503, content_type="application/x-protobuf")

    @property
    def spans(self) -> list[str]:
        """Names of the spans that it took."""
        return [
            span.name
            for body in list(self._bodies)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector(model_server: ModelServer) -> Collector:
    return Collector(model_server)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with a call that is due."""
    store = SqliteStore(str(tmp_path / "ledger.db"))
    store.add(entry("toolu_lost", at=time.time() - 400))
    store.close(0)
    return tmp_path / "ledger.db"


@pytest.fixture
def sweep(path: Path, collector: Collector) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "otel_toolcalls.cli", "sweep", "--ledger", f"sqlite:///{path}", *arguments],
            env={**os.environ, **collector.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def ours(stderr: str) -> list[str]:
    """The lines that are not the SDK's."""
    return [line for line in stderr.splitlines() if line.startswith("otel-toolcalls: ")]


def to_report(path: Path) -> list[str | None]:
    """The calls that the ledger gives to the next who looks."""
    store = SqliteStore(str(path), recovery=0)
    try:
        return [one.entry.call_id for one in store.judge(time.time())]
    finally:
        store.close(0)


def test_sweeping_once_says_that_a_report_could_not_be_sent_and_the_next_sweep_sends_it(
    sweep: Callable[..., subprocess.Popen[str]], collector: Collector
) -> None:
    first = sweep("--once")
    out, err = first.communicate(timeout=180)
    assert first.returncode == 3
    assert "call_id=toolu_lost" in out
    assert ours(err) == [f"otel-toolcalls: 1 report of lost calls {UNSENT}"]
    assert collector.spans == []

    collector.takes.set()
    second = sweep("--once")
    out, err = second.communicate(timeout=180)
    assert second.returncode == 1
    assert "call_id=toolu_lost" in out
    assert (ours(err), collector.spans) == ([], ["await_dispatch search"])
    third = sweep("--once")
    assert (third.communicate(timeout=180)[0], third.returncode) == ("", 0)
    assert collector.spans == ["await_dispatch search"]


def test_a_sweeper_that_goes_on_sends_a_report_when_it_can_and_says_once_that_it_could_not(
    sweep: Callable[..., subprocess.Popen[str]], collector: Collector, path: Path
) -> None:
    sweeper = sweep()
    assert sweeper.stdout is not None
    assert sweeper.stderr is not None
    assert "call_id=toolu_lost" in sweeper.stdout.readline()
    while UNSENT not in (line := sweeper.stderr.readline()):
        assert line, "it has ended"
    collector.takes.set()
    eventually(lambda: collector.spans, what="the report was sent")
    store = SqliteStore(str(path))
    store.add(entry("toolu_later", at=time.time(), deadline=-1))
    store.close(0)
    assert "call_id=toolu_later" in sweeper.stdout.readline()
    eventually(lambda: len(collector.spans) > 1, what="the next report was sent")
    sweeper.send_signal(signal.SIGTERM)
    out, err = sweeper.communicate(timeout=180)
    assert (sweeper.returncode, out, ours(err)) == (0, "", [])
    assert collector.spans == ["await_dispatch search"] * 2
    assert to_report(path) == [], "the ledger knows that both were reported"


def test_a_sweeper_that_is_stopped_before_it_could_send_says_so_and_leaves_the_report_to_another(
    sweep: Callable[..., subprocess.Popen[str]], path: Path
) -> None:
    sweeper = sweep()
    assert sweeper.stdout is not None
    sweeper.stdout.readline()
    sweeper.send_signal(signal.SIGTERM)
    _, err = sweeper.communicate(timeout=180)
    assert sweeper.returncode == 0
    assert ours(err) == [f"otel-toolcalls: 1 report of lost calls {UNSENT}"]
    assert to_report(path) == ["toolu_lost"]


# ---- the sweeper and its store ---------------------------------------------------------------------------------------


def test_what_was_not_sent_is_reported_once_and_kept_until_it_is_sent(open_shared: Open) -> None:
    store, lost, sends = open_shared(), [], [False, False, True, True]
    store.add(entry("a", deadline=-1))
    sweeper = Sweeper(store, lambda one: lost.append(one.entry.call_id), lambda: sends.pop(0))
    for _ in range(2):
        with pytest.raises(UnsentError, match="1 report of lost calls could not be sent"):
            sweeper.sweep()
        store.add(entry("b", key="second", deadline=-1))
    assert lost == ["a"], "no more are taken meanwhile"
    assert sweeper.sweep() == 1
    assert (lost, sends) == (["a", "b"], [])
    assert not open_shared().judge(NOW)


def test_what_was_not_sent_is_handed_to_another_when_its_sweeper_ends(open_shared: Open) -> None:
    store, other = open_shared(), open_shared()
    store.add(entry("a", deadline=-1))
    with pytest.raises(UnsentError):
        Sweeper(store, lambda one: None, lambda: False).sweep()
    assert not other.judge(NOW), "not while that one lives"
    store.close(NOW)
    seen: list[Judged] = []
    assert Sweeper(other, seen.append, lambda: True).sweep() == 1
    assert [one.entry.call_id for one in seen] == ["a"]


def test_a_sweeper_that_cannot_send_is_heard_of(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url, recovery=0)
    store.add(entry(deadline=-1))
    sweeper = Sweeper(store, lambda one: None, lambda: False)
    with pytest.raises(UnsentError):
        sweeper.sweep()
    with redis_server.client() as client:
        alive = "{otel-toolcalls:default}:alive"
        assert client.delete(alive) == 1
        with pytest.raises(UnsentError):
            sweeper.sweep()
        assert client.zcard(alive) == 1
    store.close(NOW)
