"""The private providers of an app under ``run``: made by the command, never set as the global ones."""

from __future__ import annotations

import math
import os
import uuid
from dataclasses import dataclass

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_toolcalls.cli import exporters
from otel_toolcalls.cli.destination import Destination
from otel_toolcalls.cli.pump import LogPump, Pump, SpanPump

__all__ = ["Pipeline", "build"]

_METRICS_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Three providers and what carries their telemetry out of the process."""

    tracer_provider: TracerProvider
    meter_provider: MeterProvider
    logger_provider: LoggerProvider
    pump: Pump


def build(destination: Destination) -> Pipeline:
    """Make the providers; no thread starts before the first span ends, and nothing is registered to run at exit."""
    make = {signal: exporters.make(destination, signal) for signal in exporters.SIGNALS}
    resource = Resource.create(
        {
            "service.name": destination.service,
            "service.instance.id": str(uuid.uuid4()),
            "process.pid": os.getpid(),
        }
    )
    readers = [PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf) for exporter in make["metrics"]]
    meter_provider = MeterProvider(readers, resource, shutdown_on_exit=False)
    pump = Pump(make["traces"], make["logs"], meter_provider.force_flush, _metrics_seconds())
    sampler = None if os.environ.get("OTEL_TRACES_SAMPLER") else ALWAYS_ON
    tracer_provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
    tracer_provider.add_span_processor(SpanPump(pump))
    logger_provider = LoggerProvider(resource, shutdown_on_exit=False)
    logger_provider.add_log_record_processor(LogPump(pump))
    return Pipeline(tracer_provider, meter_provider, logger_provider, pump)


def _metrics_seconds() -> float:
    try:
        return float(os.environ["OTEL_METRIC_EXPORT_INTERVAL"]) / 1000
    except (KeyError, ValueError):
        return _METRICS_SECONDS
