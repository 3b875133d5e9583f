"""OpenLIT. It records content unless told otherwise."""

from __future__ import annotations

from benchmarks.telemetry import Telemetry

PACKAGES = ["openlit", "setuptools < 81"]  # it imports pkg_resources
VARIANTS: dict[str, dict[str, str]] = {"openlit": {}, "openlit, content": {}}


def instrument(telemetry: Telemetry, variant: str) -> None:
    import inspect

    import openlit

    known = inspect.signature(openlit.init).parameters
    switch = "capture_message_content" if "capture_message_content" in known else "trace_content"
    openlit.init(
        tracer=telemetry.tracer_provider.get_tracer("openlit"),
        meter=telemetry.meter_provider.get_meter("openlit"),
        **{switch: variant.endswith("content")},
    )
