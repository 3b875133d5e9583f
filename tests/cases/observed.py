"""What the package told OpenTelemetry: the announced calls as spans, and everything that left the process."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs import export as logs_export
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import otel_toolcalls
from tests.cases.replay import walk

# The names are spelled here on purpose: these tests hold the package to the telemetry contract, not to its constants.
OPERATION = "gen_ai.operation.name"
ORDINAL = "otel_toolcalls.call.ordinal"
KEY = "otel_toolcalls.call.key"


class _Account(SpanProcessor):
    """Every span that was started, and how often it was ended."""

    def __init__(self) -> None:
        self.started: list[Span] = []
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)


class _Complaints(logging.Handler):
    """What OpenTelemetry's and the package's own loggers said; a clean run says nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def texts(self) -> list[str]:
        return [f"{record.name}: {record.getMessage()}" for record in self.records]


class Observed:
    """Providers that keep everything in memory, and questions about what they were given."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._account = _Account()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(self._account)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._metrics = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._metrics])
        # Renamed in the SDK on the way; the older name is gone from the newest.
        name = next(name for name in ("InMemoryLogRecordExporter", "InMemoryLogExporter") if hasattr(logs_export, name))
        self._logs = getattr(logs_export, name)()
        self.logger_provider = LoggerProvider()
        self.logger_provider.add_log_record_processor(logs_export.SimpleLogRecordProcessor(self._logs))
        self._complaints = _Complaints()

    @property
    def providers(self) -> dict[str, Any]:
        """Keyword arguments for ``instrument``."""
        return {
            "tracer_provider": self.tracer_provider,
            "meter_provider": self.meter_provider,
            "logger_provider": self.logger_provider,
        }

    @contextmanager
    def instrumented(self, **settings: Any) -> Iterator[None]:
        """The package is on, and reports here, for the length of the block."""
        loggers = [logging.getLogger(name) for name in ("otel_toolcalls", "opentelemetry")]
        for logger in loggers:
            logger.addHandler(self._complaints)
        otel_toolcalls.instrument(**self.providers, **settings)
        try:
            yield
        finally:
            otel_toolcalls.uninstrument()
            for logger in loggers:
                logger.removeHandler(self._complaints)

    # ---- spans ------------------------------------------------------------------------------------------------------

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def of(self, operation: str) -> list[ReadableSpan]:
        """The exported spans of one operation, in the order in which they were started."""
        found = [span for span in self.spans if span.attributes.get(OPERATION) == operation]
        return sorted(found, key=lambda span: (span.start_time, span.attributes.get(ORDINAL, 0)))

    @property
    def calls(self) -> list[ReadableSpan]:
        """The announced calls; of one turn, in order of announcement."""
        return [span for span in self.of("announce_tool") if KEY in span.attributes]

    @property
    def violations(self) -> list[ReadableSpan]:
        """What contradicted the protocol where no call was concerned."""
        return [span for span in self.of("announce_tool") if KEY not in span.attributes]

    def started(self, operation: str) -> list[Span]:
        """The spans of one operation that were started, whether they have ended or not."""
        return [span for span in self._account.started if span.attributes.get(OPERATION) == operation]

    @property
    def turns(self) -> list[ReadableSpan]:
        return self.of("chat")

    @property
    def call(self) -> ReadableSpan:
        """The one announced call."""
        (call,) = self.calls
        return call

    @property
    def complaints(self) -> list[str]:
        """Warnings and errors of OpenTelemetry's and the package's loggers."""
        return self._complaints.texts

    @property
    def all_ended(self) -> bool:
        """Each span that was started was ended, once."""
        return sorted(map(_span_id, self._account.started)) == sorted(map(_span_id, self._account.ended))

    def open(self, operation: str) -> list[Span]:
        """The spans of one operation that were started and have not ended, or ended more than once."""
        ended = Counter(map(_span_id, self._account.ended))
        return [span for span in self.started(operation) if ended[_span_id(span)] != 1]

    def forget(self) -> None:
        """What was seen so far is not counted any more."""
        self._account.started.clear()
        self._account.ended.clear()
        self._spans.clear()

    def check_ends(self) -> None:
        """Each span was started once, ended once and exported, and no span ends before it starts."""
        assert self.all_ended, "started but not ended, or ended more than once"
        assert sorted(map(_span_id, self.spans)) == sorted(map(_span_id, self._account.ended))
        for span in self.spans:
            assert span.start_time <= span.end_time, span.name

    def check_conservation(self) -> None:
        """On every turn of ours announced = completed + failed, and these are the calls that its spans show."""
        for turn in self.turns:
            counts = [turn.attributes[f"otel_toolcalls.turn.{what}"] for what in ("announced", "completed", "failed")]
            mine = [call for call in self.calls if call.parent.span_id == turn.context.span_id]
            completed = [call for call in mine if call.attributes["otel_toolcalls.call.outcome"] == "completed"]
            assert counts == [len(mine), len(completed), len(mine) - len(completed)]
            for call in completed:
                assert call.status.status_code is StatusCode.UNSET
                assert "error.type" not in call.attributes
            for call in mine:
                if call not in completed:
                    assert call.status.status_code is StatusCode.ERROR
                    assert call.attributes["error.type"]

    def check(self) -> None:
        """What holds after every test: ends, conservation, and nobody had to complain."""
        self.check_ends()
        self.check_conservation()
        assert self.complaints == []

    # ---- metrics ----------------------------------------------------------------------------------------------------

    def metric(self, name: str) -> dict[tuple[tuple[str, Any], ...], float]:
        """The points of one counter by their attributes; empty where it was never used."""
        data = self._metrics.get_metrics_data()
        return {
            tuple(sorted(point.attributes.items())): point.value
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        }

    def total(self, name: str, **where: Any) -> float:
        """The sum of a counter over the points whose attributes hold ``where`` (dots written as ``__``)."""
        wanted = {key.replace("__", "."): value for key, value in where.items()}
        return sum(
            value for attributes, value in self.metric(name).items() if wanted.items() <= dict(attributes).items()
        )

    # ---- all of it --------------------------------------------------------------------------------------------------

    def everything(self) -> str:
        """Every text in every exported field of every signal, each on its own line."""
        data = self._metrics.get_metrics_data()
        exported = [span.to_json() for span in self.spans]
        exported += [record.to_json() for record in self._logs.get_finished_logs()]
        exported += [data.to_json()] if data else []
        texts = [str(text) for document in exported for text in _texts(json.loads(document))]
        return "\n".join(texts + self.complaints)

    def close(self) -> None:
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()
        self.logger_provider.shutdown()


def _span_id(span: ReadableSpan) -> int:
    return int(span.context.span_id)


def _texts(document: Any) -> Iterator[Any]:
    yield from walk(document)
    if isinstance(document, dict):
        yield from document
        for value in document.values():
            yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from _texts(value)


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})
