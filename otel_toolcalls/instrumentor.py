"""Switching it all on and off: what ``instrument()`` makes, and what it undoes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from typing import Any

from opentelemetry._logs import LoggerProvider
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider, get_tracer_provider

from otel_toolcalls import config, guard
from otel_toolcalls.dispatch import ExecutionAdopter, activate, adopt_from
from otel_toolcalls.hooks import stainless
from otel_toolcalls.hooks.observation import collector
from otel_toolcalls.hooks.patching import Fact, Hook, Patches
from otel_toolcalls.ledger import Entry
from otel_toolcalls.ledger.account import MemoryAccount
from otel_toolcalls.ledger.book import Ledger
from otel_toolcalls.ledger.opening import open_store
from otel_toolcalls.runtime import Runtime
from otel_toolcalls.telemetry import Telemetry
from otel_toolcalls.worker import Worker

__all__ = ["ToolCallsInstrumentor", "instrument", "pending", "report", "shutdown", "uninstrument"]

_logger = logging.getLogger("otel_toolcalls")

_HOOKS: tuple[Hook, ...] = stainless.HOOKS


class _Installation:
    """One ``instrument()``."""

    def __init__(self, settings: config.Settings, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._worker = Worker(self._tick)
        self.ledger = _ledger(settings, telemetry, self._worker)
        self.runtime = Runtime(settings, telemetry, self.ledger, self._worker, self.watch_providers)
        self.patches = Patches(_HOOKS, self.runtime)
        self._watched: list[object] = []
        self._adopters: list[ExecutionAdopter] = []

    def start(self) -> None:
        guard.listen(self._telemetry.internal_error)
        activate(self.ledger, self._telemetry)
        collector.watch()
        self.watch_providers()
        self.patches.apply()

    def stop(self) -> None:
        self.patches.undo()
        collector.unwatch()
        activate(None, None)
        for adopter in self._adopters:
            adopter.retire()
        self.runtime.retire()

    def watch_providers(self) -> None:
        """Take other libraries' executions from the provider in use and the global one, which may come late."""
        if self.ledger is None:
            return
        for provider in (self._telemetry.provider(), get_tracer_provider()):
            if not any(provider is watched for watched in self._watched):
                adopter = adopt_from(provider, self.ledger, self._telemetry)
                if adopter is not None:
                    self._watched.append(provider)
                    self._adopters.append(adopter)

    def _tick(self) -> float | None:
        return self.ledger.tick() if self.ledger is not None else None


def _ledger(settings: config.Settings, telemetry: Telemetry, worker: Worker) -> Ledger | None:
    if settings.ledger == "none":
        return None
    store = open_store(settings.ledger)
    if store is None:
        return Ledger(settings, MemoryAccount(settings.ledger_capacity, telemetry.lost, worker.wake), telemetry)

    from otel_toolcalls.ledger.shared import SharedAccount  # noqa: PLC0415  # its store has loaded it

    def wake() -> None:
        worker.start()  # a process that only runs tools begins no turn
        worker.wake()

    account = SharedAccount(store, settings.ledger_capacity, telemetry.lost, telemetry.settled, wake)
    return Ledger(settings, account, telemetry)


_lock = threading.Lock()
_current: _Installation | None = None


class ToolCallsInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # its base is not typed
    """What ``opentelemetry-instrument`` and OpenTelemetry's declarative configuration find by entry point."""

    configuration = config.Configuration
    """The settings as the declarative configuration gives them."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """None is required: each SDK is observed where the app has it."""
        return ()

    def instrument(self, **kwargs: Any) -> None:
        """The same as :func:`instrument`, also for OpenTelemetry's loaders.

        They load no further instrumentation when one raises: to them a wrong setting is one line in the log, and only
        this package stays off.
        """
        try:
            super().instrument(**kwargs)
        except config.SettingsError as error:
            if "skip_dep_check" not in kwargs:  # the loaders' own
                raise
            _logger.error("otel-toolcalls: stays off: %s", error)  # noqa: TRY400  (the line says all)

    def _instrument(self, **kwargs: Any) -> None:
        global _current
        providers = {name: kwargs.pop(name, None) for name in ("tracer_provider", "meter_provider", "logger_provider")}
        settings = config.resolve(kwargs)
        with _lock:
            if _current is not None:  # the base's own check is not safe against another thread's call
                return
            _current = _Installation(settings, Telemetry(settings, **providers))
            _current.start()

    def _uninstrument(self, **kwargs: Any) -> None:
        global _current
        with _lock:
            if _current is not None:
                _current.stop()
                _current = None


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
    """End each open turn and judge each call that waits, as interpreter exit would.

    For processes that end by a signal, which runs no ``atexit``.
    """
    installation = _current
    if installation is not None:
        installation.runtime.shutdown()


def pending() -> Sequence[Entry]:
    """The completed calls that wait for their dispatch, oldest first."""
    installation = _current
    return installation.ledger.pending() if installation is not None and installation.ledger is not None else ()


def report() -> list[Fact]:
    """The state of each patch target of each supported SDK."""
    installation = _current
    return installation.patches.report() if installation is not None else []
