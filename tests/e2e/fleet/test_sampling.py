"""Jaeger's tail sampling: what must be kept is kept at one per cent, and span metrics count what is dropped."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Tracer, format_trace_id, set_span_in_context

from otel_toolcalls import conventions as c
from otel_toolcalls.config import Settings
from tests.e2e.backends import Jaeger, eventually, free_ports
from tests.e2e.fleet.traffic import DEMO, TOOL, run_demo
from tools import gobuild

CONFIG = Path(__file__).parents[3] / "dashboards" / "jaeger" / "tail-sampling.yaml"
TURNS = 1000
LOST = range(TURNS - 50, TURNS, 10)
"""Among the last, so that a slow machine does not send their judgement after the decision."""
FAILED = {c.Outcome.ABANDONED: 250, c.Outcome.TRUNCATED: 450, c.Outcome.INVALID: 650}
DECISION_SECONDS = 5


@pytest.fixture(scope="module")
def sampling_jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Jaeger, str]]:
    try:
        binary = gobuild.build("jaeger")
    except gobuild.GoMissingError as missing:
        pytest.skip(f"no Jaeger to test against: {missing}")
    metrics = free_ports(1)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAEGER_PORT_METRICS", str(metrics))
        patch.setenv("JAEGER_DECISION_WAIT", f"{DECISION_SECONDS}s")
        patch.setenv("JAEGER_SPAN_METRICS_INTERVAL", "1s")
        with Jaeger.started(binary, tmp_path_factory.mktemp("sampling") / "log", CONFIG) as jaeger:
            yield jaeger, f"http://127.0.0.1:{metrics}/metrics"


def turn(tracer: Tracer, number: int) -> Span:
    """One turn with one call, which ends as ``FAILED`` says; returns the announced call."""
    outcome = next((outcome for outcome, at in FAILED.items() if at == number), c.Outcome.COMPLETED)
    with tracer.start_as_current_span(f"{c.OP_CHAT} m"):
        announced = tracer.start_span(f"{c.OP_ANNOUNCE} pay")
        announced.set_attributes({c.CALL_KEY: f"key-{number}", c.CALL_OUTCOME: outcome.value})
        announced.end()
    return announced


def judge(tracer: Tracer, announced: Span) -> None:
    """The span that says that nobody ran the call."""
    lost = tracer.start_span(f"{c.OP_AWAIT} pay", context=set_span_in_context(announced))
    lost.set_attribute(c.UNDISPATCHED_REASON, c.LostReason.DEADLINE.value)
    lost.end()


def test_a_lost_calls_trace_survives_sampling_at_one_per_cent(sampling_jaeger: tuple[Jaeger, str]) -> None:
    jaeger, metrics = sampling_jaeger
    provider = TracerProvider(resource=Resource.create({"service.name": "sampled"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(jaeger.otlp_grpc, insecure=True), TURNS * 4))
    tracer = provider.get_tracer(c.SCOPE)
    announced = [turn(tracer, number) for number in range(TURNS)]
    # The judgement comes last, when everything else of its trace has left.
    assert provider.force_flush()
    for number in LOST:
        judge(tracer, announced[number])
    provider.shutdown()

    kept = jaeger.find("sampled", {c.UNDISPATCHED_REASON: c.LostReason.DEADLINE.value}, count=len(LOST))
    assert sorted(kept) == sorted(trace_id(announced[number]) for number in LOST)
    for outcome, number in FAILED.items():
        assert jaeger.find("sampled", {c.CALL_OUTCOME: outcome.value}) == [trace_id(announced[number])]
    # One in a hundred of the others: 10 expected, and 50 is out of reach of chance.
    assert len(jaeger.trace_ids("sampled", {}, limit=TURNS)) < len(LOST) + len(FAILED) + 50
    # What was dropped was counted.
    eventually(lambda: counted(metrics) == TURNS, what=f"{TURNS} announcements counted at {metrics}")


def test_the_demos_lost_call_survives_too(sampling_jaeger: tuple[Jaeger, str], tmp_path: Path) -> None:
    jaeger, _ = sampling_jaeger
    run_demo(jaeger.otlp_http, tmp_path)
    (lost,) = jaeger.find(DEMO, {c.UNDISPATCHED_REASON: c.LostReason.SIBLINGS_ANSWERED.value})
    names = {span.name for span in jaeger.spans(lost)}
    assert {f"{c.OP_ANNOUNCE} {TOOL}", f"{c.OP_AWAIT} {TOOL}"} <= names
    assert any(name.startswith(c.OP_CHAT) for name in names)
    for outcome in (c.Outcome.ABANDONED, c.Outcome.TRUNCATED):
        assert jaeger.find(DEMO, {c.CALL_OUTCOME: outcome.value})


def test_the_decision_waits_for_longer_than_a_call_may_wait_for_its_dispatch() -> None:
    text = CONFIG.read_text()
    (default,) = re.findall(r"JAEGER_DECISION_WAIT:-(\d+)s", text)
    assert int(default) > Settings().dispatch_deadline + 10  # and for the judgement to be made, sent and received


def trace_id(span: Span) -> str:
    return format_trace_id(span.get_span_context().trace_id)


def counted(metrics: str) -> float:
    """The announcements in the span metrics."""
    with urllib.request.urlopen(metrics, timeout=10) as response:
        lines = response.read().decode().splitlines()
    calls = [line for line in lines if "_calls_total{" in line and f'span_name="{c.OP_ANNOUNCE} pay"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in calls)
