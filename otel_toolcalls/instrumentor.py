"""Switching it all on and off: what ``instrument()`` makes, and what it undoes."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from opentelemetry._logs import LoggerProvider
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from otel_toolcalls import config, guard
from otel_toolcalls.hooks import stainless
from otel_toolcalls.hooks.observation import collector
from otel_toolcalls.hooks.patching import Fact, Hook, Patches
from otel_toolcalls.runtime import Runtime
from otel_toolcalls.telemetry import Telemetry

__all__ = ["ToolCallsInstrumentor", "instrument", "report", "shutdown", "uninstrument"]

_HOOKS: tuple[Hook, ...] = stainless.HOOKS


class _Installation:
    """One ``instrument()``."""

    def __init__(self, settings: config.Settings, telemetry: Telemetry) -> None:
        self.runtime = Runtime(settings, (telemetry,), (telemetry,), telemetry.provider)
        self.patches = Patches(_HOOKS, self.runtime)


_lock = threading.Lock()
_current: _Installation | None = None


class ToolCallsInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # its base is not typed
    """What ``opentelemetry-instrument`` and OpenTelemetry's declarative configuration find by entry point."""

    configuration = config.Configuration
    """The settings as the declarative configuration gives them."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """None is required: each SDK is observed where the app has it."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        global _current
        providers = {name: kwargs.pop(name, None) for name in ("tracer_provider", "meter_provider", "logger_provider")}
        settings = config.resolve(kwargs)
        with _lock:
            telemetry = Telemetry(settings, **providers)
            guard.listen(telemetry.internal_error)
            _current = _Installation(settings, telemetry)
            collector.watch()
            _current.patches.apply()

    def _uninstrument(self, **kwargs: Any) -> None:
        global _current
        with _lock:
            if _current is not None:
                _current.patches.undo()
                _current = None
            collector.unwatch()


def instrument(
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
    **settings: object,
) -> None:
    """Observe the model SDKs of this process from now on, also those already imported and clients already made.

    Without a provider the global one is used. ``settings`` are those of :class:`otel_toolcalls.config.Settings`, which
    can be given as ``OTEL_TOOLCALLS_*`` variables too. A second call while it is on changes nothing.

    Raises :class:`otel_toolcalls.config.SettingsError` for a setting that is unknown or malformed.
    """
    ToolCallsInstrumentor().instrument(
        tracer_provider=tracer_provider,
        meter_provider=meter_provider,
        logger_provider=logger_provider,
        **settings,
    )


def uninstrument() -> None:
    """Put every patched attribute back, to the identical object. Streams that are being read finish as they began."""
    instrumentor = ToolCallsInstrumentor()
    if instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.uninstrument()


def shutdown() -> None:
    """End each open turn, as interpreter exit would; for processes that end by a signal, which runs no ``atexit``."""
    installation = _current
    if installation is not None:
        installation.runtime.shutdown()


def report() -> list[Fact]:
    """The state of each patch target of each supported SDK."""
    installation = _current
    return installation.patches.report() if installation is not None else []
