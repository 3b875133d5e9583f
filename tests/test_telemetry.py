"""What the facts of a turn become: spans, metrics, and content only where it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind, StatusCode

from otel_toolcalls.config import Settings
from otel_toolcalls.conventions import Kind, ToolType
from otel_toolcalls.telemetry import Telemetry
from otel_toolcalls.turn import Request, Turn

MARKER = "s3cret-marker"
ARGUMENTS = json.dumps({"note": MARKER})


class Seeing(Sampler):
    """Keeps what a sampler is shown of each span: nothing that comes later."""

    def __init__(self, decision: Decision) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._decision = decision

    def should_sample(self, parent_context: Any, trace_id: int, name: str, *rest: Any, **more: Any) -> SamplingResult:
        attributes = more.get("attributes", rest[1] if len(rest) > 1 else None)
        self.seen.append((name, dict(attributes or {})))
        return SamplingResult(self._decision, attributes)

    def get_description(self) -> str:
        return "Seeing"


class Rig:
    """Telemetry in memory, and a turn to tell it of."""

    def __init__(self, *, decision: Decision = Decision.RECORD_AND_SAMPLE, **settings: Any) -> None:
        self.sampler = Seeing(decision)
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=self.sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("app")
        self._reader = InMemoryMetricReader()
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(Settings(**settings), provider, meters)

    def turn(self, **request: Any) -> Turn:
        made = Request("openai", "asked", frozenset({"known"}), **request)
        self.telemetry.request(made)
        turn = Turn(made, (self.telemetry,))
        self.telemetry.begun(turn)
        return turn

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def everything(self) -> str:
        data = self._reader.get_metrics_data()
        return "\n".join([*(span.to_json() for span in self.spans), data.to_json() if data else ""])


def one_call(turn: Turn, name: str | None = "known", arguments: str = ARGUMENTS, **how: Any) -> None:
    turn.announce(0, "call_1", name, index=0, **how)
    turn.append(0, arguments)
    turn.close(0)
    turn.finish("tool_calls")
    turn.end("stream_ended")


def test_a_completed_call_is_a_child_of_its_turn_with_every_attribute() -> None:
    rig = Rig()
    turn = rig.turn()
    turn.response("resp_1", "said")
    one_call(turn)
    call, chat = rig.span("announce_tool known"), rig.span("chat asked")
    assert chat.kind is SpanKind.CLIENT
    assert call.kind is SpanKind.INTERNAL
    assert call.parent.span_id == chat.context.span_id
    assert call.status.status_code is chat.status.status_code is StatusCode.UNSET
    attributes = dict(call.attributes)
    assert attributes.pop("otel_toolcalls.call.key").endswith("-0")
    assert attributes == {
        "gen_ai.operation.name": "announce_tool",
        "gen_ai.tool.name": "known",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "asked",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.model": "said",
        "otel_toolcalls.call.index": 0,
        "otel_toolcalls.call.ordinal": 0,
        "otel_toolcalls.call.kind": "client",
        "otel_toolcalls.call.outcome": "completed",
        "otel_toolcalls.call.arguments.size": len(ARGUMENTS),
        "otel_toolcalls.call.arguments.fragments": 1,
    }
    counts = [chat.attributes[f"otel_toolcalls.turn.{what}"] for what in ("announced", "completed", "failed")]
    assert counts == [1, 1, 0]


def test_a_sampler_sees_what_names_the_call() -> None:
    rig = Rig(decision=Decision.DROP)
    one_call(rig.turn(), kind=Kind.SERVER, tool_type=ToolType.EXTENSION)
    (name, seen) = rig.sampler.seen[1]
    assert name == "announce_tool known"
    assert seen["gen_ai.operation.name"] == "announce_tool"
    assert (seen["gen_ai.tool.name"], seen["gen_ai.tool.type"]) == ("known", "extension")
    assert (seen["gen_ai.tool.call.id"], seen["otel_toolcalls.call.kind"]) == ("call_1", "server")
    assert rig.spans == ()
    assert [point.value for point in rig.points("otel_toolcalls.finished.calls")] == [1], "metrics are not sampled"


@pytest.mark.parametrize(
    ("give_up", "outcome", "error_type"),
    [
        (lambda turn: turn.end("closed_early"), "abandoned", "closed_early"),
        (lambda turn: (turn.finish("length"), turn.end("stream_ended")), "truncated", "length"),
        (lambda turn: (turn.close(0), turn.end("stream_ended")), "invalid", "invalid_arguments"),
    ],
    ids=["abandoned", "truncated", "invalid"],
)
def test_a_failed_call_is_an_error_with_its_reason(
    give_up: Callable[[Turn], Any], outcome: str, error_type: str
) -> None:
    rig = Rig()
    turn = rig.turn()
    turn.announce(0, "call_1", "known")
    turn.append(0, '{"cut')
    give_up(turn)
    call = rig.span("announce_tool known")
    assert call.status.status_code is StatusCode.ERROR
    assert call.status.description is None
    assert (call.attributes["otel_toolcalls.call.outcome"], call.attributes["error.type"]) == (outcome, error_type)
    (point,) = rig.points("otel_toolcalls.finished.calls")
    assert dict(point.attributes) == {
        "gen_ai.tool.name": "known",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "asked",
        "otel_toolcalls.call.kind": "client",
        "otel_toolcalls.call.outcome": outcome,
        "error.type": error_type,
    }


def test_a_violation_without_a_call_is_a_span_of_no_length() -> None:
    rig = Rig()
    turn = rig.turn()
    turn.append(3, "x")
    turn.append(3, "x")
    turn.end("stream_ended")
    span = rig.span("announce_tool")
    assert span.start_time == span.end_time
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "protocol_violation"
    assert span.parent.span_id == rig.span("chat asked").context.span_id
    assert [point.value for point in rig.points("otel_toolcalls.violations")] == [1]


def test_a_name_that_comes_late_names_the_span_and_is_counted_under_it() -> None:
    rig = Rig()
    turn = rig.turn()
    call = turn.announce(0, None, None)
    assert call is not None
    turn.rename(call, name="known", call_id="call_1")
    turn.append(0, "{}")
    turn.close(0)
    turn.end("stream_ended")
    assert rig.span("announce_tool known").attributes["gen_ai.tool.call.id"] == "call_1"
    (point,) = rig.points("otel_toolcalls.announced.calls")
    assert (point.value, point.attributes["gen_ai.tool.name"]) == (1, "known")


def test_a_name_that_the_request_did_not_list_is_on_no_metric() -> None:
    rig = Rig()
    one_call(rig.turn(), name="invented")
    assert rig.span("announce_tool invented").attributes["gen_ai.tool.name"] == "invented"
    for metric in ("announced.calls", "finished.calls", "announce.duration", "arguments.size"):
        names = {point.attributes["gen_ai.tool.name"] for point in rig.points(f"otel_toolcalls.{metric}")}
        assert names == {"_OTHER"}


def test_durations_have_the_buckets_of_the_conventions() -> None:
    rig = Rig()
    one_call(rig.turn())
    for metric in ("otel_toolcalls.announce.duration", "gen_ai.client.inference.duration"):
        (point,) = rig.points(metric)
        assert (point.explicit_bounds[0], point.explicit_bounds[-1], point.count) == (0.01, 81.92, 1)
    (size,) = rig.points("otel_toolcalls.arguments.size")
    assert size.sum == len(ARGUMENTS)


# ---- content --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["no_content", "event_only"])
def test_arguments_are_nowhere_where_spans_may_not_carry_them(mode: str) -> None:
    rig = Rig(capture_content=mode)
    one_call(rig.turn())
    turn = rig.turn()
    turn.announce(0, "call_2", "known")
    turn.append(0, f'{{"cut": "{MARKER}')
    turn.announce(0, "call_3", "known")
    turn.append(9, MARKER)
    turn.end("stream_ended")
    assert rig.everything()
    assert MARKER not in rig.everything()


@pytest.mark.parametrize("mode", ["span_only", "span_and_event"])
def test_arguments_are_on_the_span_where_they_may_be(mode: str) -> None:
    rig = Rig(capture_content=mode)
    one_call(rig.turn())
    attributes = rig.span("announce_tool known").attributes
    assert attributes["gen_ai.tool.call.arguments"] == ARGUMENTS
    assert "otel_toolcalls.call.arguments.truncated" not in attributes


def test_captured_arguments_are_cut_at_whole_characters_and_say_so() -> None:
    rig = Rig(capture_content="span_only", content_limit=4)
    one_call(rig.turn(), arguments='"aéé"')
    attributes = rig.span("announce_tool known").attributes
    assert attributes["gen_ai.tool.call.arguments"] == '"aé'
    assert attributes["otel_toolcalls.call.arguments.truncated"] is True
    assert attributes["otel_toolcalls.call.arguments.size"] == len('"aéé"'.encode())


def test_arguments_pass_through_the_redaction_first() -> None:
    given: list[tuple[str, str]] = []

    def redact(tool: str, text: str) -> str:
        given.append((tool, text))
        return text.replace(MARKER, "***")

    rig = Rig(capture_content="span_only", redact=redact)
    one_call(rig.turn())
    assert given == [("known", ARGUMENTS)]
    assert rig.span("announce_tool known").attributes["gen_ai.tool.call.arguments"] == '{"note": "***"}'


def broken(tool: str, text: str) -> str:
    raise RuntimeError(f"cannot redact {tool}")


@pytest.mark.parametrize("redact", [broken, lambda tool, text: None], ids=["raises", "returns no text"])
def test_what_could_not_be_redacted_does_not_leave_and_the_span_ends(redact: Any) -> None:
    rig = Rig(capture_content="span_only", redact=redact)
    one_call(rig.turn())
    call = rig.span("announce_tool known")
    assert call.attributes["otel_toolcalls.call.outcome"] == "completed"
    assert MARKER not in rig.everything()


@pytest.mark.parametrize("index", [2**63, -(2**63) - 1])
def test_an_index_that_no_attribute_can_hold_is_left_out(index: int) -> None:
    rig = Rig()
    turn = rig.turn()
    turn.announce(index, "call_1", "known", index=index)
    turn.close(index)
    turn.append(index, "too late")
    turn.end("stream_ended")
    assert [span.attributes.get("otel_toolcalls.call.index") for span in rig.spans[:2]] == [None, None]


def test_half_a_surrogate_pair_leaves_in_no_attribute() -> None:
    rig = Rig(capture_content="span_only")
    turn = rig.turn()
    turn.response("resp_\ud800", "model-\udfff")
    turn.announce(0, "call_1", "known", index=0)
    turn.append(0, '{"city": "\ud800"}')
    turn.close(0)
    turn.end("stream_ended")
    texts = [value for span in rig.spans for value in span.attributes.values() if isinstance(value, str)]
    assert [text for text in texts if text.encode("utf-8", "replace").decode() != text] == []
    assert any("resp_?" in text for text in texts)
