"""wire: OpenAI assistants, the events of a run.

Calls are announced by position within a run step, ``thread.run.step.delta``; client-run calls have no end of their own:
the run asks for their outputs, ``thread.run.requires_action``, and that closes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_toolcalls.accumulator import freeform_text, json_text
from otel_toolcalls.conventions import FINISH_LIMITS, ErrorType, Kind, ToolType
from otel_toolcalls.turn import Result, Turn
from otel_toolcalls.wire import RequestBody
from otel_toolcalls.wire.reading import as_json, clean, field, items, names

__all__ = ["OpenAIAssistants", "read_request"]

_SERVER_TOOLS: Final[Mapping[str, ToolType]] = {
    "code_interpreter": ToolType.EXTENSION,
    "file_search": ToolType.DATASTORE,
}


class OpenAIAssistants:
    """Reads one run, as far as one stream of it goes."""

    __slots__ = ("_turn",)

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def feed(self, event: Any) -> None:
        handler = _HANDLERS.get(field(event, "event"))
        if handler is not None:
            handler(self, field(event, "data"))

    def reply(self, message: Any) -> None:
        self._run(message)
        if field(message, "status") == "requires_action":
            self._requires_action(message)

    def _run(self, run: Any) -> None:
        self._turn.resumable = True  # it may be asked for again, and shows then what it still waits for
        self._turn.response(field(run, "id"), field(run, "model"))

    def _step_delta(self, data: Any) -> None:
        for entry in items(field(field(field(data, "delta"), "step_details"), "tool_calls")):
            index = field(entry, "index")
            position = (field(data, "id"), index)
            kind = clean(field(entry, "type")) or "function"
            body = field(entry, kind)
            if self._turn.accumulator.state(position) == "unknown":
                self._announce(position, entry, kind, body, index)
            piece = field(body, "input" if kind == "code_interpreter" else "arguments")
            if piece:
                self._turn.append(position, as_json(piece))

    def _announce(self, position: Any, entry: Any, kind: str, body: Any, index: object) -> None:
        server = _SERVER_TOOLS.get(kind)
        self._turn.announce(
            position,
            clean(field(entry, "id")),
            clean(field(body, "name")) or kind,
            index=index,
            kind=Kind.CLIENT if server is None else Kind.SERVER,
            tool_type=server or ToolType.FUNCTION,
            assemble=json_text if server is None else freeform_text,
        )

    def _step_over(self, step: Any) -> None:
        for position in list(self._turn.accumulator.open):
            if isinstance(position, tuple) and position[0] == field(step, "id"):
                self._turn.close(position)

    def _step_failed(self, step: Any) -> None:
        for position in list(self._turn.accumulator.open):
            if isinstance(position, tuple) and position[0] == field(step, "id"):
                self._turn.give_up(position, ErrorType.RESPONSE_FAILED)

    def _requires_action(self, run: Any) -> None:
        known = {call.call_id for call in self._turn.calls.values()}
        for position in list(self._turn.accumulator.open):
            self._turn.close(position)
        asked = field(field(field(run, "required_action"), "submit_tool_outputs"), "tool_calls")
        for ordinal, entry in enumerate(items(asked)):
            if clean(field(entry, "id")) not in known:
                body = field(entry, "function")
                self._announce(("asked", ordinal), entry, "function", body, None)
                self._turn.close(("asked", ordinal), as_json(field(body, "arguments")))
        self._turn.finish("requires_action")

    def _run_over(self, run: Any) -> None:
        reason = clean(field(field(run, "incomplete_details"), "reason"))
        self._turn.finish(reason if reason in FINISH_LIMITS else "completed")

    def _run_failed(self, run: Any) -> None:
        self._turn.fail(clean(field(field(run, "last_error"), "code")) or ErrorType.RESPONSE_FAILED)
        self._turn.finish("failed")


_HANDLERS: Final[Mapping[object, Callable[[OpenAIAssistants, Any], None]]] = {
    "thread.run.created": OpenAIAssistants._run,
    "thread.run.in_progress": OpenAIAssistants._run,
    "thread.run.step.delta": OpenAIAssistants._step_delta,
    "thread.run.step.completed": OpenAIAssistants._step_over,
    "thread.run.step.failed": OpenAIAssistants._step_failed,
    "thread.run.step.cancelled": OpenAIAssistants._step_failed,
    "thread.run.step.expired": OpenAIAssistants._step_failed,
    "thread.run.requires_action": OpenAIAssistants._requires_action,
    "thread.run.completed": OpenAIAssistants._run_over,
    "thread.run.incomplete": OpenAIAssistants._run_over,
    "thread.run.failed": OpenAIAssistants._run_failed,
    "thread.run.cancelled": OpenAIAssistants._run_failed,
    "thread.run.expired": OpenAIAssistants._run_failed,
}


def read_request(body: Mapping[str, Any]) -> RequestBody:
    """wire: OpenAI assistants, the request. Results are the ``tool_outputs`` of a run."""
    return RequestBody(
        model=clean(body.get("model")),
        tools=names(body.get("tools")),
        results=tuple(Result(clean(field(output, "tool_call_id"))) for output in items(body.get("tool_outputs"))),
    )
