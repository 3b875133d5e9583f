"""What a recorded stream must give: one :class:`Call` for each call it announces, read from ``expected``.

``expected`` says what the wire carries. The outcome follows from it by the table of outcomes in the telemetry
contract, which :func:`_verdict` writes down once more, independently of the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan


@dataclass(frozen=True)
class Call:
    """One announced call, as a recorded stream wants it or as a span shows it."""

    ordinal: int
    id: str | None
    name: str
    index: int | None
    choice: int
    kind: str
    arguments: Any
    """The text as it was sent; of calls that carry whole objects, the object."""
    size: int | None
    """Of the arguments, in bytes of UTF-8; None where they are an object, whose text is the SDK's to write."""
    fragments: int | None
    """None on chat's wire, where empty pieces are no fragments and ``expected`` counts them."""
    outcome: str
    error_type: str | None


LIMITS = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "refusal": "refusal",
}
"""Finish reasons that cut a reply short → ``error.type`` of the call they cut."""

SERVER_RUN_ITEMS = {
    "code_interpreter_call",
    "file_search_call",
    "image_generation_call",
    "mcp_call",
    "program",
    "web_search_call",
}
"""Items of the Responses API that the provider runs itself. ``mcp_approval_request`` is none: it waits for the app."""

FREEFORM = {"custom_tool_call", "code_interpreter_call", "program", "image_generation_call"}
"""Items whose arguments are no JSON text, or none at all, and are never parsed."""


@dataclass(frozen=True)
class Correction:
    """Where ``expected`` says something else than the protocol, and why the protocol is right."""

    reason: str
    fields: Mapping[str, Any]


_HOSTED_SHELL = Correction(
    "the announcement has environment.type = container_reference and the same stream carries the shell_call_output: "
    "the provider's own container runs it, the app has nothing to run",
    {"kind": "server"},
)

CORRECTIONS: Mapping[tuple[str, int], Correction] = {
    ("ai-oai_responses-673119d", 0): _HOSTED_SHELL,
    ("ai-oai_responses-673119d", 1): _HOSTED_SHELL,
    ("ai-oai_responses-b957e97", 0): _HOSTED_SHELL,
}
"""(stream, ordinal) → what to expect instead, one by one."""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _index(key: Sequence[Any]) -> tuple[int | None, int]:
    """The position as sent, and the choice: chat keys are ``[choice, index]``, all others ``[index]``."""
    return (key[1], key[0]) if len(key) == 2 else (key[0], 0)


def _kind(expected: Mapping[str, Any]) -> str:
    item = expected.get("item_type")
    if item is not None:
        server = item in SERVER_RUN_ITEMS or (item == "tool_search_call" and expected["kind"] == "server")
    else:
        server = expected["kind"] in ("server", "mcp")
    return "server" if server else "client"


def _arguments(expected: Mapping[str, Any]) -> Any:
    for whole in ("input", "start_input"):
        if whole in expected:
            return expected[whole]
    return expected["arguments"]


def _verdict(
    expected: Mapping[str, Any], arguments: Any, *, last: bool, limit: str | None, ending: str
) -> tuple[str, str | None]:
    freeform = expected.get("item_type") in FREEFORM or not isinstance(arguments, str)
    whole = freeform or not arguments or _is_json(arguments)
    if limit is not None and last and not (expected["terminal"] and arguments and whole):
        return "truncated", limit
    if not expected["terminal"]:
        return "abandoned", ending
    return ("completed", None) if whole else ("invalid", "invalid_arguments")


def _limit(finish_reason: str | Mapping[str, str] | None, choice: int) -> str | None:
    """``error.type`` of the limit that cut a choice short; streams of several choices have a reason for each."""
    reason = finish_reason[str(choice)] if isinstance(finish_reason, Mapping) else finish_reason
    return LIMITS.get((reason or "").removeprefix("incomplete:"))


def expected_calls(stream: Mapping[str, Any], ending: str = "stream_ended") -> list[Call]:
    """The calls of a stream, in order of announcement.

    ``ending`` is the ``error.type`` of what is still open when the bytes stop.
    """
    wanted = sorted(stream["expected"], key=lambda call: call["ordinal"])
    last = {_index(call["key"])[1]: call["ordinal"] for call in wanted}
    calls = []
    for call in wanted:
        index, choice = _index(call["key"])
        arguments = _arguments(call)
        outcome, error_type = _verdict(
            call,
            arguments,
            last=last[choice] == call["ordinal"],
            limit=_limit(stream["finish_reason"], choice),
            ending=ending,
        )
        made = Call(
            call["ordinal"],
            call["id"] or None,
            call["name"],
            index,
            choice,
            _kind(call),
            arguments,
            len(arguments.encode()) if isinstance(arguments, str) else None,
            None if len(call["key"]) == 2 else call["fragments"],
            outcome,
            error_type,
        )
        correction = CORRECTIONS.get((stream.get("derived_from") or stream["id"], call["ordinal"]))
        calls.append(replace(made, **correction.fields) if correction else made)
    return calls


def expected_anomalies(call: Mapping[str, Any]) -> set[str]:
    """Quirks of one call of ``expected`` that its span must keep."""
    return {
        anomaly
        for anomaly, met in (
            ("index_missing", _index(call["key"])[0] is None),
            ("id_missing", not call["id"]),
            ("id_changed", "done_id" in call),
        )
        if met
    }


def shown_calls(spans: Sequence[ReadableSpan], wanted: Sequence[Call]) -> list[Call]:
    """The calls that the spans show, in order of announcement.

    Arguments are read as JSON where ``wanted`` has an object at the same place, so that spacing does not count.
    """
    objects = {call.ordinal for call in wanted if call.size is None}
    uncounted = {call.ordinal for call in wanted if call.fragments is None}
    shown = []
    for span in spans:
        given = dict(span.attributes or {})
        ordinal = given["otel_toolcalls.call.ordinal"]
        text = given.get("gen_ai.tool.call.arguments", "")
        shown.append(
            Call(
                ordinal,
                given.get("gen_ai.tool.call.id"),
                given["gen_ai.tool.name"],
                given.get("otel_toolcalls.call.index"),
                given.get("otel_toolcalls.choice.index", 0),
                given["otel_toolcalls.call.kind"],
                json.loads(text) if text and ordinal in objects else text,
                None if ordinal in objects else given["otel_toolcalls.call.arguments.size"],
                None if ordinal in uncounted else given["otel_toolcalls.call.arguments.fragments"],
                given["otel_toolcalls.call.outcome"],
                given.get("error.type"),
            )
        )
    return sorted(shown, key=lambda call: call.ordinal)
