"""An app with ``opentelemetry-exporter-prometheus``, scraped by a real Prometheus without a collector in between."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_toolcalls.cli.model_server import ModelServer
from tests.e2e.backends import eventually, free_ports
from tests.e2e.fleet.programs import DASHBOARDS, Prometheus
from tests.e2e.fleet.traffic import STREAMS, TOOL

LOSSES = f'otel_toolcalls_undispatched_calls_total{{gen_ai_tool_name="{TOOL}"}}'


@contextmanager
def app(port: int, model: ModelServer) -> Iterator[subprocess.Popen[str]]:
    """The app with its metrics at ``port``; it ends with its standard input."""
    script = Path(__file__).parent / "apps" / "scraped.py"
    env = {**os.environ, "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none-needed"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, str(script), str(port)], env=env, **pipes) as running:
        try:
            yield running
        finally:
            running.kill()


def test_a_first_loss_is_an_increment_from_0_and_alerts(tmp_path: Path) -> None:
    metrics, own = free_ports(2)
    source = DASHBOARDS / "prometheus"
    addresses = {"collector:8889": f"127.0.0.1:{metrics}", "alertmanager:9093": "127.0.0.1:1"}
    with (
        ModelServer() as model,
        Prometheus.started(
            tmp_path / "prometheus",
            source=source / "prometheus.yaml",
            rules=source / "rules.yaml",
            addresses=addresses,
            port=own,
        ) as prometheus,
        app(metrics, model) as running,
    ):
        model.reply((STREAMS / "same_tool.sse").read_bytes())
        model.reply((STREAMS / "same_tool_half.sse").read_bytes())
        assert running.stdout.readline() == "waiting\n"
        prometheus.await_value(f"sum({LOSSES})", 0)
        prometheus.await_value(f'sum(otel_toolcalls_pending_calls{{gen_ai_tool_name="{TOOL}"}})', 2)
        assert prometheus.alerts() == []

        print(file=running.stdin, flush=True)
        assert running.stdout.readline() == "answered\n"
        prometheus.await_value(f"sum({LOSSES})", 1)
        assert prometheus.value(f"sum(increase({LOSSES}[1m]))") > 0
        (alert,) = eventually(prometheus.alerts, what="the alert")
        assert alert["labels"]["alertname"] == "ToolCallLost"
        assert alert["labels"]["gen_ai_tool_name"] == TOOL
        assert alert["state"] == "firing"
