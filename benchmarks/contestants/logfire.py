"""Logfire (Pydantic). It has no switch for content."""

from __future__ import annotations

from benchmarks.telemetry import Telemetry

PACKAGES = ["logfire"]
VARIANTS: dict[str, dict[str, str]] = {"logfire, content": {}}
OWN_PROVIDERS = True


def instrument(telemetry: Telemetry, variant: str) -> None:
    import logfire

    logfire.configure(
        send_to_logfire=False, console=False, inspect_arguments=False, additional_span_processors=[telemetry.keeper]
    )
    logfire.instrument_openai()
    logfire.instrument_anthropic()
