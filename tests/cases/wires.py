"""Short ways to write a reply in each wire's own words, for situations that no recorded stream shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tests.cases.replay import DONE, Script, sse

MODEL = "answering-model"

Event = dict[str, Any]


def _flat(parts: Iterable[Event | Sequence[Event]]) -> list[Event]:
    return [event for part in parts for event in ([part] if isinstance(part, dict) else part)]


# ---- chat completions -----------------------------------------------------------------------------------------------


def chat(*chunks: Event | Sequence[Event], done: bool = True, **how: Any) -> Script:
    """A streamed chat completion of these chunks; ``done`` closes it with the ``[DONE]`` line."""
    return Script([*map(sse, _flat(chunks)), *([DONE] if done else [])], **how)


def chunk(*tool_calls: Event, finish: str | None = None, choice: int = 0, **delta: Any) -> Event:
    """One chunk: entries of ``delta.tool_calls``, other fields of the delta, and a finish reason."""
    content = {**delta, **({"tool_calls": list(tool_calls)} if tool_calls else {})}
    return bare_chunk([{"index": choice, "delta": content, "finish_reason": finish}])


def bare_chunk(choices: list[Event] | None, **more: Any) -> Event:
    """A chunk with exactly these choices."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": choices,
        **more,
    }


def tool(**fields: Any) -> Event:
    """An entry of ``delta.tool_calls`` with these fields and no others; ``name`` and ``arguments`` go to the function.

    A field that is given as None is null on the wire, which is not the same as absent.
    """
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {**fields, **({"function": function} if function else {})}


def announced(index: int, call_id: str, name: str, arguments: str = "") -> Event:
    """The entry that announces a call the way OpenAI does."""
    return tool(index=index, id=call_id, type="function", name=name, arguments=arguments)


def fragment(index: int, arguments: str) -> Event:
    """The entry that carries one fragment the way OpenAI does."""
    return tool(index=index, arguments=arguments)


FINISHED = chunk(finish="tool_calls")

# ---- anthropic messages ---------------------------------------------------------------------------------------------


def anthropic(*events: Event | Sequence[Event], stop: str | None = "tool_use", **how: Any) -> Script:
    """A streamed message of these events; without ``stop`` the bytes end where the events do."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    whole = [{"type": "message_start", "message": message}, *_flat(events)]
    if stop is not None:
        delta = {"stop_reason": stop, "stop_sequence": None}
        whole.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}})
        whole.append({"type": "message_stop"})
    return Script(list(map(sse, whole)), **how)


def tool_use(index: int, call_id: str, name: str, *fragments: str, closed: bool = True) -> list[Event]:
    """The events of one ``tool_use`` block."""
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": text} for text in fragments]
    return _block(index, block, deltas, closed=closed)


def text_block(index: int, *texts: str) -> list[Event]:
    """The events of one ``text`` block."""
    return _block(index, {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in texts])


def _block(index: int, block: Event, deltas: list[Event], *, closed: bool = True) -> list[Event]:
    start = {"type": "content_block_start", "index": index, "content_block": block}
    middle = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [start, *middle, *([{"type": "content_block_stop", "index": index}] if closed else [])]


# ---- responses ------------------------------------------------------------------------------------------------------


def responses(
    *events: Event | Sequence[Event], end: str | None = "completed", start: bool = True, **how: Any
) -> Script:
    """A streamed response of these events; without ``end`` the bytes end where the events do."""
    whole = [*([_response("created", "in_progress")] if start else []), *_flat(events)]
    if end is not None:
        whole.append(_response(end, end))
    return Script([sse({**event, "sequence_number": number}) for number, event in enumerate(whole)], **how)


def _response(event: str, status: str) -> Event:
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": MODEL,
        "status": status,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return {"type": f"response.{event}", "response": response}


def function_call(
    output_index: int, call_id: str, name: str, *fragments: str, item_id: str | None = None, closed: bool = True
) -> list[Event]:
    """The events of one ``function_call`` item."""
    item = {"type": "function_call", "id": item_id or f"fc_{output_index}", "call_id": call_id, "name": name}
    at = {"output_index": output_index, "item_id": item["id"]}
    begun = {**item, "arguments": "", "status": "in_progress"}
    events: list[Event] = [{"type": "response.output_item.added", "output_index": output_index, "item": begun}]
    events += [{"type": "response.function_call_arguments.delta", **at, "delta": text} for text in fragments]
    if closed:
        whole = "".join(fragments)
        done = {**item, "arguments": whole, "status": "completed"}
        events.append({"type": "response.function_call_arguments.done", **at, "arguments": whole})
        events.append({"type": "response.output_item.done", "output_index": output_index, "item": done})
    return events


# ---- whole replies --------------------------------------------------------------------------------------------------


def whole(reply: Event) -> Script:
    """A reply that is not streamed."""
    return Script([json.dumps(reply).encode()], "application/json")
