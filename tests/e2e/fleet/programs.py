"""The programs around Jaeger, each started from the file in ``dashboards/`` that users take, on free loopback ports.

Collector and Jaeger read their addresses from the environment. Prometheus and Alertmanager cannot: there the names that
the compose file gives its services are replaced by loopback addresses, and nothing else is changed.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.backends import ROOT, answers, eventually, free_ports, get_json, process
from tools import collectorbuild, gobuild, kafkajars

DASHBOARDS = ROOT / "dashboards"


def debian(program: str, package: str) -> str:
    """The path of a program that Debian packages; skips the test where it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed (Debian: {package})")
    return found


def collector_binary() -> Path:
    """The collector of the manifest, built where that was not done yet; skips the test where there is no Go."""
    try:
        return collectorbuild.build()
    except gobuild.GoMissingError as missing:
        pytest.skip(f"no collector to test against: {missing}")


def relocated(text: str, addresses: Mapping[str, str]) -> str:
    """``text`` with each ``service:port`` of the compose file replaced by its address; each must occur."""
    for name, address in addresses.items():
        text, count = re.subn(rf"\b{re.escape(name)}\b", address, text)
        assert count, f"{name} does not occur in the configuration"
    return text


@dataclass(frozen=True, slots=True)
class Collector:
    """A running collector: where it takes OTLP, and where its metrics are scraped (``host:port``)."""

    otlp_grpc: str
    otlp_http: str
    metrics: str

    @classmethod
    @contextmanager
    def started(
        cls,
        log: Path,
        *,
        to_jaeger: str,
        configurations: Sequence[Path] = (DASHBOARDS / "collector" / "collector.yaml",),
        env: Mapping[str, str] | None = None,
        binary: Path | None = None,
    ) -> Iterator[Collector]:
        """Start it with ``configurations``, each on top of the last; ``to_jaeger`` is ``host:port`` of Jaeger's OTLP."""
        names = ("OTLP_GRPC", "OTLP_HTTP", "METRICS", "HEALTH")
        at = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
        settings = {f"COLLECTOR_PORT_{name}": address.rpartition(":")[2] for name, address in at.items()}
        settings |= {"COLLECTOR_TO_JAEGER": to_jaeger, "COLLECTOR_SPAN_METRICS_INTERVAL": "1s", **(env or {})}
        command: list[str | Path] = [binary or collector_binary()]
        for configuration in configurations:
            command += ["--config", f"file:{configuration}"]
        with process(command, ready=lambda: answers(f"http://{at['HEALTH']}"), log=log, env=settings):
            yield cls(f"http://{at['OTLP_GRPC']}", f"http://{at['OTLP_HTTP']}", at["METRICS"])


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus, by its base URL."""

    url: str

    @classmethod
    @contextmanager
    def started(
        cls, folder: Path, *, source: Path, rules: Path, addresses: Mapping[str, str], port: int
    ) -> Iterator[Prometheus]:
        """Start it with the configuration ``source`` and the ``rules`` beside it; ``addresses`` as in :func:`relocated`."""
        program = debian("prometheus", "prometheus")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prometheus.yaml").write_text(relocated(source.read_text(), addresses))
        shutil.copy(rules, folder)
        address = f"127.0.0.1:{port}"
        command = [
            program,
            f"--config.file={folder}/prometheus.yaml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}",
            "--enable-feature=exemplar-storage",
        ]
        url = f"http://{address}"
        with process(command, ready=lambda: answers(f"{url}/-/ready"), log=folder / "log"):
            yield cls(url)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of ``expression`` now."""
        answer = get_json(f"{self.url}/api/v1/query", query=expression)
        return list(answer["data"]["result"])

    def value(self, expression: str) -> float | None:
        """The one value of ``expression``; None where it is empty."""
        found = self.query(expression)
        assert len(found) < 2, f"{expression} has {len(found)} values"
        return float(found[0]["value"][1]) if found else None

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing."""
        return list(get_json(f"{self.url}/api/v1/alerts")["data"]["alerts"])

    def await_value(self, expression: str, wanted: float, *, seconds: float = 30) -> None:
        """Wait until ``expression`` is ``wanted``."""
        eventually(lambda: self.value(expression) == wanted, seconds=seconds, what=f"{expression} is {wanted:g}")


@contextmanager
def alertmanager(folder: Path, *, source: Path, addresses: Mapping[str, str], port: int) -> Iterator[str]:
    """Start it with the configuration ``source``; hands over the base URL."""
    program = debian("prometheus-alertmanager", "prometheus-alertmanager")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yaml").write_text(relocated(source.read_text(), addresses))
    url = f"http://127.0.0.1:{port}"
    command = [
        program,
        f"--config.file={folder}/alertmanager.yaml",
        f"--storage.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with process(command, ready=lambda: answers(f"{url}/-/ready"), log=folder / "log"):
        yield url


@dataclass(frozen=True, slots=True)
class ClickHouse:
    """ClickHouse's engine behind its HTTP interface, with the schema and the account applied; by its base URL."""

    url: str

    @classmethod
    @contextmanager
    def started(cls, log: Path) -> Iterator[ClickHouse]:
        """Start an empty one in a process of its own."""
        if importlib.util.find_spec("chdb") is None:
            pytest.skip("chdb, ClickHouse's engine, is not installed: make e2e-tools")
        port = free_ports(1)[0]
        server = cls(f"http://127.0.0.1:{port}")
        command = [sys.executable, Path(__file__).with_name("clickhouse_server.py"), str(port)]
        with process(command, ready=lambda: answers(server.url), log=log):
            server.script("schema.sql")
            server.script("account.sql")
            yield server

    def query(self, text: str, **parameters: object) -> str:
        """The answer to one statement, in the format that it asks for."""
        address = (
            f"{self.url}/?{urllib.parse.urlencode({f'param_{name}': value for name, value in parameters.items()})}"
        )
        with urllib.request.urlopen(urllib.request.Request(address, text.encode()), timeout=120) as response:
            return str(response.read().decode())

    def script(self, name: str) -> None:
        """Run each statement of a file of ``dashboards/clickhouse``."""
        for statement in sql(name).split(";"):
            if statement.strip():
                self.query(statement)

    def rows(self, name: str, **parameters: object) -> list[dict[str, Any]]:
        """The rows of a file's one query."""
        answer = self.query(f"{sql(name).strip().rstrip(';')} FORMAT JSONEachRow", **parameters)
        return [json.loads(line) for line in answer.splitlines()]


def sql(name: str) -> str:
    """A file of ``dashboards/clickhouse`` without its comments."""
    return re.sub(r"(^|\s)--.*", "", (DASHBOARDS / "clickhouse" / name).read_text())


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """Start a Kafka broker of one node; hands over its ``host:port``."""
    try:
        jars = kafkajars.get()
    except kafkajars.JarsError as missing:
        pytest.skip(f"no Kafka to test against: {missing}")
    broker, controller = free_ports(2)
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "server.properties"
    settings.write_text(
        f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
    )
    java = ["java", "-Xmx512m", "-cp", f"{jars}/*"]
    storage = [*java, "kafka.tools.StorageTool", "format", "-t", "tWp8ZtqdRQyS3C8sVxdq9w", "-c", str(settings)]
    subprocess.run(storage, check=True, capture_output=True, timeout=60)
    with process([*java, "kafka.Kafka", settings], ready=lambda: listens(broker), log=folder / "log"):
        yield f"127.0.0.1:{broker}"


def listens(port: int) -> bool:
    """Whether somebody accepts connections at a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
