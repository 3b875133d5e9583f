"""OpenAI: chat completions and responses."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from benchmarks.shapes import TOOLS, Shape
from benchmarks.stainless import Workload, server_sent

_MODEL = "gpt-5-mini"
_QUESTION = "What is the weather in Paris, and how do I get there?"
_PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}}


class _OpenAI(Workload):
    sdk = "openai"

    def clients(self, http: Any, async_http: Any) -> tuple[Any, Any]:
        openai = importlib.import_module("openai")
        return openai.OpenAI(api_key="none", http_client=http), openai.AsyncOpenAI(
            api_key="none", http_client=async_http
        )


class Chat(_OpenAI):
    name = "openai chat"

    asked = {  # noqa: RUF012 - read only
        "model": _MODEL,
        "messages": [{"role": "user", "content": _QUESTION}],
        "tools": [{"type": "function", "function": {"name": name, "parameters": _PARAMETERS}} for name in TOOLS],
        "stream": True,
    }

    def body(self, shape: Shape) -> list[bytes]:
        word = functools.cache(lambda i: server_sent(_delta({"content": f"word{i} "})))
        fragment = functools.cache(lambda n, piece: server_sent(_call(n, piece)))
        announced = [_call(n, "", id=shape.call_id(n), type="function", name=shape.name(n)) for n in shape.numbers]
        return [
            server_sent(_delta({"role": "assistant", "content": None, "refusal": None})),
            *(word(i % 10) for i in range(shape.text)),
            *map(server_sent, announced),
            *(fragment(n, piece) for n, piece in shape.pieces()),
            server_sent(_delta({}, "tool_calls" if shape.calls else "stop")),
            b"data: [DONE]\n\n",
        ]

    def open(self) -> Any:
        return self.client.chat.completions.create(**self.asked)

    async def aopen(self) -> Any:
        return await self.async_client.chat.completions.create(**self.asked)


class Responses(_OpenAI):
    name = "openai responses"

    asked = {  # noqa: RUF012 - read only
        "model": _MODEL,
        "input": _QUESTION,
        "tools": [{"type": "function", "name": name, "parameters": _PARAMETERS} for name in TOOLS],
        "stream": True,
    }

    def body(self, shape: Shape) -> list[bytes]:
        first = int(shape.text > 0)
        message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        calls = shape.expected()
        done = [_function_call(n, c.call_id, c.name, c.arguments, "completed") for n, c in enumerate(calls)]
        word = functools.cache(_word)
        fragment = functools.cache(lambda n, piece: _fragment(n, first + n, piece))
        body = [_event("response.created", response=_response("in_progress", []))]
        if shape.text:
            body.append(_event("response.output_item.added", output_index=0, item=message))
            body += [word(i % 10) for i in range(shape.text)]
            body.append(_event("response.output_item.done", output_index=0, item={**message, "status": "completed"}))
        for n, call in enumerate(calls):
            item = _function_call(n, call.call_id, call.name, "", "in_progress")
            body.append(_event("response.output_item.added", output_index=first + n, item=item))
        body += [fragment(n, piece) for n, piece in shape.pieces()]
        for n, item in enumerate(done):
            where = {"item_id": f"fc_{n}", "output_index": first + n}
            named = {"name": item["name"], "arguments": item["arguments"]}
            body.append(_event("response.function_call_arguments.done", **where, **named))
            body.append(_event("response.output_item.done", output_index=first + n, item=item))
        return [*body, _event("response.completed", response=_response("completed", done))]

    def open(self) -> Any:
        return self.client.responses.create(**self.asked)

    async def aopen(self) -> Any:
        return await self.async_client.responses.create(**self.asked)


def _event(kind: str, **fields: Any) -> bytes:
    """Its number is the same on each: nobody counts, and equal events are parsed once for a replay."""
    return server_sent({"type": kind, "sequence_number": 7, **fields})


def _word(i: int) -> bytes:
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
    return _event("response.output_text.delta", delta=f"word{i} ", **where)


def _fragment(number: int, position: int, piece: str) -> bytes:
    where = {"item_id": f"fc_{number}", "output_index": position}
    return _event("response.function_call_arguments.delta", delta=piece, obfuscation="aJ8k2", **where)


def _delta(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-CkZ1b3wJp0TtYqVr5nXs",
        "object": "chat.completion.chunk",
        "created": 1764590000,
        "model": _MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_1a2b3c",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
        "obfuscation": "aJ8k2",
    }


def _call(index: int, arguments: str, **announced: str) -> dict[str, Any]:
    name = {"name": announced.pop("name")} if "name" in announced else {}
    return _delta({"tool_calls": [{"index": index, **announced, "function": {**name, "arguments": arguments}}]})


def _function_call(number: int, call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def _response(status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 40,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 60,
    }
    return {
        "id": "resp_68b1c0aa",
        "object": "response",
        "created_at": 1764590000,
        "model": _MODEL,
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
        "usage": usage if status == "completed" else None,
    }


WORKLOADS = (Chat, Responses)
