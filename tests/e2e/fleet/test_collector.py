"""The real collector with the shipped configurations: what passes, what is masked, and where it arrives."""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest

from dashboards.source import reference
from otel_toolcalls import conventions as c
from tests.e2e.backends import Jaeger, eventually
from tests.e2e.fleet.programs import DASHBOARDS, ClickHouse, Collector, collector_binary
from tests.e2e.fleet.traffic import DEMO, MADE, SECRETS, TOOL, run_demo, run_dispatching, send

CONFIGURATIONS = DASHBOARDS / "collector"


@pytest.mark.parametrize(
    "names",
    [["collector"], ["collector", "fleet"], ["collector", "fleet", "to-kafka"], ["collector", "fleet", "from-kafka"]],
    ids="+".join,
)
def test_the_collector_accepts_the_configuration(names: list[str]) -> None:
    command: list[str | Path] = [collector_binary(), "validate"]
    for name in names:
        command += ["--config", f"file:{CONFIGURATIONS}/{name}.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True, slots=True)
class Collected:
    collector: Collector
    jaeger: Jaeger
    clickhouse: ClickHouse
    trace_id: str


@pytest.fixture(scope="module")
def collected(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collected]:
    """The collector with fleet.yaml on top; Kafka is not there, and that stops nothing."""
    folder = tmp_path_factory.mktemp("collector")
    with (
        ClickHouse.started(folder / "clickhouse.log") as clickhouse,
        Collector.started(
            folder / "collector.log",
            to_jaeger=jaeger.otlp_grpc.removeprefix("http://"),
            configurations=[CONFIGURATIONS / "collector.yaml", CONFIGURATIONS / "fleet.yaml"],
            env={
                "COLLECTOR_TO_CLICKHOUSE": f"{clickhouse.url}?compress=none",
                "COLLECTOR_TO_KAFKA": "127.0.0.1:1",
            },
        ) as collector,
    ):
        yield Collected(collector, jaeger, clickhouse, send(collector.otlp_grpc))


def test_traces_reach_jaeger_with_their_links(collected: Collected) -> None:
    collected.jaeger.find(MADE, {c.CALL_KEY: "lost", c.OPERATION_NAME: c.OP_AWAIT})
    spans = {span.name: span for span in collected.jaeger.spans(collected.trace_id)}
    assert spans[f"{c.OP_EXECUTE} pay"].links[0].attributes[c.CALL_KEY] == "ran"


def test_no_content_passes_whatever_the_apps_send(collected: Collected) -> None:
    collected.jaeger.find(MADE, {c.CALL_KEY: "lost"})
    (turn,) = [span for span in collected.jaeger.spans(collected.trace_id) if span.name.startswith(c.OP_CHAT)]
    for attribute, secret in SECRETS.items():
        if attribute != "note":
            assert turn.attributes[attribute] == "****"
        assert secret not in str(turn.attributes)
    assert turn.attributes["note"] == "write to ****, key ****, card ****"


def test_a_lost_call_is_in_clickhouses_account(collected: Collected) -> None:
    window = {
        "since": time.strftime("%Y-%m-%d 00:00:00", time.gmtime(time.time() - 3600)),
        "until": "2100-01-01 00:00:00",
    }

    def lost(query: str) -> list[dict[str, Any]]:
        return collected.clickhouse.rows(query, **window)

    for query in ("lost_calls.sql", "lost_calls_without_account.sql"):
        (row,) = eventually(lambda query=query: lost(query), what=f"a lost call in {query}")
        assert (row["Key"], row["Reason"], row["ToolName"]) == ("lost", "deadline", "pay")
        assert row["Trace"] == collected.trace_id


def test_the_account_of_real_apps_is_closed_by_their_traces_alone(collected: Collected, tmp_path: Path) -> None:
    run_demo(collected.collector.otlp_http, tmp_path)
    run_dispatching(collected.collector.otlp_http, tmp_path)
    day = {"since": time.strftime("%Y-%m-%d 00:00:00", time.gmtime(time.time() - 3600)), "until": "2100-01-01 00:00:00"}

    def account() -> dict[str, dict[str, int]]:
        columns = ("Awaited", "Executed", "Answered", "Acknowledged", "Lost", "LostUnjudged")
        total: dict[str, dict[str, int]] = {}
        for row in collected.clickhouse.rows("by_window.sql", window=86400, **day):
            of_service = total.setdefault(row["ServiceName"], dict.fromkeys(columns, 0))
            for column in columns:
                of_service[column] += int(row[column])
        return total

    eventually(lambda: {DEMO, "dispatching"} <= account().keys(), what="the apps in the account")
    demo = {"Awaited": 6, "Executed": 0, "Answered": 5, "Acknowledged": 0, "Lost": 1, "LostUnjudged": 0}
    eventually(lambda: account()[DEMO] == demo, what=f"the demo's account is {demo}: {account()[DEMO]}")
    ran = {"Awaited": 2, "Executed": 2, "Answered": 0, "Acknowledged": 0, "Lost": 0, "LostUnjudged": 0}
    eventually(lambda: account()["dispatching"] == ran, what=f"the dispatching app's account is {ran}")
    for query in ("lost_calls.sql", "lost_calls_without_account.sql"):
        found = [row for row in collected.clickhouse.rows(query, **day) if row["ServiceName"] != MADE]
        assert [(row["ServiceName"], row["ToolName"], row["Reason"]) for row in found] == [
            (DEMO, TOOL, c.LostReason.SIBLINGS_ANSWERED.value)
        ]


def scrape(collector: Collector) -> str:
    with urllib.request.urlopen(f"http://{collector.metrics}/metrics", timeout=10) as response:
        return str(response.read().decode())


def test_span_metrics_count_every_span_by_outcome_and_reason(collected: Collected) -> None:
    def judgements() -> list[str]:
        lines = [line for line in scrape(collected.collector).splitlines() if f'span_name="{c.OP_AWAIT} pay"' in line]
        return [line for line in lines if line.startswith("traces_span_metrics_calls_total") and line.endswith(" 1")]

    (line,) = eventually(judgements, what="the judgement in the span metrics")
    assert f'service_name="{MADE}"' in line
    assert 'otel_toolcalls_undispatched_reason="deadline"' in line


def emit(provider: MeterProvider) -> None:
    """A point of every instrument that the package has, with every attribute that it may carry."""
    meter = provider.get_meter(c.SCOPE)
    for name, instrument in reference.instruments().items():
        attributes = dict.fromkeys(reference.ATTRIBUTES[name], "x")
        if instrument.kind == "counter":
            meter.create_counter(name, instrument.unit).add(1, attributes)
        elif instrument.kind == "histogram":
            meter.create_histogram(name, instrument.unit).record(1, attributes)
        else:
            meter.create_up_down_counter(name, instrument.unit).add(1, attributes)


def series(text: str) -> dict[str, set[str]]:
    """Series name → label names, less what the two ways add of their own."""
    own = {"job", "instance", "le", "otel_scope_name", "otel_scope_version", "otel_scope_schema_url"}
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^((?:otel_toolcalls|gen_ai)\w+)\{(.*)\} ", text, re.MULTILINE):
        found.setdefault(name, set()).update(set(re.findall(r'(\w+)="', labels)) - own)
    return found


def test_every_metric_has_the_same_name_and_labels_over_otlp_and_through_the_prometheus_exporter(
    collected: Collected,
) -> None:
    resource = Resource.create({"service.name": "named"})
    exporter = OTLPMetricExporter(collected.collector.otlp_grpc, insecure=True)
    pushed = MeterProvider([PeriodicExportingMetricReader(exporter)], resource)
    emit(pushed)
    pushed.shutdown()
    registry = CollectorRegistry()
    pulled = MeterProvider([PrometheusMetricReader(registry=registry)], resource)
    emit(pulled)
    here = series(generate_latest(registry).decode())
    pulled.shutdown()

    def collectors() -> dict[str, set[str]]:
        return series("\n".join(line for line in scrape(collected.collector).splitlines() if 'job="named"' in line))

    there = eventually(collectors, what="the metrics in the collector")
    assert here == there
    documented = {
        reference.prometheus_name(name, instrument): {reference.name(label) for label in reference.ATTRIBUTES[name]}
        for name, instrument in reference.instruments().items()
    }
    suffix = re.compile(r"_(bucket|sum|count)$")
    assert {suffix.sub("", name): labels for name, labels in there.items()} == documented
