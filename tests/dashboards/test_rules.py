"""The Prometheus rules, checked and run by promtool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_toolcalls import conventions as c

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "dashboards" / "prometheus" / "rules.yaml"
CASES = RULES.with_name("rules_test.yaml")
RUNBOOKS = ROOT / "docs" / "runbooks"

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@promtool
def test_promtool_accepts_the_rules() -> None:
    done = run("promtool", "check", "rules", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@promtool
@pytest.mark.slow
def test_every_case_of_firing_and_not_firing_holds() -> None:
    done = run("promtool", "test", "rules", str(CASES))
    assert done.returncode == 0, done.stdout + done.stderr


@promtool
@pytest.mark.slow
@pytest.mark.parametrize(
    ("honest", "careless"),
    [
        (" unless last_over_time(otel_toolcalls_undispatched_calls_total[1h] offset 10m)", ""),
        ("or (last_over_time(otel_toolcalls_undispatched_calls_total[10m]) > 0 unless", "or (vector(0) > 0 unless"),
        (" >= 30\n", " >= 1\n"),
    ],
    ids=["an old loss counts as new", "a loss that comes with its series is missed", "a short job counts as quiet"],
)
def test_the_cases_notice_careless_rules(tmp_path: Path, honest: str, careless: str) -> None:
    text = RULES.read_text()
    assert honest in text
    (tmp_path / RULES.name).write_text(text.replace(honest, careless))
    shutil.copy(CASES, tmp_path)
    assert run("promtool", "test", "rules", str(tmp_path / CASES.name)).returncode == 1


@pytest.mark.parametrize("name", sorted(alerts()))
def test_an_alert_says_how_urgent_what_and_where_to_look(name: str) -> None:
    rule = alerts()[name]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert {"summary", "description", "jaeger_url", "tempo_url", "runbook_url"} <= rule["annotations"].keys()
    assert rule["annotations"]["runbook_url"].endswith(f"/{name}.md")
    page = (RUNBOOKS / f"{name}.md").read_text()
    assert page.startswith(f"# {name}\n")
    assert f"[{name}]({name}.md) | {rule['labels']['severity']} |" in (RUNBOOKS / "README.md").read_text()


def test_every_runbook_belongs_to_an_alert() -> None:
    assert {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"} == alerts().keys()


def test_every_alert_has_a_case_that_fires_with_its_texts_and_one_that_does_not() -> None:
    cases = yaml.safe_load(CASES.read_text())["tests"]
    fires = {
        check["alertname"]
        for case in cases
        for check in case.get("alert_rule_test", ())
        if any(alert.get("exp_annotations") for alert in check["exp_alerts"])
    }
    silent = [
        check["expr"]
        for case in cases
        for check in case.get("promql_expr_test", ())
        if "ALERTS" in check["expr"] and not check["exp_samples"]
    ]
    assert fires == alerts().keys()
    assert [name for name in alerts() if not any(name in expr for expr in silent)] == []


def test_the_runbook_of_a_lost_call_explains_every_reason() -> None:
    page = (RUNBOOKS / "ToolCallLost.md").read_text()
    assert [reason.value for reason in c.LostReason if f"`{reason.value}`" not in page] == []


def test_the_runbook_of_a_violation_explains_every_kind() -> None:
    page = (RUNBOOKS / "ToolCallProtocolViolated.md").read_text()
    assert [kind.value for kind in c.Violation if f"`{kind.value}`" not in page] == []
