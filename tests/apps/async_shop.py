"""An async app that collects the arguments of streamed calls in buffers, under the key that it is given.

``by_name`` is the mistake of `examples/support_by_name.py`, ``by_index`` the right key. Nothing here knows of tracing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai

__all__ = ["ask_claude", "ask_gpt", "ask_gpt_responses", "by_index", "by_name"]

Key = Callable[[int, str], Hashable]
QUESTION = "Show me my refunded orders from March and my open ones."


def by_name(index: int, name: str) -> Hashable:
    return name


def by_index(index: int, name: str) -> Hashable:
    return index


@dataclass
class Call:
    id: str
    name: str
    arguments: str = ""


class Buffers:
    """The calls of one reply."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._keys: dict[int, Hashable] = {}
        self._calls: dict[Hashable, Call] = {}

    def announce(self, index: int, call_id: str, name: str) -> None:
        self._keys[index] = self._key(index, name)
        self._calls[self._keys[index]] = Call(call_id, name)

    def append(self, index: int, piece: str) -> None:
        self._calls[self._keys[index]].arguments += piece

    def run(self) -> list[tuple[Call, str]]:
        return [(call, f"found {call.name}") for call in self._calls.values()]


async def ask_claude(key: Key) -> None:
    """Anthropic messages."""
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    async with anthropic.AsyncAnthropic() as client:
        while True:
            buffers = Buffers(key)
            async with client.messages.stream(model="claude", max_tokens=100, messages=messages) as stream:
                async for event in stream:
                    if event.type == "content_block_start" and event.content_block.type == "tool_use":
                        buffers.announce(event.index, event.content_block.id, event.content_block.name)
                    elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                        buffers.append(event.index, event.delta.partial_json)
            done = buffers.run()
            if not done:
                return
            used = [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": _parsed(call.arguments)}
                for call, _ in done
            ]
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": found} for call, found in done]
            messages += [{"role": "assistant", "content": used}, {"role": "user", "content": results}]


async def ask_gpt(key: Key) -> None:
    """OpenAI chat completions."""
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    async with openai.AsyncOpenAI() as client:
        while True:
            buffers = Buffers(key)
            async for chunk in await client.chat.completions.create(model="gpt", messages=messages, stream=True):
                for piece in chunk.choices[0].delta.tool_calls or ():
                    if piece.id:
                        buffers.announce(piece.index, piece.id, piece.function.name)
                    buffers.append(piece.index, piece.function.arguments or "")
            done = buffers.run()
            if not done:
                return
            used = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call, _ in done
            ]
            messages.append({"role": "assistant", "tool_calls": used})
            messages += [{"role": "tool", "tool_call_id": call.id, "content": found} for call, found in done]


async def ask_gpt_responses(key: Key) -> None:
    """OpenAI responses."""
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    async with openai.AsyncOpenAI() as client:
        while True:
            buffers = Buffers(key)
            async for event in await client.responses.create(model="gpt", input=items, stream=True):
                if event.type == "response.output_item.added" and event.item.type == "function_call":
                    buffers.announce(event.output_index, event.item.call_id, event.item.name)
                elif event.type == "response.function_call_arguments.delta":
                    buffers.append(event.output_index, event.delta)
            done = buffers.run()
            if not done:
                return
            for call, found in done:
                items += [
                    {
                        "type": "function_call",
                        "call_id": call.id,
                        "name": call.name,
                        "arguments": call.arguments,
                    },
                    {"type": "function_call_output", "call_id": call.id, "output": found},
                ]


def _parsed(arguments: str) -> Any:
    """Two calls in one buffer are no JSON document."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}
