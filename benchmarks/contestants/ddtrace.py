"""Datadog's tracer with its LLM observability, writing nowhere."""

from __future__ import annotations

from benchmarks.telemetry import Telemetry

PACKAGES = ["ddtrace"]
VARIANTS: dict[str, dict[str, str]] = {
    "ddtrace": {
        "DD_TRACE_ENABLED": "true",
        "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
        "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    }
}
FOREIGN = True
"""Its spans are not OpenTelemetry's: what they say is not read."""


def instrument(telemetry: Telemetry, variant: str) -> None:
    import ddtrace
    from ddtrace._trace.processor import TraceProcessor

    class Drop(TraceProcessor):
        def process_trace(self, trace: object) -> None:
            return None

    ddtrace.tracer.configure(trace_processors=[Drop()])
    ddtrace.patch(openai=True, anthropic=True)
