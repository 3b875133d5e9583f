"""The Jaeger that the other tests rely on: what goes in by either OTLP transport comes out whole."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, format_span_id, format_trace_id

from tests.e2e.backends import Jaeger


def exporter(jaeger: Jaeger, transport: str) -> SpanExporter:
    if transport == "grpc":
        grpc = pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
        return grpc.OTLPSpanExporter(endpoint=jaeger.otlp_grpc, insecure=True)
    http = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    return http.OTLPSpanExporter(endpoint=f"{jaeger.otlp_http}/v1/traces")


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_a_failed_span_is_found_by_attribute_with_its_parent_link_and_status(jaeger: Jaeger, transport: str) -> None:
    service = f"fixture-{transport}"
    provider = TracerProvider(resource=Resource({"service.name": service}))
    provider.add_span_processor(SimpleSpanProcessor(exporter(jaeger, transport)))
    tracer = provider.get_tracer("tests")
    elsewhere = SpanContext(trace_id=0xA1, span_id=0xB2, is_remote=True)
    with tracer.start_as_current_span("turn", kind=SpanKind.CLIENT) as parent:
        attributes = {"tests.outcome": "abandoned", "tests.index": 0, "tests.anomalies": ["a", "b"]}
        link = Link(elsewhere, {"tests.link": "announced_by"})
        child = tracer.start_span("call", attributes=attributes, links=[link])
        child.set_status(Status(StatusCode.ERROR, "closed early"))
        child.end()
    provider.shutdown()

    trace_id = format_trace_id(parent.get_span_context().trace_id)
    assert jaeger.find(service, {"tests.outcome": "abandoned", "tests.index": "0"}) == [trace_id]
    assert jaeger.trace_ids(service, {"tests.outcome": "completed"}) == []
    turn, call = jaeger.spans(trace_id)
    assert (turn.name, turn.parent_id, turn.status) == ("turn", "", "UNSET")
    assert (call.name, call.parent_id) == ("call", turn.span_id)
    assert (call.status, call.message) == ("ERROR", "closed early")
    assert call.attributes.items() >= attributes.items()
    (found,) = call.links
    assert (found.trace_id, found.span_id) == (format_trace_id(0xA1), format_span_id(0xB2))
    assert found.attributes == {"tests.link": "announced_by"}
    assert turn.start <= call.start <= call.end <= turn.end
