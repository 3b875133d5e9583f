"""Streamed replies of the three protocols, made of the calls that they announce."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

__all__ = ["Announced", "anthropic_reply", "chat_reply", "responses_reply"]


@dataclass(frozen=True)
class Announced:
    """A call in a reply."""

    id: str
    name: str
    arguments: str = "{}"
    server: bool = False
    """The provider runs it itself (Anthropic)."""

    def pieces(self) -> list[str]:
        half = len(self.arguments) // 2
        return [piece for piece in (self.arguments[:half], self.arguments[half:]) if piece]


def _sse(events: Sequence[dict[str, Any]], *, named: bool) -> str:
    return "".join(
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    )


def anthropic_reply(calls: Sequence[Announced], text: str = "") -> str:
    """wire: Anthropic messages."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text or "Well."}},
        {"type": "content_block_stop", "index": 0},
    ]
    for index, call in enumerate(calls, 1):
        kind = "server_tool_use" if call.server else "tool_use"
        block = {"type": kind, "id": call.id, "name": call.name, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in call.pieces()
        ]
        events.append({"type": "content_block_stop", "index": index})
    reason = "tool_use" if calls else "end_turn"
    events += [
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return _sse(events, named=True)


def chat_reply(calls: Sequence[Announced], text: str = "", *, interleaved: bool = False, choice: int = 0) -> str:
    """wire: OpenAI chat completions; one call after the other, or their fragments interleaved."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": text or None}]
    opened = [
        {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        for index, call in enumerate(calls)
    ]
    pieces = [
        [{"index": index, "function": {"arguments": piece}} for piece in call.pieces()]
        for index, call in enumerate(calls)
    ]
    if interleaved:
        deltas += [{"tool_calls": [entry]} for entry in opened]
        deltas += [{"tool_calls": [entry for entry in row if entry]} for row in zip_longest(*pieces)]
    else:
        deltas += [
            {"tool_calls": [entry]} for first, rest in zip(opened, pieces, strict=True) for entry in (first, *rest)
        ]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
    chunks = [{**head, "choices": [{"index": choice, "delta": delta, "finish_reason": None}]} for delta in deltas]
    reason = "tool_calls" if calls else "stop"
    chunks.append({**head, "choices": [{"index": choice, "delta": {}, "finish_reason": reason}]})
    return _sse(chunks, named=False) + "data: [DONE]\n\n"


def responses_reply(calls: Sequence[Announced], text: str = "", response_id: str = "resp_1") -> str:
    """wire: OpenAI responses."""
    response: dict[str, Any] = {
        "id": response_id,
        "object": "response",
        "created_at": 1,
        "model": "gpt",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "in_progress",
    }
    events: list[dict[str, Any]] = [{"type": "response.created", "response": response}]
    output: list[dict[str, Any]] = []
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        started = {**item, "status": "in_progress", "content": []}
        events += [
            {"type": "response.output_item.added", "output_index": 0, "item": started},
            {
                "type": "response.content_part.added",
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "part": {**part, "text": ""},
            },
            {
                "type": "response.output_text.delta",
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "delta": text,
                "logprobs": [],
            },
            {
                "type": "response.output_text.done",
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "text": text,
                "logprobs": [],
            },
            {
                "type": "response.content_part.done",
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "part": part,
            },
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        ]
        output.append(item)
    for index, call in enumerate(calls, len(output)):
        item = {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name}
        whole = {**item, "arguments": call.arguments, "status": "completed"}
        events.append(
            {
                "type": "response.output_item.added",
                "output_index": index,
                "item": {**item, "arguments": "", "status": "in_progress"},
            }
        )
        events += [
            {
                "type": "response.function_call_arguments.delta",
                "item_id": item["id"],
                "output_index": index,
                "delta": piece,
            }
            for piece in call.pieces()
        ]
        events += [
            {
                "type": "response.function_call_arguments.done",
                "item_id": item["id"],
                "output_index": index,
                "name": call.name,
                "arguments": call.arguments,
            },
            {"type": "response.output_item.done", "output_index": index, "item": whole},
        ]
        output.append(whole)
    events.append({"type": "response.completed", "response": {**response, "status": "completed", "output": output}})
    return _sse([{**event, "sequence_number": number} for number, event in enumerate(events)], named=True)
