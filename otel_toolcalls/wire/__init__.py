"""The wire protocols: one module per protocol, no SDK in any of them.

A wire is made for one turn. :meth:`Wire.feed` reads one streamed event, :meth:`Wire.reply` a whole reply; both tell the
turn what they say. ``read_request`` of its module reads the body of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from otel_toolcalls.turn import Result, Turn

__all__ = ["ReadRequest", "RequestBody", "Wire", "WireType"]


class Wire(Protocol):
    """Reads the events of one response."""

    def feed(self, event: Any) -> None:
        """Read one event of a stream: an object with attributes, or a mapping. Never changes it, never keeps it."""

    def reply(self, message: Any) -> None:
        """Read a reply that was not streamed: its calls are announced and closed at once."""


@dataclass(frozen=True, slots=True)
class RequestBody:
    """What a request's body says of tool calls."""

    model: str | None = None
    tools: frozenset[str] = frozenset()
    results: tuple[Result, ...] = ()
    carried: tuple[str, ...] = ()
    continues: str | None = None


WireType = Callable[[Turn], Wire]
ReadRequest = Callable[[Mapping[str, Any]], RequestBody]
