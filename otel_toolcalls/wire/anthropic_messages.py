"""wire: Anthropic messages, streaming and whole (also as Bedrock, Vertex and others carry them).

Explicit announcements and ends, by content block: ``content_block_start`` binds ``index`` to an id and a name,
``input_json_delta`` carries ``index`` alone, ``content_block_stop`` ends it, also when the reply was cut off; only
``message_delta.stop_reason`` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_toolcalls.conventions import ErrorType, Kind, ToolType
from otel_toolcalls.turn import Result, Turn
from otel_toolcalls.wire import RequestBody
from otel_toolcalls.wire.reading import as_json, clean, field, items, names, place, since_last_reply

__all__ = ["AnthropicMessages", "read_request"]

_KINDS: Final[Mapping[str, Kind]] = {
    "tool_use": Kind.CLIENT,
    "server_tool_use": Kind.SERVER,
    "mcp_tool_use": Kind.SERVER,
}


class AnthropicMessages:
    """Reads one message."""

    __slots__ = ("_inputs", "_open", "_others", "_turn")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._open = turn.accumulator.open
        self._others: set[Any] = set()
        """Live blocks that are no tool calls: their ends are not the turn's business."""
        self._inputs: dict[Any, str] = {}
        """Whole inputs that came with an announcement, which later fragments replace."""

    def feed(self, event: Any) -> None:
        try:
            # The hot path: every piece of text and of arguments comes by here. What is not as usual goes on below.
            kind = event.type
            if kind == "content_block_delta":
                delta = event.delta
                if delta.type != "input_json_delta":
                    return
                piece = delta.partial_json
                if piece.__class__ is str:
                    self._open[event.index].fragments.append(piece)
                    return
        except (AttributeError, KeyError, TypeError):
            kind = field(event, "type")
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        if handler is not None:
            handler(self, event)

    def reply(self, message: Any) -> None:
        self._turn.response(field(message, "id"), field(message, "model"))
        for position, block in enumerate(items(field(message, "content"))):
            if self._announce(position, block, index=None):
                self._turn.close(position, self._inputs.pop(position, None))
        self._finish(field(message, "stop_reason"))

    def _message_start(self, event: Any) -> None:
        # A second one is a gateway that began anew: what the first left open will not be completed.
        for position in list(self._turn.accumulator.open):
            self._turn.give_up(position, ErrorType.STREAM_ENDED)
        self._others.clear()
        self._inputs.clear()
        message = field(event, "message")
        self._turn.response(field(message, "id"), field(message, "model"))

    def _block_start(self, event: Any) -> None:
        index, block = place(field(event, "index")), field(event, "content_block")
        if field(block, "type") == "fallback":
            # Another model goes on from here after a refusal: the call before the seam may have been cut off by it.
            self._turn.cut(ErrorType.REFUSAL)
        if not self._announce(index, block, index=index):
            self._others.add(index)

    def _announce(self, position: Any, block: Any, *, index: object) -> bool:
        kind = _KINDS.get(field(block, "type"))
        if kind is None:
            return False
        whole = field(block, "input")
        if whole:
            self._inputs[position] = as_json(whole)
        self._turn.announce(
            position,
            clean(field(block, "id")),
            clean(field(block, "name")),
            index=index,
            kind=kind,
            tool_type=ToolType.FUNCTION if kind is Kind.CLIENT else ToolType.EXTENSION,
        )
        return True

    def _block_delta(self, event: Any) -> None:
        delta = field(event, "delta")
        if field(delta, "type") == "input_json_delta":
            self._turn.append(place(field(event, "index")), as_json(field(delta, "partial_json")))

    def _block_stop(self, event: Any) -> None:
        index = place(field(event, "index"))
        if index in self._others:
            self._others.discard(index)
        else:
            self._turn.close(index, self._inputs.pop(index, None))

    def _message_delta(self, event: Any) -> None:
        self._finish(field(field(event, "delta"), "stop_reason"))

    def _finish(self, reason: object) -> None:
        if isinstance(reason, str) and reason:
            self._turn.finish(reason)


_HANDLERS: Final[Mapping[object, Callable[[AnthropicMessages, Any], None]]] = {
    "message_start": AnthropicMessages._message_start,
    "content_block_start": AnthropicMessages._block_start,
    "content_block_delta": AnthropicMessages._block_delta,
    "content_block_stop": AnthropicMessages._block_stop,
    "message_delta": AnthropicMessages._message_delta,
}


def read_request(body: Mapping[str, Any]) -> RequestBody:
    """wire: Anthropic messages, the request. Results are ``tool_result`` blocks of the user."""
    tail, reply = since_last_reply(body.get("messages"), lambda message: field(message, "role") == "assistant")
    results = tuple(
        Result(clean(field(block, "tool_use_id")), is_error=field(block, "is_error") is True)
        for message in tail
        for block in items(field(message, "content"))
        if field(block, "type") == "tool_result"
    )
    said = items(field(reply, "content"))
    carried = (clean(field(block, "id")) for block in said if field(block, "type") == "tool_use")
    return RequestBody(
        model=clean(body.get("model")),
        tools=names(body.get("tools")),
        results=results,
        carried=tuple(call_id for call_id in carried if call_id),
    )
