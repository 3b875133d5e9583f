"""The whole set-up of ``dashboards/compose.yaml``, without Docker: the same programs, the same configuration files.

What each service of the compose file mounts as its configuration is what its program is started with here. Two things
are changed, both addresses: ``service:port`` becomes a free loopback port, and what listens on all interfaces of a
container listens on loopback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.backends import ROOT, Jaeger, answers, free_ports, get_json, process
from tests.e2e.fleet.programs import Collector, Prometheus, alertmanager, collector_binary, debian
from tools import gobuild

COMPOSE = ROOT / "dashboards" / "compose.yaml"


def services() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE.read_text())["services"])


def mounted(service: str, name: str) -> Path:
    """The file of this repository that a service sees as ``…/name``."""
    for volume in services()[service]["volumes"]:
        host, container = volume.split(":")[:2]
        if container.rsplit("/", 1)[-1] == name:
            return (COMPOSE.parent / host).resolve()
    raise LookupError(f"{service} mounts no {name}")


def configuration(service: str, option: str) -> Path:
    """The file that a service is started with, by its command line."""
    command: list[str] = services()[service]["command"]
    for position, word in enumerate(command):
        if word == option:
            return mounted(service, command[position + 1].rsplit("/", 1)[-1])
        if word.startswith(f"{option}="):
            return mounted(service, word.rsplit("/", 1)[-1])
    raise LookupError(f"{service} has no {option}")


@dataclass(frozen=True, slots=True)
class Stack:
    """Everything that runs; ``pager`` is the URL at which the pager tells what it received."""

    collector: Collector
    jaeger: Jaeger
    prometheus: Prometheus
    alertmanager: str
    pager: str

    def notifications(self) -> list[dict[str, Any]]:
        """What the pager received."""
        return list(get_json(self.pager))

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Stack]:
        """Start every service but the app and Grafana; skip the test where a program is not to be had."""
        for program, package in (("prometheus", "prometheus"), ("prometheus-alertmanager", "prometheus-alertmanager")):
            debian(program, package)
        binary = collector_binary()
        jaeger_binary = gobuild.build("jaeger")
        prometheus_port, alertmanager_port, pager_port = free_ports(3)
        at_prometheus, at_alertmanager, at_pager = (
            f"127.0.0.1:{port}" for port in (prometheus_port, alertmanager_port, pager_port)
        )
        with ExitStack() as running:
            patch = running.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("JAEGER_PROMETHEUS", f"http://{at_prometheus}")
            jaeger = running.enter_context(
                Jaeger.started(jaeger_binary, folder / "jaeger.log", configuration("jaeger", "--config"))
            )
            collector = running.enter_context(
                Collector.started(
                    folder / "collector.log",
                    to_jaeger=jaeger.otlp_grpc.removeprefix("http://"),
                    configurations=[configuration("collector", "--config")],
                    binary=binary,
                )
            )
            pager = [sys.executable, mounted("pager", "pager.py"), str(pager_port)]
            running.enter_context(
                process(pager, ready=lambda: answers(f"http://{at_pager}"), log=folder / "pager.log", env=os.environ)
            )
            running.enter_context(
                alertmanager(
                    folder / "alertmanager",
                    source=configuration("alertmanager", "--config.file"),
                    addresses={"pager:8060": at_pager},
                    port=alertmanager_port,
                )
            )
            prometheus = running.enter_context(
                Prometheus.started(
                    folder / "prometheus",
                    source=configuration("prometheus", "--config.file"),
                    rules=mounted("prometheus", "rules.yaml"),
                    addresses={
                        "collector:8889": collector.metrics,
                        "alertmanager:9093": at_alertmanager,
                        "localhost:16686": jaeger.query.removeprefix("http://"),
                    },
                    port=prometheus_port,
                )
            )
            yield cls(collector, jaeger, prometheus, f"http://{at_alertmanager}", f"http://{at_pager}")
