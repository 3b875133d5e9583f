"""``otel-toolcalls sweep`` and ``otel-toolcalls pending``, as processes."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("click", reason="the commands need the extra cli")

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_toolcalls import conventions as c
from otel_toolcalls.cli.model_server import ModelServer
from otel_toolcalls.ledger import TraceRef
from otel_toolcalls.ledger.sqlite import SqliteStore
from tests.ledger.making import entry
from tests.ledger.redis_server import RedisServer
from tests.support.loopback import model_server

__all__ = ["model_server"]

COMMAND = [sys.executable, "-m", "otel_toolcalls.cli"]
SILENT = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **SILENT, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def url(path: Path) -> str:
    """A ledger with a call that is due, and one that is not."""
    store = SqliteStore(str(path))
    now = time.time()
    store.add(entry("toolu_lost", "search", trace=0xABCDEF, at=now - 400))
    store.add(entry("toolu_waits", "fe\x1btch", at=now - 10))
    store.close(now)
    return f"sqlite:///{path}"


@pytest.fixture
def collector(model_server: ModelServer) -> dict[str, str]:
    """An OTLP endpoint that takes everything, as the environment says it."""
    for which in ("traces", "metrics", "logs"):
        model_server.reply(b"", path=f"/v1/{which}", content_type="application/x-protobuf")
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": model_server.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        **dict.fromkeys(SILENT, "otlp"),
    }


def test_sweeping_once_exports_a_span_a_metric_and_a_log_event_and_prints_a_line(
    url: str, model_server: ModelServer, collector: dict[str, str]
) -> None:
    done = run("sweep", "--ledger", url, "--once", **collector)
    assert done.returncode == 1, done.stderr
    [line] = done.stdout.splitlines()
    assert " lost tool=search call_id=toolu_lost reason=deadline waited=40" in line
    bodies: dict[str, list[bytes]] = {}
    for request in model_server.requests:
        bodies.setdefault(request.path, []).append(request.body)
    spans = [
        span
        for body in bodies["/v1/traces"]
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert [span.name for span in spans] == ["await_dispatch search"]
    assert spans[0].trace_id == (0xABCDEF).to_bytes(16, "big")
    assert spans[0].parent_span_id == (0xABC).to_bytes(8, "big")
    records = [
        record
        for body in bodies["/v1/logs"]
        for resource in ExportLogsServiceRequest.FromString(body).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    assert [record.trace_id for record in records] == [spans[0].trace_id]
    metrics = {
        metric.name
        for body in bodies["/v1/metrics"]
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert c.UNDISPATCHED_CALLS in metrics


def test_sweeping_once_where_nothing_is_due_prints_nothing_and_succeeds(url: str) -> None:
    run("sweep", "--ledger", url, "--once")
    done = run("sweep", "--once", OTEL_TOOLCALLS_LEDGER=url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running = []

    def start_one(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env={**os.environ, **SILENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start_one
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_sweeper_runs_until_a_signal_and_ends_cleanly(
    url: str, path: Path, number: signal.Signals, start: Callable[..., subprocess.Popen[str]]
) -> None:
    sweeper = start("sweep", "--ledger", url)
    assert sweeper.stdout is not None
    assert "call_id=toolu_lost" in sweeper.stdout.readline()
    store = SqliteStore(str(path))
    store.add(entry("toolu_later", at=time.time(), deadline=0.5))
    assert "call_id=toolu_later" in sweeper.stdout.readline()
    store.close(0)
    sweeper.send_signal(number)
    out, err = sweeper.communicate(timeout=120)
    assert (sweeper.returncode, out, err) == (0, "", "")
    assert not [file for file in path.parent.rglob("*") if file.is_file() and file != path]


@pytest.mark.slow
def test_a_sweeper_goes_on_when_its_ledger_comes_back(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    folder = tmp_path / "not yet"
    sweeper = start("sweep", "--ledger", f"sqlite:///{folder}/ledger.db")
    assert sweeper.stderr is not None
    assert sweeper.stdout is not None
    assert "No such file" in sweeper.stderr.readline()
    folder.mkdir()
    store = SqliteStore(str(folder / "ledger.db"))
    store.add(entry("toolu_lost", at=time.time(), deadline=-1))
    assert "call_id=toolu_lost" in sweeper.stdout.readline()
    store.close(0)


def test_what_waits_is_listed_oldest_first(url: str) -> None:
    done = run("pending", "--ledger", url)
    assert done.returncode == 0
    header, first, second, count = done.stdout.splitlines()
    assert header.split()[:3] == ["waits", "due", "in"]
    assert "toolu_lost" in first
    assert "toolu_waits" in second
    assert r'"fe\u001btch"' in second, "what a model chose does not drive the terminal"
    assert count == "2 waiting"


def test_what_waits_can_be_had_as_json(url: str) -> None:
    listed = json.loads(run("pending", "--ledger", url, "--json").stdout)
    assert [one["call_id"] for one in listed] == ["toolu_lost", "toolu_waits"]
    assert listed[0]["trace_id"] == f"{0xABCDEF:032x}"
    assert not {"arguments", "result"} & set(listed[0])


def test_a_call_without_a_trace_shows_none(path: Path) -> None:
    store = SqliteStore(str(path))
    untraced = dataclasses.replace(entry("toolu_lost", at=time.time() - 400), trace=TraceRef(0, 0))
    store.add(untraced)
    store.close(time.time())
    url = f"sqlite:///{path}"
    assert run("pending", "--ledger", url).stdout.splitlines()[1].endswith(" -")
    [listed] = json.loads(run("pending", "--ledger", url, "--json").stdout)
    assert (listed["trace_id"], listed["span_id"]) == (None, None)
    assert " trace_id=- key=" in run("sweep", "--ledger", url, "--once").stdout


def test_no_line_of_the_list_ends_in_blanks(url: str) -> None:
    lines = run("pending", "--ledger", url).stdout.splitlines()
    assert lines == [line.rstrip() for line in lines]


@pytest.mark.slow
def test_a_ledger_in_redis_is_swept_and_listed(redis_server: RedisServer) -> None:
    from otel_toolcalls.ledger.redis import RedisStore  # noqa: PLC0415

    store = RedisStore(redis_server.url)
    store.add(entry("toolu_lost", at=time.time() - 400))
    store.add(entry("toolu_waits", at=time.time()))
    store.close(0)
    assert "toolu_lost" in run("sweep", "--ledger", redis_server.url, "--once").stdout
    listed = json.loads(run("pending", "--ledger", redis_server.url, "--json").stdout)
    assert [one["call_id"] for one in listed] == ["toolu_waits"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pending",), "Missing option '--ledger'"),
        (("pending", "--ledger", "memory"), "memory is no ledger that processes share"),
        (("sweep", "--ledger", "none"), "none is no ledger that processes share"),
        (("sweep", "--ledger", "mysql://me:hidden@host/db"), "got mysql://***@host/db"),
        (("pending", "--ledger", "sqlite:////absent/ledger.db"), "/absent/ledger.db: no such ledger"),
        (("sweep", "--once", "--ledger", "sqlite:////absent/ledger.db"), "/absent/ledger.db"),
        (("pending", "--ledger", "redis://me:hidden@127.0.0.1:1/0"), "redis://***@127.0.0.1:1/0: ConnectionError"),
        (("sweep", "--once", "--ledger", "redis://me:hidden@127.0.0.1:1/0"), "redis://***@127.0.0.1:1/0"),
    ],
)
def test_errors_are_one_line_and_status_2(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("otel-toolcalls: ")
    assert words in line
    assert "hidden" not in line


def test_an_exporter_that_is_not_installed_is_told_in_one_line(url: str) -> None:
    done = run("sweep", "--ledger", url, "--once", OTEL_TRACES_EXPORTER="absent")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "absent" in line
