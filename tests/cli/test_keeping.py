"""What an exporter did not take is kept; what it took is not sent again, whatever it returns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from otel_toolcalls.cli.keeping import Kept, keep


class Answering(SpanExporter):
    """Answers what it is told to, or raises it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.sent: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.sent += [span.name for span in spans]
        return self.answer  # type: ignore[return-value]


def kept_after_one_span(exporter: SpanExporter) -> Kept:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    (kept,) = keep(provider)
    provider.get_tracer("test").start_span("report").end()
    return kept


@pytest.mark.parametrize("answer", [SpanExportResult.SUCCESS, None])
def test_what_was_taken_is_sent_once(answer: object) -> None:
    exporter = Answering(answer)
    kept = kept_after_one_span(exporter)
    assert not kept.any
    kept.send_again()
    assert exporter.sent == ["report"]


@pytest.mark.parametrize("answer", [SpanExportResult.FAILURE, OSError("no route to host")])
def test_what_was_not_taken_is_kept_until_it_is(answer: object) -> None:
    exporter = Answering(answer)
    kept = kept_after_one_span(exporter)
    assert kept.any
    exporter.sent.clear()
    exporter.answer = SpanExportResult.SUCCESS
    kept.send_again()
    assert exporter.sent == ["report"]
    assert not kept.any
