"""A long-running app that Prometheus scrapes itself: a model announces two calls, and the app answers one of them.

``scraped.py PORT``: metrics at PORT. It prints ``waiting`` when the calls wait, and answers when a line comes in.
"""

from __future__ import annotations

import sys

import anthropic
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

import otel_toolcalls

TOOLS = [{"name": "search_orders", "description": "Find orders.", "input_schema": {"type": "object"}}]


def tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    start_http_server(int(sys.argv[1]), "127.0.0.1")
    otel_toolcalls.instrument(meter_provider=MeterProvider([PrometheusMetricReader()]), sibling_grace=0.1)
    client = anthropic.Anthropic()
    settings = {"model": "claude-sonnet-4-5", "max_tokens": 1024, "tools": TOOLS}
    question = {"role": "user", "content": "Show me my refunded orders from March and my open ones."}
    with client.messages.stream(messages=[question], **settings) as stream:
        reply = stream.get_final_message()
    tell("waiting")
    sys.stdin.readline()
    calls = [block for block in reply.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": calls[-1].id, "content": "[]"}
    said = {"role": "assistant", "content": [block.model_dump() for block in calls[-1:]]}
    with client.messages.stream(messages=[question, said, {"role": "user", "content": [result]}], **settings) as stream:
        stream.get_final_message()
    tell("answered")
    sys.stdin.readline()


if __name__ == "__main__":
    main()
