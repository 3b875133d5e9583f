"""Every query that is shipped: parsed by the grammars of Prometheus' and Grafana's own editors, and made of names that
the package emits."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

from dashboards.source import links, promql
from otel_toolcalls import conventions as c

ROOT = Path(__file__).resolve().parents[2]
BOARDS = sorted((ROOT / "dashboards" / "grafana").glob("*.json"))
GRAMMARS = ROOT / "tools" / "grammars"
TRACEQL = ROOT / "dashboards" / "tempo" / "queries.traceql"

ATTRIBUTES = {value for name, value in vars(c).items() if name.isupper() and isinstance(value, str) and "." in value}
METRICS = {
    value.removesuffix(suffix)
    for name, value in vars(promql).items()
    if name.isupper() and isinstance(value, str) and value.startswith(("otel_toolcalls_", "gen_ai_"))
    for suffix in ("", "_total")
}


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((ROOT / "dashboards" / "prometheus" / "rules.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def filled(query: str) -> str:
    """The query with Grafana's variables replaced as Grafana does before it sends it."""
    for variable, value in {"$__rate_interval": "1m", "$__range": "1h"}.items():
        query = query.replace(variable, value)
    return re.sub(r"\$(service|tool|model)\b", ".*", query)


def panel_queries() -> Iterator[tuple[str, str]]:
    for board in BOARDS:
        document = json.loads(board.read_text())
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                yield f"{board.stem}: {panel['title']}", filled(target["expr"])
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                metric = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
                assert metric is not None
                yield f"{board.stem}: ${variable['name']}", filled(metric[1])


def rule_queries() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule.get("record") or rule["alert"], rule["expr"]


def explorations() -> Iterator[tuple[str, dict[str, Any]]]:
    """What each link from a panel opens in Grafana's Explore."""
    for board in BOARDS:
        for panel in json.loads(board.read_text())["panels"]:
            for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", ()):
                pane = json.loads(parse_qs(urlsplit(link["url"]).query)["panes"][0])["a"]
                yield f"{board.stem}: {panel['title']}: {link['title']}", pane


def trace_queries() -> Iterator[tuple[str, str]]:
    for number, line in enumerate(TRACEQL.read_text().splitlines(), start=1):
        if line and not line.startswith("#"):
            yield f"{TRACEQL.name}:{number}", line
    for where, pane in explorations():
        if pane["datasource"] == "${tempo}":
            yield where, pane["queries"][0]["query"]
    for rule in rules():
        if "alert" in rule:
            for pattern in re.findall(r"printf `(\{ .*? \})`", rule["annotations"]["tempo_url"]):
                yield rule["alert"], pattern.replace("%q", '"x"')


@pytest.fixture(scope="session")
def grammars() -> Path:
    """The parser script, its packages installed from the lock file."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, so the queries' grammars cannot be")
    if not (GRAMMARS / "node_modules").exists():
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=GRAMMARS, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            pytest.skip(f"npm cannot install the queries' grammars: {done.stderr.strip().splitlines()[-1]}")
    return GRAMMARS / "parse.mjs"


def errors(script: Path, language: str, queries: Iterator[tuple[str, str]]) -> dict[str, str]:
    named = list(queries)
    assert named
    asked = json.dumps([{"where": where, "language": language, "query": query} for where, query in named])
    done = subprocess.run(["node", str(script)], input=asked, capture_output=True, text=True, timeout=60, check=True)
    return {one["where"]: f"{one['error']} in {one['query']}" for one in json.loads(done.stdout) if one["error"]}


def test_every_promql_query_parses(grammars: Path) -> None:
    assert errors(grammars, "promql", panel_queries()) == {}
    assert errors(grammars, "promql", rule_queries()) == {}


def test_every_traceql_query_parses(grammars: Path) -> None:
    assert errors(grammars, "traceql", trace_queries()) == {}


def test_the_grammars_notice_a_broken_query(grammars: Path) -> None:
    assert errors(grammars, "promql", iter([("broken", 'sum by (x) (y{z=~".*")')])) != {}
    assert errors(grammars, "traceql", iter([("broken", '{ span.a = "b" && }')])) != {}


@pytest.mark.parametrize(("where", "query"), [*panel_queries(), *rule_queries()])
def test_a_promql_query_names_only_what_the_package_emits(where: str, query: str) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for series in recorded:
        query = query.replace(series, "")
    named = set(re.findall(r"\b(?:otel_toolcalls|gen_ai)_\w+", re.sub(r'"[^"]*"', "", query)))
    labels = {promql.name(attribute) for attribute in ATTRIBUTES}
    series = {f"{metric}{suffix}" for metric in METRICS for suffix in ("", "_total", "_bucket", "_count", "_sum")}
    assert named - labels - series == set(), where


@pytest.mark.parametrize(("where", "query"), list(trace_queries()))
def test_a_trace_query_names_only_what_the_package_emits(where: str, query: str) -> None:
    assert set(re.findall(r"span\.([\w.]+)", query)) - ATTRIBUTES == set(), where


@pytest.mark.parametrize(("where", "pane"), list(explorations()))
def test_a_panels_link_opens_a_search_of_the_same_traces_in_either_backend(where: str, pane: dict[str, Any]) -> None:
    assert pane["range"] == {"from": "${__from}", "to": "${__to}"}
    (query,) = pane["queries"]
    if pane["datasource"] == "${jaeger}":
        assert query["queryType"] == "search"
        assert set(re.findall(r"([\w.]+)=", query["tags"])) <= ATTRIBUTES
    else:
        assert pane["datasource"] == "${tempo}"
        assert query["queryType"] == "traceql"


def test_an_alerts_link_is_the_same_search_in_either_backend() -> None:
    for rule in rules():
        if "alert" not in rule:
            continue
        jaeger, tempo = (unquote(rule["annotations"][key]) for key in ("jaeger_url", "tempo_url"))
        tags = re.findall(r'"([\w.]+)":%q', jaeger)
        assert sorted(tags) == sorted(re.findall(r"span\.([\w.]+) = %q", tempo))
        assert set(tags) <= ATTRIBUTES
        assert links.JAEGER in jaeger
        assert links.GRAFANA in tempo


def test_the_npm_lock_file_names_no_registry() -> None:
    lock = json.loads((GRAMMARS / "package-lock.json").read_text())
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
    assert all("integrity" in package for name, package in lock["packages"].items() if name)
