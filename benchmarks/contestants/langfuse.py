"""Langfuse's drop-in replacement of openai. It has none for Anthropic, and no switch for content."""

from __future__ import annotations

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.telemetry import Telemetry

PACKAGES = ["langfuse"]
VARIANTS: dict[str, dict[str, str]] = {"langfuse, content": {}}
SDKS = ("openai",)


class _Nowhere(InMemorySpanExporter):
    def export(self, spans: object) -> object:  # type: ignore[override]
        from opentelemetry.sdk.trace.export import SpanExportResult

        return SpanExportResult.SUCCESS


def instrument(telemetry: Telemetry, variant: str) -> None:
    from langfuse import Langfuse

    Langfuse(
        public_key="pk-none",
        secret_key="sk-none",
        base_url="http://127.0.0.1:9",
        tracer_provider=telemetry.tracer_provider,
        span_exporter=_Nowhere(),
    )
    import langfuse.openai  # noqa: F401 - importing it is what patches openai
