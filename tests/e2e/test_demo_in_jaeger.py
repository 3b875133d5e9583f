"""The demo in the real Jaeger, over both OTLP transports: each loss is found by its tags, in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.backends import Jaeger, Span

ROOT = Path(__file__).parents[2]
SERVICE = "otel-toolcalls-demo"


@pytest.fixture(scope="module", params=["grpc", "http/protobuf"])
def shown(request: pytest.FixtureRequest, jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Jaeger:
    """One run of the demo, sent there."""
    endpoint = jaeger.otlp_grpc if request.param == "grpc" else jaeger.otlp_http
    subprocess.run(
        [sys.executable, "-m", "otel_toolcalls.cli", "demo", "--otlp", endpoint, "--protocol", request.param],
        cwd=tmp_path_factory.mktemp("demo"),
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        capture_output=True,
        timeout=120,
        check=True,
    )
    return jaeger


def found(jaeger: Jaeger, **tags: str) -> tuple[Span, Span]:
    """The newest span with these tags, and its parent."""
    named = {f"otel_toolcalls.{name.replace('_', '.', 1)}" if "_" in name else name: tags[name] for name in tags}
    named = {("error.type" if name == "otel_toolcalls.error.type" else name): value for name, value in named.items()}
    spans = [span for trace in jaeger.find(SERVICE, named) for span in jaeger.spans(trace)]
    hits = [span for span in spans if all(str(span.attributes.get(name)) == named[name] for name in named)]
    newest = max(hits, key=lambda span: span.start)
    return newest, next(span for span in spans if span.span_id == newest.parent_id)


@pytest.mark.parametrize(
    ("outcome", "error_type", "tool"),
    [
        ("truncated", "length", "open_return"),
        ("abandoned", "openai.APIConnectionError", "message_carrier"),
    ],
)
def test_a_failed_call_is_found_by_its_outcome_and_by_its_error_under_its_turn(
    shown: Jaeger, outcome: str, error_type: str, tool: str
) -> None:
    call, turn = found(shown, call_outcome=outcome)
    assert found(shown, error_type=error_type)[0].attributes["gen_ai.tool.name"] == tool
    assert (call.name, call.status) == (f"announce_tool {tool}", "ERROR")
    assert call.attributes["error.type"] == error_type
    assert turn.name.startswith("chat ")
    assert turn.start <= call.start <= call.end <= turn.end


def test_a_lost_call_is_found_by_its_reason_under_its_announcement(shown: Jaeger) -> None:
    lost, announced = found(shown, undispatched_reason="siblings_answered")
    assert (lost.name, lost.status) == ("await_dispatch search_orders", "ERROR")
    assert announced.name == "announce_tool search_orders"
    assert announced.attributes["otel_toolcalls.call.outcome"] == "completed"
    assert lost.attributes["gen_ai.tool.call.id"] == announced.attributes["gen_ai.tool.call.id"]


def test_an_answered_call_is_linked_from_the_turn_that_answers_it(shown: Jaeger) -> None:
    call, _ = found(shown, call_outcome="completed")
    turns = [
        span for trace in shown.find(SERVICE, {"otel_toolcalls.turn.answered": "2"}) for span in shown.spans(trace)
    ]
    links = [link for turn in turns for link in turn.links]
    assert {link.attributes["otel_toolcalls.link.type"] for link in links} == {"answers"}
    keys = {link.attributes["otel_toolcalls.call.key"] for link in links}
    answered = [
        span
        for trace in shown.find(SERVICE, {"otel_toolcalls.call.outcome": "completed"})
        for span in shown.spans(trace)
        if span.attributes.get("otel_toolcalls.call.key") in keys
    ]
    assert {span.name for span in answered} >= {"announce_tool get_order", "announce_tool get_customer"}
    assert call.status == "UNSET"
