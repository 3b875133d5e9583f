"""otel-toolcalls itself: a span per announced call, and the ledger."""

from __future__ import annotations

import functools

import otel_toolcalls
from benchmarks.telemetry import Telemetry

PACKAGES = ["."]
VARIANTS: dict[str, dict[str, str]] = {
    "ours": {},
    "ours, content": {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"},
}


def instrument(telemetry: Telemetry, variant: str) -> None:
    otel_toolcalls.instrument(
        tracer_provider=telemetry.tracer_provider,
        meter_provider=telemetry.meter_provider,
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
