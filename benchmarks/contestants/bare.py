"""The SDK alone."""

from __future__ import annotations

from benchmarks.telemetry import Telemetry

PACKAGES: list[str] = []
VARIANTS: dict[str, dict[str, str]] = {"bare": {}}


def instrument(telemetry: Telemetry, variant: str) -> None:
    """Nothing."""
