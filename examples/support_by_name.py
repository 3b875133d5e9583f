"""A shop's support assistant: it asks a model, runs the tools that the model calls, and sends their results back.

It collects the arguments of a streamed call under the name of its tool. That works until one reply calls a tool twice.
`support_by_index.py` is the same program with the right key.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
from support_tools import TOOLS, run


@dataclass
class Call:
    id: str
    name: str
    arguments: str = ""


def ask_claude(question: str) -> None:
    """Answer with Anthropic's messages API."""
    tools = [{"name": name, "description": text, "input_schema": schema} for name, (_, text, schema) in TOOLS.items()]
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        calls: dict[str, Call] = {}
        names: dict[int, str] = {}
        text, stop = "", None
        for event in anthropic.Anthropic().messages.create(
            model="claude-sonnet-4-5", max_tokens=1024, tools=tools, messages=messages, stream=True
        ):
            if event.type == "content_block_start" and event.content_block.type == "tool_use":
                names[event.index] = event.content_block.name
                calls[names[event.index]] = Call(event.content_block.id, event.content_block.name)
            elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                calls[names[event.index]].arguments += event.delta.partial_json
            elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                text += event.delta.text
            elif event.type == "message_delta":
                stop = event.delta.stop_reason
        print(f"  {text}")
        if stop != "tool_use":
            return print("    (the reply was cut short)") if stop == "max_tokens" else None
        said = [{"type": "text", "text": text}] if text else []
        used = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
            for call in calls.values()
        ]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": run(call.name, call.arguments)}
            for call in calls.values()
        ]
        messages += [{"role": "assistant", "content": said + used}, {"role": "user", "content": results}]


def ask_gpt(question: str) -> None:
    """Answer with OpenAI's chat completions API."""
    tools: list[Any] = [
        {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
        for name, (_, text, schema) in TOOLS.items()
    ]
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        calls: dict[str, Call] = {}
        names: dict[int, str] = {}
        text, stop = "", None
        for chunk in openai.OpenAI().chat.completions.create(
            model="gpt-5.1", tools=tools, messages=messages, stream=True
        ):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                stop = choice.finish_reason or stop
                for piece in choice.delta.tool_calls or ():
                    if piece.id:
                        names[piece.index] = piece.function.name
                        calls[names[piece.index]] = Call(piece.id, piece.function.name)
                    calls[names[piece.index]].arguments += piece.function.arguments or ""
        if text:
            print(f"  {text}")
        if stop != "tool_calls":
            return print("    (the reply was cut short)") if stop == "length" else None
        used = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls.values()
        ]
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": run(call.name, call.arguments)}
            for call in calls.values()
        ]
        messages += [{"role": "assistant", "content": text or None, "tool_calls": used}, *results]


def ask_gpt_responses(question: str) -> None:
    """Answer with OpenAI's responses API."""
    tools: list[Any] = [
        {"type": "function", "name": name, "description": text, "parameters": schema, "strict": False}
        for name, (_, text, schema) in TOOLS.items()
    ]
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        calls: dict[str, Call] = {}
        names: dict[int, str] = {}
        text = ""
        for event in openai.OpenAI().responses.create(model="gpt-5.1", tools=tools, input=messages, stream=True):
            if event.type == "response.output_item.added" and event.item.type == "function_call":
                names[event.output_index] = event.item.name
                calls[names[event.output_index]] = Call(event.item.call_id, event.item.name)
            elif event.type == "response.function_call_arguments.delta":
                calls[names[event.output_index]].arguments += event.delta
            elif event.type == "response.output_text.delta":
                text += event.delta
        if text:
            print(f"  {text}")
        if not calls:
            return
        for call in calls.values():
            used = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
            result = run(call.name, call.arguments)
            messages += [used, {"type": "function_call_output", "call_id": call.id, "output": result}]


QUESTIONS: list[tuple[Callable[[str], None], str]] = [
    (ask_claude, "Where is order 4821, and is Ines Duarte still a gold customer?"),
    (ask_claude, "Show me my refunded orders from March and my open ones."),
    (ask_gpt, "Is order 4790 on its way, and when did Luis Moreno order last?"),
    (ask_claude, "Please open a return for order 4790, with a note of what happened."),
    (ask_gpt_responses, "Ask the carrier where the parcel of order 4790 is."),
]


def main() -> None:
    for ask, question in QUESTIONS:
        print(f"> {question}", flush=True)
        try:
            ask(question)
        except Exception as error:  # noqa: BLE001  (an assistant that says sorry and goes on)
            print(f"    (sorry, that did not work: {type(error).__name__})")


if __name__ == "__main__":
    main()
