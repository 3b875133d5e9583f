"""wire: OpenAI responses, streaming and whole, new, resumed and replayed.

Explicit announcements and ends, by output item: ``response.output_item.added`` binds ``output_index`` to an item,
``response.output_item.done`` ends it and repeats it whole. A resumed stream may begin in the middle of a call, whose
announcement is then read from its end, or replay calls that were announced before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_toolcalls.accumulator import Assemble, freeform_text, json_text
from otel_toolcalls.conventions import FINISH_LIMITS, Anomaly, ErrorType, Kind, ToolType
from otel_toolcalls.turn import Result, Turn
from otel_toolcalls.wire import RequestBody
from otel_toolcalls.wire.reading import as_json, clean, field, items, names, place

__all__ = ["OpenAIResponses", "read_request"]


@dataclass(frozen=True, slots=True)
class _Item:
    """What an output item type says about a call."""

    kind: Kind
    arguments: str
    """The field that holds them."""
    assemble: Assemble = freeform_text
    """Only texts of JSON that the model wrote are parsed; whole values were parsed by the provider."""
    tool_type: ToolType = ToolType.FUNCTION


_ITEMS: Final[Mapping[str, _Item]] = {
    "function_call": _Item(Kind.CLIENT, "arguments", json_text),
    "custom_tool_call": _Item(Kind.CLIENT, "input"),
    "computer_call": _Item(Kind.CLIENT, "action"),
    "local_shell_call": _Item(Kind.CLIENT, "action"),
    "shell_call": _Item(Kind.CLIENT, "action"),
    "apply_patch_call": _Item(Kind.CLIENT, "operation"),
    "mcp_approval_request": _Item(Kind.CLIENT, "arguments", json_text),
    "tool_search_call": _Item(Kind.SERVER, "arguments", tool_type=ToolType.EXTENSION),
    "mcp_call": _Item(Kind.SERVER, "arguments", json_text, ToolType.EXTENSION),
    "web_search_call": _Item(Kind.SERVER, "action", tool_type=ToolType.EXTENSION),
    "file_search_call": _Item(Kind.SERVER, "action", tool_type=ToolType.DATASTORE),
    "code_interpreter_call": _Item(Kind.SERVER, "code", tool_type=ToolType.EXTENSION),
    "image_generation_call": _Item(Kind.SERVER, "action", tool_type=ToolType.EXTENSION),
    "program": _Item(Kind.SERVER, "code", tool_type=ToolType.EXTENSION),
}
_FINISHED: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})


class OpenAIResponses:
    """Reads one response."""

    __slots__ = ("_known", "_open", "_turn")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._open = turn.accumulator.open
        turn.resumable = True
        self._known: set[str] = set()
        """Ids of the items seen on this stream."""

    def feed(self, event: Any) -> None:
        try:
            # The hot path: every piece of text and of arguments comes by here. What is not as usual goes on below.
            kind = event.type
            if kind == "response.function_call_arguments.delta":
                piece = event.delta
                if piece.__class__ is str:
                    self._open[event.output_index].fragments.append(piece)
                    return
        except (AttributeError, KeyError, TypeError):
            kind = field(event, "type")
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        if handler is not None:
            handler(self, event)

    def reply(self, message: Any) -> None:
        self._name(message)
        for position, item in enumerate(items(field(message, "output"))):
            if self._announce(position, item, index=None):
                self._close(position, item)
        if field(message, "status") in _FINISHED:
            self._finish(message)

    def _name(self, response: Any) -> None:
        self._turn.response(field(response, "id"), field(response, "model"))

    def _created(self, event: Any) -> None:
        self._name(field(event, "response"))

    def _added(self, event: Any) -> None:
        index = place(field(event, "output_index"))
        self._announce(index, field(event, "item"), index=index)

    def _announce(self, position: Any, item: Any, *, index: object, anomalies: tuple[str, ...] = ()) -> bool:
        kind = clean(field(item, "type"))
        shape = _ITEMS.get(kind or "")
        if shape is None:
            return False
        item_id = clean(field(item, "id"))
        if item_id is not None:
            self._known.add(item_id)
        run_here = field(item, "execution") == "client" or (shape.kind is Kind.CLIENT and not _is_hosted(item))
        self._turn.announce(
            position,
            _call_id(item),
            clean(field(item, "name")) or kind,
            index=index,
            kind=Kind.CLIENT if run_here else Kind.SERVER,
            tool_type=ToolType.FUNCTION if run_here else shape.tool_type,
            assemble=shape.assemble,
            anomalies=anomalies,
        )
        return True

    def _delta(self, event: Any) -> None:
        index = place(field(event, "output_index"))
        # On a resumed stream it may have been announced before: its end holds the whole item.
        if index in self._open or self._turn.request.resumes is None:
            self._turn.append(index, as_json(field(event, "delta")))

    def _done(self, event: Any) -> None:
        index, item = place(field(event, "output_index")), field(event, "item")
        if field(item, "type") not in _ITEMS:
            return
        if self._turn.request.resumes is not None and index not in self._turn.accumulator.open:
            self._announce(index, item, index=index, anomalies=(Anomaly.ANNOUNCED_LATE,))
        self._close(index, item)

    def _close(self, position: Any, item: Any) -> None:
        shape = _ITEMS[field(item, "type")]
        call = self._turn.calls.get(position)
        if call is not None:
            final_id, final_name = _call_id(item), clean(field(item, "name"))
            if call.call_id is None and final_id is not None:
                self._turn.rename(call, call_id=final_id)
            elif final_id not in (None, call.call_id):
                call.note(Anomaly.ID_CHANGED)
            if final_name not in (None, call.name):
                call.note(Anomaly.NAME_CHANGED)
        arguments = as_json(field(item, shape.arguments))
        buffer = self._turn.accumulator.open.get(position)
        if call is not None and buffer is not None and buffer.fragments and shape.assemble is json_text:
            if arguments and arguments != "".join(buffer.fragments):
                call.note(Anomaly.ARGUMENTS_CHANGED)
        self._turn.close(position, arguments)

    def _over(self, event: Any) -> None:
        self._finish(field(event, "response"))

    def _finish(self, response: Any) -> None:
        self._name(response)
        self._unseen(response)
        status = field(response, "status")
        if status == "incomplete":
            reason = clean(field(field(response, "incomplete_details"), "reason"))
            self._turn.finish(reason if reason in FINISH_LIMITS else "incomplete")
        elif status in ("failed", "cancelled"):
            self._turn.fail(clean(field(field(response, "error"), "code")) or ErrorType.RESPONSE_FAILED)
            self._turn.finish(status)
        else:
            self._turn.finish("completed")

    def _unseen(self, response: Any) -> None:
        """Calls that only the final response holds: the stream began after them, or never sent them one by one."""
        for position, item in enumerate(items(field(response, "output"))):
            item_id = clean(field(item, "id"))
            if field(item, "type") in _ITEMS and item_id is not None and item_id not in self._known:
                if ("final", position) not in self._turn.calls and self._announce(
                    ("final", position), item, index=None, anomalies=(Anomaly.ANNOUNCED_LATE,)
                ):
                    self._close(("final", position), item)

    def _error(self, event: Any) -> None:
        self._turn.fail(clean(field(event, "code")) or ErrorType.RESPONSE_FAILED)


def _is_hosted(item: Any) -> bool:
    """A shell of the provider's own: the command runs in its container, and the output comes in the same response."""
    return bool(field(field(item, "environment"), "type") == "container_reference")


def _call_id(item: Any) -> str | None:
    return clean(field(item, "call_id")) or clean(field(item, "id"))


_HANDLERS: Final[Mapping[object, Callable[[OpenAIResponses, Any], None]]] = {
    "response.created": OpenAIResponses._created,
    "response.in_progress": OpenAIResponses._created,
    "response.queued": OpenAIResponses._created,
    "response.output_item.added": OpenAIResponses._added,
    "response.function_call_arguments.delta": OpenAIResponses._delta,
    "response.custom_tool_call_input.delta": OpenAIResponses._delta,
    "response.mcp_call_arguments.delta": OpenAIResponses._delta,
    "response.code_interpreter_call_code.delta": OpenAIResponses._delta,
    "response.output_item.done": OpenAIResponses._done,
    "response.completed": OpenAIResponses._over,
    "response.incomplete": OpenAIResponses._over,
    "response.failed": OpenAIResponses._over,
    "error": OpenAIResponses._error,
}

_RESULTS: Final[Mapping[str, str]] = {
    "function_call_output": "call_id",
    "custom_tool_call_output": "call_id",
    "computer_call_output": "call_id",
    "shell_call_output": "call_id",
    "apply_patch_call_output": "call_id",
    "tool_search_output": "call_id",
    "local_shell_call_output": "id",
    "mcp_approval_response": "approval_request_id",
}
"""Input items that carry the result of a call → the field that names the call."""


def read_request(body: Mapping[str, Any]) -> RequestBody:
    """wire: OpenAI responses, the request. Results are ``*_output`` items of the input."""
    results, carried = _since_last_message(items(body.get("input")))
    return RequestBody(
        model=clean(body.get("model")),
        tools=names(body.get("tools")),
        results=tuple(results),
        carried=tuple(carried),
        continues=clean(body.get("previous_response_id")),
    )


def _since_last_message(sent: Sequence[Any]) -> tuple[list[Result], list[str]]:
    """The results, and the calls, after the model's last message; read from the end.

    The items of several turns may follow one another without a message between them, and each result its own call. An
    id may return in a later turn: its result is then that of the earlier call, and not read again.
    """
    results: list[Result] = []
    carried: list[str] = []
    for item in reversed(sent):
        kind = field(item, "type")
        call_id = _call_id(item) if kind in _ITEMS else clean(field(item, _RESULTS.get(kind or "", "call_id")))
        if kind in _ITEMS and call_id is not None:
            carried.append(call_id)
        elif kind in _RESULTS and call_id not in carried:
            results.append(Result(call_id, clean(field(item, "name")), earlier=bool(carried)))
        elif field(item, "role") == "assistant" or (field(item, "role") is not None and (results or carried)):
            break
    return results[::-1], carried[::-1]
