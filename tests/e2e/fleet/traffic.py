"""What is sent through the programs: the demo's apps, an app that uses ``dispatch()``, and one trace made by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link, set_span_in_context

import otel_toolcalls.cli
from otel_toolcalls import conventions as c
from otel_toolcalls.cli.model_server import ModelServer

DEMO = "otel-toolcalls-demo"
"""The demo's service."""
TOOL = "search_orders"
"""The tool of which the demo loses a call."""
STREAMS = Path(otel_toolcalls.cli.__file__).parent / "streams"
MADE = "made-by-hand"
"""The service of the trace made by hand."""
SECRETS = {
    c.TOOL_CALL_ARGUMENTS: '{"card": "none of your business"}',
    c.TOOL_CALL_RESULT: "what the tool said",
    "gen_ai.input.messages": "what the user said",
    "gen_ai.output.messages": "what the model said",
    "gen_ai.system_instructions": "what the company said",
    "input.value": "openinference's word for it",
    "llm.prompts": "an older word for it",
    "note": "write to ines.duarte@example.com, key sk-abcdefghijklmnopqrstuvwx, card 4111111111111111",
}
"""What its turn carries and must not pass."""


def run_demo(otlp: str, folder: Path, *options: str) -> None:
    """The demo's app under ``otel-toolcalls run``, sending everything to the OTLP endpoint (HTTP)."""
    command = [sys.executable, "-m", "otel_toolcalls.cli", "demo", "--otlp", otlp, *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run_dispatching(otlp: str, folder: Path) -> None:
    """The app that uses ``dispatch()``, likewise."""
    app = Path(__file__).parent / "apps" / "dispatching.py"
    command = [sys.executable, "-m", "otel_toolcalls.cli", "run", "--otlp", otlp]
    with ModelServer() as server:
        server.reply((STREAMS / "same_tool.sse").read_bytes())
        env = {**os.environ, "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "none-needed"}
        command += ["--service", "dispatching", "--", sys.executable, str(app)]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def send(endpoint: str) -> str:
    """One trace: a turn with a call that ran, a call that nobody ran, and everything that must not pass."""
    provider = TracerProvider(resource=Resource.create({"service.name": MADE}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint, insecure=True)))
    tracer = provider.get_tracer(c.SCOPE)
    called = {c.OPERATION_NAME: c.OP_ANNOUNCE, c.CALL_OUTCOME: "completed", c.CALL_KIND: "client", c.TOOL_NAME: "pay"}
    with tracer.start_as_current_span(f"{c.OP_CHAT} m") as turn:
        turn.set_attributes(SECRETS)
        ran, lost = (
            tracer.start_span(f"{c.OP_ANNOUNCE} pay", attributes={**called, c.CALL_KEY: key}) for key in ("ran", "lost")
        )
        ran.end()
        lost.end()
        link = Link(ran.get_span_context(), {c.LINK_TYPE: c.LINK_ANNOUNCED_BY, c.CALL_KEY: "ran"})
        tracer.start_span(f"{c.OP_EXECUTE} pay", links=[link], attributes={c.OPERATION_NAME: c.OP_EXECUTE}).end()
    judged = {c.OPERATION_NAME: c.OP_AWAIT, c.CALL_KEY: "lost", c.UNDISPATCHED_REASON: c.LostReason.DEADLINE.value}
    tracer.start_span(f"{c.OP_AWAIT} pay", context=set_span_in_context(lost), attributes=judged).end()
    provider.shutdown()
    return f"{turn.get_span_context().trace_id:032x}"
