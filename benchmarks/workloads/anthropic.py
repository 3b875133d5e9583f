"""Anthropic: messages, as the raw stream and through the SDK's helper."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from benchmarks.shapes import TOOLS, Shape
from benchmarks.stainless import Workload, server_sent

_MODEL = "claude-sonnet-4-5"


class Raw(Workload):
    name = "anthropic raw"
    sdk = "anthropic"

    asked = {  # noqa: RUF012 - read only
        "model": _MODEL,
        "max_tokens": 1024,
        "messages": [{"role": "user", "content": "What is the weather in Paris, and how do I get there?"}],
        "tools": [
            {"name": name, "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}}}
            for name in TOOLS
        ],
    }

    def clients(self, http: Any, async_http: Any) -> tuple[Any, Any]:
        anthropic = importlib.import_module("anthropic")
        return anthropic.Anthropic(api_key="none", http_client=http), anthropic.AsyncAnthropic(
            api_key="none", http_client=async_http
        )

    def body(self, shape: Shape) -> list[bytes]:
        first = int(shape.text > 0)
        word = functools.cache(lambda i: _delta(0, {"type": "text_delta", "text": f"word{i} "}))
        fragment = functools.cache(
            lambda n, piece: _delta(first + n, {"type": "input_json_delta", "partial_json": piece})
        )
        body = [server_sent({"type": "message_start", "message": _message()})]
        if shape.text:
            body.append(_start(0, {"type": "text", "text": ""}))
            body += [word(i % 10) for i in range(shape.text)]
            body.append(_stop(0))
        for n in shape.numbers:
            block = {"type": "tool_use", "id": shape.call_id(n), "name": shape.name(n), "input": {}}
            body.append(_start(first + n, block))
        body += [fragment(n, piece) for n, piece in shape.pieces()]
        body += [_stop(first + n) for n in shape.numbers]
        stop = {"stop_reason": "tool_use" if shape.calls else "end_turn", "stop_sequence": None}
        body.append(server_sent({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 40}}))
        return [*body, server_sent({"type": "message_stop"})]

    def open(self) -> Any:
        return self.client.messages.create(stream=True, **self.asked)

    async def aopen(self) -> Any:
        return await self.async_client.messages.create(stream=True, **self.asked)


class Helper(Raw):
    name = "anthropic helper"
    asynchronous = False
    longest = 500  # the helper parses the arguments so far at every fragment

    def open(self) -> Any:
        return self.client.messages.stream(**self.asked).__enter__()  # what it holds, it lets go at the stream's end

    async def aopen(self) -> Any:
        return await self.async_client.messages.stream(**self.asked).__aenter__()

    def raw(self) -> Any:
        return super().open()


def _start(index: int, block: dict[str, Any]) -> bytes:
    return server_sent({"type": "content_block_start", "index": index, "content_block": block})


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return server_sent({"type": "content_block_delta", "index": index, "delta": delta})


def _stop(index: int) -> bytes:
    return server_sent({"type": "content_block_stop", "index": index})


def _message() -> dict[str, Any]:
    return {
        "id": "msg_01CkZ1b3wJp0TtYqVr5nXs",
        "type": "message",
        "role": "assistant",
        "model": _MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 1},
    }


WORKLOADS = (Raw, Helper)
