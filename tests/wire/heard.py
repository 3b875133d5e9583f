"""Plays events to a wire, as mappings or as objects, and tells what it announced."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from otel_toolcalls.accumulator import ProtocolError
from otel_toolcalls.turn import Call, Replays, Request, Turn
from otel_toolcalls.wire import WireType

DATA = Path(__file__).with_name("data")


def cases(name: str) -> list[dict[str, Any]]:
    """The lines of a file of cases, each with its name."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


class Event(SimpleNamespace):
    """An event or a part of one, as an SDK would give it: attributes instead of keys."""

    def model_dump(self, **how: Any) -> dict[str, Any]:
        assert how["mode"] == "json"
        return {
            key: value.model_dump(**how) if isinstance(value, Event) else value for key, value in vars(self).items()
        }


def as_objects(value: Any) -> Any:
    if isinstance(value, dict):
        untyped = ("arguments", "input")  # what an SDK has no type for stays a mapping
        return Event(**{key: entry if key in untyped else as_objects(entry) for key, entry in value.items()})
    return [as_objects(entry) for entry in value] if isinstance(value, list) else value


FORMS = {"mappings": lambda event: event, "objects": as_objects}


class Heard:
    """What an observer is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Call, str | None]] = []
        self.violations: list[list[Any]] = []

    def announced(self, call: Call) -> None:
        """Told again when it has finished."""

    renamed = ended = announced

    def finished(self, call: Call) -> None:
        self.calls.append((call, call.text))

    def violated(self, turn: Turn, error: ProtocolError, shown: bool) -> None:
        self.violations.append([error.kind.value, error.position])

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The calls as the files of cases write them down."""
        return [
            {
                "id": call.call_id,
                "name": call.name,
                "index": call.index,
                "arguments": text or "",
                "outcome": call.outcome.value if call.outcome else None,
                "anomalies": sorted(call.anomalies),
                "choice": call.choice,
                "kind": call.kind.value,
                "type": call.tool_type.value,
            }
            for call, text in sorted(self.calls, key=lambda entry: entry[0].ordinal)
        ]


def play(
    wire: WireType, events: Iterable[Any], *, request: Request | None = None, replays: Replays | None = None
) -> tuple[Heard, Turn]:
    """Feed a stream of events, to its end."""
    heard = Heard()
    turn = Turn(request or Request("provider"), (heard,), replays=replays)
    reader = wire(turn)
    for event in events:
        reader.feed(event)
    turn.end("stream_ended")
    return heard, turn


def agrees(heard: Heard, expected: list[dict[str, Any]]) -> None:
    """Each call is as expected, in every field that the case states."""
    shown = heard.shown
    assert [{key: call[key] for key in want} for call, want in zip(shown, expected, strict=True)] == expected
