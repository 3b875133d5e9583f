"""The official exporters that a destination stands for, looked up by name: each protocol is a package of its own."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any, Final

from otel_toolcalls.cli.destination import Destination
from otel_toolcalls.cli.lines import AppendedLines

__all__ = ["SIGNALS", "make", "missing"]

SIGNALS: Final = ("traces", "metrics", "logs")

_FILE: Final = "file"
_EXPORTERS: Final = {
    (_FILE, "traces"): ("opentelemetry.exporter.otlp.json.file.trace_exporter", "FileSpanExporter"),
    (_FILE, "metrics"): ("opentelemetry.exporter.otlp.json.file.metric_exporter", "FileMetricExporter"),
    (_FILE, "logs"): ("opentelemetry.exporter.otlp.json.file._log_exporter", "FileLogExporter"),
    ("grpc", "traces"): ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", "OTLPSpanExporter"),
    ("grpc", "metrics"): ("opentelemetry.exporter.otlp.proto.grpc.metric_exporter", "OTLPMetricExporter"),
    ("grpc", "logs"): ("opentelemetry.exporter.otlp.proto.grpc._log_exporter", "OTLPLogExporter"),
    ("http/protobuf", "traces"): ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter"),
    ("http/protobuf", "metrics"): ("opentelemetry.exporter.otlp.proto.http.metric_exporter", "OTLPMetricExporter"),
    ("http/protobuf", "logs"): ("opentelemetry.exporter.otlp.proto.http._log_exporter", "OTLPLogExporter"),
}
"""(Protocol, signal) → module and class."""


def make(destination: Destination, signal: str) -> list[Any]:
    """Make the exporters of one signal."""
    exporters = []
    for protocol in _protocols(destination):
        module, name = _EXPORTERS[protocol, signal]
        exporter = getattr(importlib.import_module(module), name)
        exporters.append(exporter(**_address(destination, protocol, signal)))
    return exporters


def missing(destination: Destination) -> str | None:
    """Name the first package that is not installed here and that the destination needs."""
    for protocol in _protocols(destination):
        package = _EXPORTERS[protocol, "traces"][0].rpartition(".")[0]
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:  # not even the package around it
            found = None
        if found is None:
            return package
    return None


def _protocols(destination: Destination) -> Iterator[str]:
    if destination.output is not None:
        yield _FILE
    if destination.protocol is not None:
        yield destination.protocol


def _address(destination: Destination, protocol: str, signal: str) -> dict[str, Any]:
    if protocol == _FILE:
        return {"stream": AppendedLines(str(destination.output))}
    if destination.from_variables:
        return {}
    endpoint = str(destination.endpoint).rstrip("/")
    if protocol == "grpc":
        return {"endpoint": endpoint, "insecure": not endpoint.startswith("https:")}
    return {"endpoint": f"{endpoint}/v1/{signal}"}
