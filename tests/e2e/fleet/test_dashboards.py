"""The dashboards' queries, on a real Prometheus that holds what real apps sent through the real collector."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from otel_toolcalls import conventions as c
from tests.e2e.backends import ROOT, eventually, get_json
from tests.e2e.fleet.stack import Stack
from tests.e2e.fleet.traffic import DEMO, TOOL, run_demo, run_dispatching

BOARDS = sorted((ROOT / "dashboards" / "grafana").glob("*.json"))
STEP_SECONDS = 1


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, float]]:
    """A set-up with the metrics of the demo, of its fixed twin and of an app that uses ``dispatch()``."""
    folder = tmp_path_factory.mktemp("dashboards")
    with Stack.started(folder) as stack:
        began = time.time()
        run_demo(stack.collector.otlp_http, folder)
        run_demo(stack.collector.otlp_http, folder, "--by-index")
        run_dispatching(stack.collector.otlp_http, folder)
        # Older than a step of the range queries: else none of their points need lie after it.
        executed = 'sum(gen_ai_execute_tool_duration_seconds_count{job="dispatching"} offset 2s)'
        stack.prometheus.await_value(executed, 2)
        eventually(lambda: stack.prometheus.query("traces_span_metrics_calls_total"), what="span metrics in Prometheus")
        yield stack, began


def targets() -> list[Any]:
    return [
        pytest.param(panel, id=f"{board.stem}: {panel['title']}")
        for board in BOARDS
        for panel in json.loads(board.read_text())["panels"]
        if panel.get("targets")
    ]


def filled_in(query: str) -> str:
    for variable, value in {"$__rate_interval": "20s", "$__range": "15m", "$tool": f"{TOOL}|.+"}.items():
        query = query.replace(variable, value)
    return re.sub(r"\$(service|model)\b", ".*", query)


def numbers(stack: Stack, target: dict[str, Any], began: float) -> list[float]:
    """What a panel would draw of one query: every value that is a number."""
    query = filled_in(target["expr"])
    if target.get("instant"):
        return [float(series["value"][1]) for series in stack.prometheus.query(query)]
    span = {"start": str(began), "end": str(time.time()), "step": str(STEP_SECONDS)}
    found = get_json(f"{stack.prometheus.url}/api/v1/query_range", query=query, **span)
    values = [float(value) for series in found["data"]["result"] for _, value in series["values"]]
    return [value for value in values if not math.isnan(value)]


@pytest.mark.parametrize("panel", targets())
def test_no_panel_comes_back_empty(filled: tuple[Stack, float], panel: dict[str, Any]) -> None:
    stack, began = filled
    assert [value for target in panel["targets"] for value in numbers(stack, target, began)] != []


def test_the_overview_counts_what_the_apps_did(filled: tuple[Stack, float]) -> None:
    stack, began = filled
    overview = json.loads((ROOT / "dashboards" / "grafana" / "overview.json").read_text())
    figures = {
        panel["title"]: numbers(stack, panel["targets"][0], began)
        for panel in overview["panels"]
        if panel["type"] == "stat"
    }
    assert figures["Lost"] == [1]
    assert figures["Pending"] == [0]
    # eight of each demo, two of the app that dispatches; of each demo one truncated, one abandoned
    assert figures["Announced"] == [18]
    assert figures["Settled"] == [18 - 4 - 1]
    assert figures["Not completed"] == [pytest.approx(4 / 18)]


def test_the_account_balances(filled: tuple[Stack, float]) -> None:
    stack, began = filled
    board = json.loads((ROOT / "dashboards" / "grafana" / "instrumentation.json").read_text())
    (balance,) = [panel for panel in board["panels"] if panel["title"] == "Account balance"]
    assert set(numbers(stack, balance["targets"][0], began)) == {0}


def test_every_variable_offers_values(filled: tuple[Stack, float]) -> None:
    stack, _ = filled
    for board in BOARDS:
        for variable in json.loads(board.read_text())["templating"]["list"]:
            if variable["type"] == "query":
                selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
                assert stack.prometheus.query(f"group by ({label}) ({filled_in(selector)})") != []


def test_an_exemplar_leads_to_its_trace(filled: tuple[Stack, float]) -> None:
    stack, began = filled
    query = "otel_toolcalls_announce_duration_seconds_bucket"
    span = {"start": str(began), "end": str(time.time())}
    found = get_json(f"{stack.prometheus.url}/api/v1/query_exemplars", query=query, **span)["data"]
    trace_ids = {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]}
    assert trace_ids
    for trace_id in trace_ids:
        assert any(span.name.startswith(c.OP_ANNOUNCE) for span in stack.jaeger.spans(trace_id))


def test_jaegers_monitor_page_reads_the_collectors_span_metrics(filled: tuple[Stack, float]) -> None:
    stack, _ = filled

    def rates() -> list[dict[str, Any]]:
        asked = {"service": DEMO, "spanKind": "client", "lookback": "600000", "step": "5000", "ratePer": "60000"}
        return [one for one in get_json(f"{stack.jaeger.query}/api/metrics/calls", **asked)["metrics"] if one]

    (rate,) = eventually(rates, seconds=30, what="call rates in Jaeger")
    assert rate["labels"] == [{"name": "service_name", "value": DEMO}]
    assert rate["metricPoints"]
