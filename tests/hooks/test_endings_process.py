"""Streams that are open when their process ends, forks, or is in the middle of its own telemetry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.apis import APIS, Api
from tests.hooks.server import ModelServer

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).with_name("apps")
TIMEOUT_SECONDS = 120

pytestmark = pytest.mark.skipif(not APIS, reason="neither anthropic nor openai is here")
survives_exit = pytest.mark.skipif(
    sys.version_info[:3] == (3, 13, 0),
    reason="CPython 3.13.0 crashes at exit with an open stream of openai's, also without this package",
)


def run(app: str, *arguments: str, spans: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPANS": str(spans)}
    return subprocess.run(
        [sys.executable, APPS / app, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
        env=environment,
    )


def exported(spans: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in spans.read_text().splitlines()]


def calls_of(lines: list[dict[str, Any]]) -> Counter[tuple[str, str, str, str | None]]:
    """Response, call id, outcome and ``error.type`` of each announced call."""
    calls = [line["attributes"] for line in lines if line["name"].startswith("announce_tool")]
    return Counter(
        (
            call["gen_ai.response.id"],
            call["gen_ai.tool.call.id"],
            call["otel_toolcalls.call.outcome"],
            call.get("error.type"),
        )
        for call in calls
    )


def response_id(api: Api) -> str:
    first = api.events[0]
    return (first.get("message") or first.get("response") or first)["id"]


def left_open(api: Api) -> list[tuple[str, str, str, str | None]]:
    lost = ("abandoned", "process_exit")
    first = ("completed", None) if api.ends_calls else lost
    return [(response_id(api), "call_1", *first), (response_id(api), "call_2", *lost)]


def read_whole(api: Api) -> list[tuple[str, str, str, str | None]]:
    return [(response_id(api), call, "completed", None) for call in ("call_1", "call_2")]


@survives_exit
@pytest.mark.parametrize("way", ["exit", "exception", "sigterm"])
def test_a_stream_that_is_open_at_exit_is_exported(way: str, server: ModelServer, tmp_path: Path) -> None:
    for api in (*APIS, *APIS):
        server.stream(api.events)
    spans = tmp_path / "spans"
    answer = run("exits.py", server.url, way, spans=spans)
    assert answer.returncode == {"exit": 3, "exception": 1, "sigterm": 0}[way], answer.stderr
    assert ("KeyError" in answer.stderr) is (way == "exception")
    assert "otel" not in answer.stderr
    assert calls_of(exported(spans)) == Counter([call for api in (*APIS, *APIS) for call in left_open(api)])
    assert len(exported(spans)) == 6 * len(APIS), "two turns of two calls"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_leaves_the_open_stream_to_the_parent(server: ModelServer, tmp_path: Path) -> None:
    for api in (*APIS, *APIS):
        server.stream(api.events)
    spans = tmp_path / "spans"
    answer = run("forks.py", server.url, spans=spans)
    assert answer.returncode == 0, answer.stderr
    child = int(answer.stdout)
    lines = exported(spans)
    whole = Counter([call for api in APIS for call in read_whole(api)])
    assert calls_of([line for line in lines if line["pid"] == child]) == whole
    assert calls_of([line for line in lines if line["pid"] != child]) == whole
    assert len({line["span"] for line in lines}) == len(lines) == 6 * len(APIS)


def test_a_stream_found_dead_under_a_lock_waits_for_the_lock(server: ModelServer, tmp_path: Path) -> None:
    for api in APIS:
        for _ in range(4):
            server.stream(api.events)
    answer = run("locks.py", server.url, spans=tmp_path / "spans")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == [
        f"{api} {how}"
        for api in APIS
        for how in (
            "drop_in_a_processor closed_early",
            "collect_in_a_processor garbage_collected",
            "collect_under_a_lock_of_the_app garbage_collected",
            "collect_in_a_log_handler garbage_collected",
        )
    ]
