"""From a lost call to the pager: the demo's apps, the real Collector, Jaeger, Prometheus and Alertmanager."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from otel_toolcalls import conventions as c
from tests.e2e.backends import Span, eventually, get_json
from tests.e2e.fleet.stack import Stack, configuration
from tests.e2e.fleet.traffic import DEMO, TOOL, run_demo


@dataclass(frozen=True, slots=True)
class Page:
    """The first notification of a lost call, and what was true at the time."""

    stack: Stack
    alert: dict[str, Any]
    at: float
    lost: Span


def pages(stack: Stack) -> list[tuple[float, dict[str, Any]]]:
    return [
        (notification["at"], alert)
        for notification in stack.notifications()
        for alert in notification["alerts"]
        if alert["labels"]["alertname"] == "ToolCallLost" and alert["status"] == "firing"
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("alerting")
    with Stack.started(folder) as stack:
        run_demo(stack.collector.otlp_http, folder)
        at, alert = eventually(lambda: pages(stack), seconds=60, what="a page for the lost call")[0]
        (trace_id,) = stack.jaeger.find(DEMO, {c.OPERATION_NAME: c.OP_AWAIT})
        (lost,) = [span for span in stack.jaeger.spans(trace_id) if span.name == f"{c.OP_AWAIT} {TOOL}"]
        yield Page(stack, alert, at, lost)


def interval(name: str) -> float:
    settings = yaml.safe_load(configuration("prometheus", "--config.file").read_text())["global"]
    return float(settings[name].removesuffix("s"))


def test_the_page_names_the_right_tool_and_why_it_is_lost(page: Page) -> None:
    labels = page.alert["labels"]
    assert labels["gen_ai_tool_name"] == TOOL
    assert labels["otel_toolcalls_undispatched_reason"] == c.LostReason.SIBLINGS_ANSWERED.value
    assert labels["job"] == DEMO
    assert labels["severity"] == "critical"
    assert page.alert["annotations"]["summary"].startswith("1 ")


def test_the_page_comes_within_one_evaluation_interval_of_the_lost_call(page: Page) -> None:
    assert page.at - page.lost.end / 1e9 <= interval("evaluation_interval")


def test_the_pages_link_opens_the_right_trace_in_jaegers_api(page: Page) -> None:
    link = urlsplit(page.alert["annotations"]["jaeger_url"])
    assert f"{link.scheme}://{link.netloc}" == page.stack.jaeger.query
    assert link.path == "/search"
    asked = {name: values[0] for name, values in parse_qs(link.query).items()}
    found = get_json(f"{page.stack.jaeger.query}/api/traces", **asked)
    assert [trace["traceID"] for trace in found["data"]] == [page.lost.trace_id]


def test_the_trace_shows_which_call_which_turn_which_model_which_tool(page: Page) -> None:
    spans = {span.span_id: span for span in page.stack.jaeger.spans(page.lost.trace_id)}
    announced = spans[page.lost.parent_id]
    assert announced.name == f"{c.OP_ANNOUNCE} {TOOL}"
    assert announced.attributes[c.CALL_KEY] == page.lost.attributes[c.CALL_KEY]
    assert announced.attributes[c.TOOL_CALL_ID]
    turn = spans[announced.parent_id]
    assert turn.attributes[c.OPERATION_NAME] == c.OP_CHAT
    assert turn.attributes[c.REQUEST_MODEL] == announced.attributes[c.REQUEST_MODEL]


def test_every_rule_evaluates_on_real_metrics(page: Page) -> None:
    groups = get_json(f"{page.stack.prometheus.url}/api/v1/rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert max(rule["evaluationTime"] for rule in rules) < 1


def test_the_pages_runbook_exists(page: Page) -> None:
    root = Path(__file__).parents[3]
    assert (root / page.alert["annotations"]["runbook_url"]).is_file()


def test_the_fixed_app_raises_nothing_in_the_same_set_up(page: Page, tmp_path: Path) -> None:
    with Stack.started(tmp_path) as stack:
        run_demo(stack.collector.otlp_http, tmp_path, "--by-index")
        began = time.time()
        metric = f'sum(otel_toolcalls_settled_calls_total{{job="{DEMO}"}}) > 0'
        eventually(lambda: stack.prometheus.value(metric), seconds=30, what="the fixed app's metrics in Prometheus")
        as_long = page.at - page.lost.end / 1e9 + interval("evaluation_interval")
        eventually(lambda: time.time() - began > as_long, seconds=as_long + 5, what="the same time has passed")
        assert stack.prometheus.alerts() == []
        assert stack.notifications() == []
