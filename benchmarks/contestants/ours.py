"""otel-toolcalls itself: a span per announced call, and the ledger."""

from __future__ import annotations

import functools

from opentelemetry.metrics import NoOpMeterProvider

import otel_toolcalls
from benchmarks.telemetry import Telemetry

PACKAGES = ["."]
VARIANTS: dict[str, dict[str, str]] = {
    "ours": {},
    "ours, content": {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"},
}
PARTS: dict[str, dict[str, str]] = {
    "ours, no metrics": {},
    "ours, no ledger": {"OTEL_TOOLCALLS_LEDGER": "none"},
    "ours, neither": {"OTEL_TOOLCALLS_LEDGER": "none"},
}
"""Without one of its parts, to see what that costs."""
_SILENT = ("ours, no metrics", "ours, neither")


def instrument(telemetry: Telemetry, variant: str) -> None:
    otel_toolcalls.instrument(
        tracer_provider=telemetry.tracer_provider,
        meter_provider=NoOpMeterProvider() if variant in _SILENT else telemetry.meter_provider,
        logger_provider=telemetry.logger_provider,
    )


def settle() -> None:
    """The app has run its tools."""
    for entry in otel_toolcalls.pending():
        otel_toolcalls.acknowledge(entry.call_id, by="benchmark")


def settle_newest() -> None:
    """It has run those of the last streams, and leaves the others."""
    for entry in otel_toolcalls.pending()[_left_waiting() :]:
        otel_toolcalls.acknowledge(entry.call_id, by="benchmark")


@functools.cache
def _left_waiting() -> int:
    return len(otel_toolcalls.pending())
