"""OpenTelemetry's own instrumentations: genai-openai and genai-anthropic."""

from __future__ import annotations

from benchmarks.telemetry import Telemetry

PACKAGES = ["opentelemetry-instrumentation-genai-openai", "opentelemetry-instrumentation-genai-anthropic"]
_CONTENT = {
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
}
VARIANTS: dict[str, dict[str, str]] = {"genai": {}, "genai, content": _CONTENT}


def instrument(telemetry: Telemetry, variant: str) -> None:
    from opentelemetry.instrumentation.genai.anthropic import AnthropicInstrumentor
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    for instrumentor in (OpenAIInstrumentor(), AnthropicInstrumentor()):
        instrumentor.instrument(
            tracer_provider=telemetry.tracer_provider,
            meter_provider=telemetry.meter_provider,
            logger_provider=telemetry.logger_provider,
        )
