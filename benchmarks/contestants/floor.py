"""The floor: what any observer must pay. A generator that passes each chunk on; and the least that can be done on top of
it to make the same spans: fragments appended by index, joined and parsed at the end, one span per turn and per call.

It knows complete streams of well-behaved servers and nothing else: no verdicts, no metrics, no ledger, no early ends.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Tracer

from benchmarks.telemetry import Telemetry

PACKAGES: list[str] = []
VARIANTS: dict[str, dict[str, str]] = {"pass-through": {}, "floor": {}}


def instrument(telemetry: Telemetry, variant: str) -> None:
    tracer = telemetry.tracer_provider.get_tracer("floor")
    for sdk in ("openai", "anthropic"):
        streaming = importlib.import_module(f"{sdk}._streaming")
        stream, astream = streaming.Stream, streaming.AsyncStream
        if variant == "pass-through":
            stream.__stream__, astream.__stream__ = _passing(stream.__stream__), _apassing(astream.__stream__)
        else:
            stream.__stream__ = _observing(stream.__stream__, tracer)
            astream.__stream__ = _aobserving(astream.__stream__, tracer)


def _passing(original: Any) -> Any:
    def __stream__(self: Any) -> Iterator[Any]:
        for event in original(self):
            yield event

    return __stream__


def _apassing(original: Any) -> Any:
    async def __stream__(self: Any) -> AsyncIterator[Any]:
        async for event in original(self):
            yield event

    return __stream__


def _observing(original: Any, tracer: Tracer) -> Any:
    def __stream__(self: Any) -> Iterator[Any]:
        feed, end = _reader(repr(self._cast_to), tracer)
        for event in original(self):
            feed(event)
            yield event
        end()

    return __stream__


def _aobserving(original: Any, tracer: Tracer) -> Any:
    async def __stream__(self: Any) -> AsyncIterator[Any]:
        feed, end = _reader(repr(self._cast_to), tracer)
        async for event in original(self):
            feed(event)
            yield event
        end()

    return __stream__


class _Turn:
    """Spans of a turn, and the fragments of its open calls."""

    def __init__(self, tracer: Tracer, provider: str) -> None:
        self._tracer = tracer
        self._named = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider}
        self.span = tracer.start_span("chat", kind=SpanKind.CLIENT, attributes=self._named)
        self._context = trace.set_span_in_context(self.span)
        self.open: dict[int, tuple[Span, list[str]]] = {}

    def announce(self, index: int, call_id: str, name: str) -> None:
        attributes = {
            **self._named,
            "gen_ai.operation.name": "announce_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call_id,
            "call.index": index,
        }
        span = self._tracer.start_span(f"announce_tool {name}", context=self._context, attributes=attributes)
        self.open[index] = span, []

    def close(self, index: int) -> None:
        span, fragments = self.open.pop(index)
        text = "".join(fragments)
        json.loads(text or "{}")
        span.set_attributes({"outcome": "completed", "size": len(text), "fragments": len(fragments)})
        span.end()


def _reader(cast_to: str, tracer: Tracer) -> tuple[Callable[[Any], None], Callable[[], None]]:
    if "ChatCompletionChunk" in cast_to:
        turn = _Turn(tracer, "openai")
        return _chat(turn), turn.span.end
    if "RawMessage" in cast_to:
        turn = _Turn(tracer, "anthropic")
        return _messages(turn), turn.span.end
    turn = _Turn(tracer, "openai")
    return _responses(turn), turn.span.end


def _chat(turn: _Turn) -> Callable[[Any], None]:
    calls = turn.open

    def feed(chunk: Any) -> None:
        for choice in chunk.choices:
            entries = choice.delta.tool_calls
            if entries:
                for entry in entries:
                    if entry.id:
                        turn.announce(entry.index, entry.id, entry.function.name)
                    else:
                        calls[entry.index][1].append(entry.function.arguments)
            if choice.finish_reason:
                for index in list(calls):
                    turn.close(index)

    return feed


def _messages(turn: _Turn) -> Callable[[Any], None]:
    calls = turn.open

    def feed(event: Any) -> None:
        kind = event.type
        if kind == "content_block_delta":
            delta = event.delta
            if delta.type == "input_json_delta":
                calls[event.index][1].append(delta.partial_json)
        elif kind == "content_block_start":
            block = event.content_block
            if block.type == "tool_use":
                turn.announce(event.index, block.id, block.name)
        elif kind == "content_block_stop" and event.index in calls:
            turn.close(event.index)

    return feed


def _responses(turn: _Turn) -> Callable[[Any], None]:
    calls = turn.open

    def feed(event: Any) -> None:
        kind = event.type
        if kind == "response.function_call_arguments.delta":
            calls[event.output_index][1].append(event.delta)
        elif kind == "response.output_item.added":
            item = event.item
            if item.type == "function_call":
                turn.announce(event.output_index, item.call_id, item.name)
        elif kind == "response.output_item.done" and event.output_index in calls:
            turn.close(event.output_index)

    return feed
