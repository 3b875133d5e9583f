"""Spans that an exporter did not take, until it does: the SDK's processors forget a batch that could not be sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

__all__ = ["Kept", "keep"]


class Kept:
    """What one exporter did not take. Whoever makes the spans keeps it within bounds, by making no more of them."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._send = exporter.export
        self._left: deque[Sequence[ReadableSpan]] = deque()
        exporter.export = self.export  # type: ignore[method-assign]  # its processor looks it up for each batch

    @property
    def any(self) -> bool:
        return bool(self._left)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send them, or keep them."""
        if self._is_sent(spans):
            return SpanExportResult.SUCCESS
        self._left.append(spans)
        return SpanExportResult.FAILURE

    def send_again(self) -> None:
        """Send what is kept, oldest first, as far as the exporter takes it."""
        while self._left and self._is_sent(self._left[0]):
            self._left.popleft()

    def _is_sent(self, spans: Sequence[ReadableSpan]) -> bool:
        try:
            return self._send(spans) is not SpanExportResult.FAILURE  # some return nothing
        except Exception:
            return False


def keep(provider: object) -> list[Kept]:
    """From now on, keep what an exporter of this provider does not take. None is found where the provider has none."""
    processors = getattr(getattr(provider, "_active_span_processor", None), "_span_processors", ())
    exporters = (getattr(processor, "span_exporter", None) for processor in processors)
    return [Kept(exporter) for exporter in exporters if exporter is not None]
