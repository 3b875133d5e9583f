"""Traceloop (OpenLLMetry). It records content unless told otherwise."""

from __future__ import annotations

from benchmarks.telemetry import Telemetry

PACKAGES = ["opentelemetry-instrumentation-openai", "opentelemetry-instrumentation-anthropic"]
VARIANTS: dict[str, dict[str, str]] = {
    "traceloop": {"TRACELOOP_TRACE_CONTENT": "false"},
    "traceloop, content": {"TRACELOOP_TRACE_CONTENT": "true"},
}


def instrument(telemetry: Telemetry, variant: str) -> None:
    from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    for instrumentor in (OpenAIInstrumentor(), AnthropicInstrumentor()):
        instrumentor.instrument(
            tracer_provider=telemetry.tracer_provider,
            meter_provider=telemetry.meter_provider,
            logger_provider=telemetry.logger_provider,
        )
