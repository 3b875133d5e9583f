"""Where the telemetry of an app under ``otel-toolcalls run`` goes, as the command tells it to the app's processes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from otel_toolcalls.config import masked

__all__ = ["ENVIRONMENT", "PROTOCOLS", "Destination", "choose"]

ENVIRONMENT = "_OTEL_TOOLCALLS_RUN"
"""The variable that carries a destination from the command to every Python process under it."""

PROTOCOLS = ("grpc", "http/protobuf")

_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")


@dataclass(frozen=True, slots=True)
class Destination:
    """A file, an OTLP endpoint, or both; paths are absolute.

    ``from_variables`` says that the endpoint is that of the standard ``OTEL_EXPORTER_OTLP_*`` variables, which the
    exporters read themselves. ``roll`` is a file to which each instrumented process adds a line.
    """

    service: str
    output: str | None = None
    endpoint: str | None = None
    protocol: str | None = None
    from_variables: bool = False
    roll: str | None = None

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_environment() -> Destination:
        """Read what the command wrote; ``KeyError`` where this process is not under it."""
        return Destination(**json.loads(os.environ[ENVIRONMENT]))


def choose(service: str, output: str | None, otlp: str | None, protocol: str | None) -> Destination:
    """Make a destination of what the command line and the standard variables say.

    Without a protocol, the port of the endpoint tells it. Raises ValueError where the parts do not fit together.
    """
    source = "--otlp" if otlp is not None else next(filter(os.environ.get, _ENDPOINT_VARIABLES), "")
    endpoint = otlp if otlp is not None else os.environ.get(source)
    path = None if output is None else str(Path(output).resolve())
    if endpoint is None:
        if protocol is not None:
            raise ValueError("--protocol needs an endpoint: --otlp URL or OTEL_EXPORTER_OTLP_ENDPOINT")
        return Destination(service, path)
    given = next((os.environ[name] for name in _PROTOCOL_VARIABLES if os.environ.get(name)), None)
    chosen = protocol or given or ("grpc" if endpoint.rstrip("/").endswith(":4317") else "http/protobuf")
    if chosen not in PROTOCOLS:
        raise ValueError(f"OTLP protocol {chosen!r}: expected one of {', '.join(PROTOCOLS)}")
    if not _is_url(endpoint) and (otlp is not None or chosen != "grpc"):  # which takes other addresses by variable
        got = masked(endpoint) or "nothing"
        raise ValueError(
            f"{source}: expected http://HOST:PORT or https://HOST:PORT, as http://localhost:4318; got {got}"
        )
    return Destination(service, path, endpoint, chosen, from_variables=otlp is None)


def _is_url(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or no port's
        return False
