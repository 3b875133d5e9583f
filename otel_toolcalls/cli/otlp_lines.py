"""Read the spans of a file of OTLP JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from otel_toolcalls import conventions

__all__ = ["Link", "Span", "Value", "read_spans"]

Value: TypeAlias = str | int | float | bool | list["Value"] | None


@dataclass(frozen=True, slots=True)
class Link:
    """A span's reference to another one."""

    span_id: str
    attributes: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Span:
    """What the tree needs of one span; times in nanoseconds since the epoch."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    attributes: Mapping[str, Value]
    links: tuple[Link, ...]
    failed: bool


def read_spans(path: str, start: int = 0) -> Iterator[Span]:
    """Yield this package's spans from byte ``start`` on; lines that are no OTLP JSON are passed over."""
    with Path(path).open("rb") as file:
        file.seek(start)
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            for resource in entry.get("resourceSpans", ()):
                for scope in resource.get("scopeSpans", ()):
                    if scope.get("scope", {}).get("name") == conventions.SCOPE:
                        yield from map(_span, scope.get("spans", ()))


def _span(raw: dict[str, Any]) -> Span:
    return Span(
        raw["traceId"],
        raw["spanId"],
        raw.get("parentSpanId", ""),
        raw["name"],
        int(raw["startTimeUnixNano"]),
        int(raw["endTimeUnixNano"]),
        _attributes(raw),
        tuple(Link(link["spanId"], _attributes(link)) for link in raw.get("links", ())),
        raw.get("status", {}).get("code") in (2, "STATUS_CODE_ERROR"),
    )


def _attributes(raw: dict[str, Any]) -> dict[str, Value]:
    return {entry["key"]: _value(entry.get("value", {})) for entry in raw.get("attributes", ())}


def _value(raw: dict[str, Any]) -> Value:
    for kind, value in raw.items():
        if kind == "intValue":
            return int(value)
        if kind == "arrayValue":
            return [_value(entry) for entry in value.get("values", ())]
        if kind in ("stringValue", "boolValue", "doubleValue"):
            return value  # type: ignore[no-any-return]
    return None
