"""Real programs for the end-to-end tests: on free ports of 127.0.0.1, ready when handed over, stopped whatever happens."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
Found = TypeVar("Found")


def free_ports(count: int) -> list[int]:
    """``count`` different TCP ports that nobody listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def eventually(look: Callable[[], Found], *, seconds: float = 60, what: str) -> Found:
    """What ``look`` returns, as soon as that is true; AssertionError that names ``what`` when it never was."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return found


@contextmanager
def process(
    command: Sequence[str | Path],
    *,
    ready: Callable[[], bool],
    log: Path,
    env: Mapping[str, str] | None = None,
    seconds: float = 60,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command``, hand it over once ``ready()`` (within ``seconds``: other tests may keep the machine busy), stop it
    in the end; its output goes to ``log``.
    """
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(env or {})}
        )
    try:
        over = f"{command[0]} is ready, see {log}"
        eventually(lambda: ready() or running.poll() is not None, seconds=seconds, what=over)
        assert running.poll() is None, f"{command[0]} ended with {running.returncode}:\n{log.read_text()[-4000:]}"
        yield running
    finally:
        running.terminate()
        try:
            running.wait(timeout=10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def answers(url: str) -> bool:
    """Whether a GET of ``url`` is answered with a 2xx status now."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(200 <= response.status < 300)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def get_json(url: str, **query: str) -> Any:
    """The JSON document at ``url``."""
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}" if query else url, timeout=10) as response:
        return json.load(response)


@dataclass(frozen=True, slots=True)
class Link:
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """One span as a backend gave it back. Times are in ns, ids in hex, ``status`` is UNSET, OK or ERROR."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    status: str
    message: str
    attributes: dict[str, Any]
    links: list[Link] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Jaeger:
    """A running Jaeger, by the base URLs of its ends."""

    otlp_grpc: str
    otlp_http: str
    query: str

    @classmethod
    @contextmanager
    def started(
        cls, binary: Path, log: Path, config: Path = ROOT / "dashboards/jaeger/all-in-one.yaml"
    ) -> Iterator[Jaeger]:
        """Start ``binary`` with ``config`` on free ports."""
        names = ("OTLP_GRPC", "OTLP_HTTP", "QUERY", "QUERY_GRPC", "HEALTH")
        ports = dict(zip(names, map(str, free_ports(len(names))), strict=True))
        env = {f"JAEGER_PORT_{name}": port for name, port in ports.items()}
        base = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        command = (binary, "--config", f"file:{config}")
        with process(command, ready=lambda: answers(f"{base['HEALTH']}/status"), log=log, env=env):
            yield cls(otlp_grpc=base["OTLP_GRPC"], otlp_http=base["OTLP_HTTP"], query=base["QUERY"])

    def trace_ids(self, service: str, tags: Mapping[str, str], *, limit: int = 100) -> list[str]:
        """The traces of ``service`` in which one span has all of ``tags``, as its search finds them at this moment.

        Numbers compare as strings here: ``{"otel_toolcalls.call.index": "0"}``.
        """
        found = get_json(f"{self.query}/api/traces", service=service, tags=json.dumps(dict(tags)), limit=str(limit))
        return [trace["traceID"] for trace in found["data"]]

    def find(self, service: str, tags: Mapping[str, str], *, count: int = 1) -> list[str]:
        """The traces that :meth:`trace_ids` finds once there are at least ``count`` of them."""
        ids: list[str] = []

        def enough() -> bool:
            ids[:] = self.trace_ids(service, tags, limit=max(100, count))
            return len(ids) >= count

        eventually(enough, what=f"{count} trace(s) of {service} with {dict(tags)} in Jaeger")
        return ids

    def otlp(self, trace_id: str) -> dict[str, Any]:
        """One trace as OTLP JSON, which keeps the attributes of links."""
        document: dict[str, Any] = get_json(f"{self.query}/api/v3/traces/{trace_id}")
        return document

    def spans(self, trace_id: str) -> list[Span]:
        """The spans of one trace, by start time."""
        return sorted(spans_of(self.otlp(trace_id)["result"]), key=lambda span: span.start)


STATUS = {0: "UNSET", 1: "OK", 2: "ERROR"}
VALUES: dict[str, Callable[[Any], Any]] = {
    "stringValue": str,
    "boolValue": bool,
    "intValue": int,
    "doubleValue": float,
    "arrayValue": lambda array: [value_of(item) for item in array.get("values", [])],
}


def value_of(value: Mapping[str, Any]) -> Any:
    """The plain value of an OTLP AnyValue."""
    kind, content = next(iter(value.items()))
    return VALUES[kind](content)


def attributes_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an OTLP span, link, event or resource as a dict."""
    return {pair["key"]: value_of(pair["value"]) for pair in item.get("attributes", [])}


def spans_of(document: Mapping[str, Any]) -> Iterator[Span]:
    """Each span of an OTLP JSON document (``{"resourceSpans": …}``)."""
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                status = span.get("status", {})
                yield Span(
                    name=span["name"],
                    trace_id=span["traceId"],
                    span_id=span["spanId"],
                    parent_id=span.get("parentSpanId", ""),
                    start=int(span["startTimeUnixNano"]),
                    end=int(span["endTimeUnixNano"]),
                    status=STATUS[status.get("code", 0)],
                    message=status.get("message", ""),
                    attributes=attributes_of(span),
                    links=[Link(one["traceId"], one["spanId"], attributes_of(one)) for one in span.get("links", [])],
                )
