"""An app that tells when it runs a tool: the last lines that a user may add, and what its model calls twice."""

from __future__ import annotations

import time

import anthropic

import otel_toolcalls

TOOLS = [{"name": "search_orders", "description": "Find orders.", "input_schema": {"type": "object"}}]


def main() -> None:
    question = {"role": "user", "content": "Show me my refunded orders from March and my open ones."}
    events = anthropic.Anthropic().messages.create(
        model="claude-sonnet-4-5", max_tokens=1024, tools=TOOLS, messages=[question], stream=True
    )
    started = [event.content_block for event in events if event.type == "content_block_start"]
    ids = [block.id for block in started if block.type == "tool_use"]
    for call_id in ids:
        time.sleep(0.05)
        with otel_toolcalls.dispatch(call_id, name="search_orders"):
            time.sleep(0.01)


if __name__ == "__main__":
    main()
