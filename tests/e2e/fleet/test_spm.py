"""Jaeger alone with service performance monitoring: its own span metrics, by way of Prometheus, in its own API."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode

from otel_toolcalls import conventions as c
from tests.e2e.backends import Jaeger, eventually, free_ports, get_json
from tests.e2e.fleet.programs import DASHBOARDS, Prometheus
from tools import gobuild


def test_the_monitor_page_shows_calls_and_errors_by_operation(tmp_path: Path) -> None:
    try:
        binary = gobuild.build("jaeger")
    except gobuild.GoMissingError as missing:
        pytest.skip(f"no Jaeger to test against: {missing}")
    metrics, prometheus_port = free_ports(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAEGER_PORT_METRICS", str(metrics))
        patch.setenv("JAEGER_PROMETHEUS", f"http://127.0.0.1:{prometheus_port}")
        patch.setenv("JAEGER_SPAN_METRICS_INTERVAL", "1s")
        with (
            Jaeger.started(binary, tmp_path / "log", DASHBOARDS / "jaeger" / "spm.yaml") as jaeger,
            Prometheus.started(
                tmp_path / "prometheus",
                source=DASHBOARDS / "prometheus" / "prometheus.yaml",
                rules=DASHBOARDS / "prometheus" / "rules.yaml",
                addresses={"collector:8889": f"127.0.0.1:{metrics}", "alertmanager:9093": "127.0.0.1:1"},
                port=prometheus_port,
            ),
        ):
            provider = TracerProvider(resource=Resource.create({"service.name": "monitored"}))
            provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(jaeger.otlp_grpc, insecure=True)))
            span = provider.get_tracer(c.SCOPE).start_span(f"{c.OP_AWAIT} pay")
            span.set_status(Status(StatusCode.ERROR))
            span.end()
            provider.shutdown()

            def operations(metric: str) -> set[str]:
                asked = {"service": "monitored", "spanKind": "internal", "groupByOperation": "true"}
                asked |= {"lookback": "600000", "step": "5000", "ratePer": "60000"}
                found = get_json(f"{jaeger.query}/api/metrics/{metric}", **asked)["metrics"]
                labels = ({label["name"]: label["value"] for label in one["labels"]} for one in found)
                return {one["operation"] for one in labels}

            for metric in ("calls", "errors"):
                found = eventually(lambda metric=metric: operations(metric), seconds=30, what=f"{metric} in Jaeger")
                assert found == {f"{c.OP_AWAIT} pay"}
