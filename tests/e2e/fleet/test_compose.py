"""The compose file, as far as it can be checked without an engine: what Docker Compose's own loader makes of it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fleet import stack
from tools import gobuild

NEEDED = {"app", "collector", "jaeger", "prometheus", "alertmanager", "grafana", "pager"}


@pytest.fixture(scope="module")
def loaded() -> dict[str, Any]:
    try:
        loader = gobuild.build("compose")
    except gobuild.GoMissingError as missing:
        pytest.skip(f"nothing here reads compose files: {missing}")
    command = [loader, "-format", "json", stack.COMPOSE.name]
    done = subprocess.run(command, cwd=stack.COMPOSE.parent, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["services"])


def test_compose_accepts_the_file_and_finds_every_service(loaded: dict[str, Any]) -> None:
    assert loaded.keys() == NEEDED


def test_every_mounted_file_exists(loaded: dict[str, Any]) -> None:
    mounts = [volume["source"] for service in loaded.values() for volume in service.get("volumes", ())]
    assert len(mounts) > len(NEEDED)
    assert [source for source in mounts if not Path(source).exists()] == []


def test_every_image_is_pinned_and_every_port_stays_on_this_machine(loaded: dict[str, Any]) -> None:
    for service in loaded.values():
        assert re.search(r":v?\d+\.\d+", service["image"])
        assert {port["host_ip"] for port in service.get("ports", ())} <= {"127.0.0.1"}


def test_services_reach_each_other_by_names_and_ports_that_exist() -> None:
    texts = [stack.COMPOSE.read_text()]
    for service, option in (
        ("collector", "--config"),
        ("jaeger", "--config"),
        ("prometheus", "--config.file"),
        ("alertmanager", "--config.file"),
    ):
        texts.append(stack.configuration(service, option).read_text())
    texts.append(stack.mounted("grafana", "provisioning").joinpath("datasources/datasources.yaml").read_text())
    reached = set(re.findall(rf"\b({'|'.join(NEEDED)}):(\d{{4,}})\b", "\n".join(texts)))
    assert reached == {
        ("collector", "4317"),  # OTLP: the default of collector.yaml
        ("collector", "8889"),  # metrics: likewise
        ("jaeger", "14317"),  # OTLP: the default of behind-collector.yaml
        ("jaeger", "16686"),
        ("prometheus", "9090"),
        ("alertmanager", "9093"),
        ("pager", "8060"),
    }
    collector, jaeger = (stack.configuration(name, "--config").read_text() for name in ("collector", "jaeger"))
    assert all(f":-{port}}}" in collector for port in ("4317", "8889"))
    assert all(f":-{port}}}" in jaeger for port in ("14317", "16686"))
    assert '"8060"' in stack.COMPOSE.read_text()


def test_grafana_gets_every_dashboard_and_the_data_sources_that_they_link_to() -> None:
    boards = {path.name for path in (stack.COMPOSE.parent / "grafana").glob("*.json")}
    mounts = stack.services()["grafana"]["volumes"]
    assert {volume.split(":")[1] for volume in mounts if volume.split(":")[1].endswith(".json")} == {
        f"/dashboards/{board}" for board in boards
    }
