"""OpenInference (Arize). It records content unless told otherwise."""

from __future__ import annotations

from benchmarks.telemetry import Telemetry

PACKAGES = ["openinference-instrumentation-openai", "openinference-instrumentation-anthropic"]
_HIDE = {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"}
VARIANTS: dict[str, dict[str, str]] = {"openinference": _HIDE, "openinference, content": {}}


def instrument(telemetry: Telemetry, variant: str) -> None:
    from openinference.instrumentation.anthropic import AnthropicInstrumentor
    from openinference.instrumentation.openai import OpenAIInstrumentor

    for instrumentor in (OpenAIInstrumentor(), AnthropicInstrumentor()):
        instrumentor.instrument(tracer_provider=telemetry.tracer_provider)
