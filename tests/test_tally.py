from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
import wrapt
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum

from otel_toolcalls.telemetry.tally import counter, up_down_counter


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> MeterProvider:
    return MeterProvider([reader], shutdown_on_exit=False)


def read(reader: InMemoryMetricReader) -> dict[str, list[tuple[Mapping[str, Any], int | float]]]:
    data = reader.get_metrics_data()
    found = {}
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                assert isinstance(metric.data, Sum)
                found[metric.name] = [(dict(point.attributes), point.value) for point in metric.data.data_points]
    return found


def test_a_reader_sees_what_was_counted_by_attributes(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    calls = counter(provider, "calls", "{call}", "Calls", "tool", "error")
    calls.add(1, "f", None)
    calls.add(2, "f", None)
    calls.add(1, "f", "broken")
    assert read(reader)["calls"] == [({"tool": "f"}, 3), ({"tool": "f", "error": "broken"}, 1)]


def test_a_series_can_begin_at_nothing(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    counter(provider, "lost", "{call}", "Lost", "tool").begin("f")
    assert read(reader)["lost"] == [({"tool": "f"}, 0)]


def test_what_goes_down_is_no_monotonic_sum(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    waiting = up_down_counter(provider, "waiting", "{call}", "Waiting", "tool")
    waiting.add(2, "f")
    waiting.add(-1, "f")
    assert read(reader)["waiting"] == [({"tool": "f"}, 1)]
    (metric,) = reader_metrics(reader)
    assert not metric.data.is_monotonic


def reader_metrics(reader: InMemoryMetricReader) -> list[Any]:
    data = reader.get_metrics_data()
    assert data is not None
    return [m for resource in data.resource_metrics for scope in resource.scope_metrics for m in scope.metrics]


def test_asked_for_again_it_counts_on(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    counter(provider, "calls", "{call}", "Calls", "tool").add(1, "f")
    counter(provider, "calls", "{call}", "Calls", "tool").add(1, "f")
    assert read(reader)["calls"] == [({"tool": "f"}, 2)]


def test_each_provider_has_its_own(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    counter(MeterProvider(shutdown_on_exit=False), "calls", "{call}", "Calls", "tool").add(1, "f")
    assert "calls" not in read(reader)
    counter(provider, "calls", "{call}", "Calls", "tool").add(1, "f")
    assert read(reader)["calls"] == [({"tool": "f"}, 1)]


def test_a_series_that_has_begun_is_not_set_back(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    lost = counter(provider, "lost", "{call}", "Lost", "tool")
    lost.add(1, "f")
    lost.begin("f")
    assert read(reader)["lost"] == [({"tool": "f"}, 1)]


def test_a_provider_that_cannot_be_a_key_counts_on_when_asked_again(reader: InMemoryMetricReader) -> None:
    class Unhashable(MeterProvider):
        __hash__ = None  # type: ignore[assignment]

    provider = Unhashable([reader], shutdown_on_exit=False)
    counter(provider, "calls", "{call}", "Calls", "tool").add(1, "f")
    counter(provider, "calls", "{call}", "Calls", "tool").add(1, "f")
    assert read(reader)["calls"] == [({"tool": "f"}, 2)]


def test_two_wrappers_around_one_provider_count_together(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    for _ in range(2):
        counter(wrapt.ObjectProxy(provider), "calls", "{call}", "Calls", "tool").add(1, "f")
    assert read(reader)["calls"] == [({"tool": "f"}, 2)]


COUNTED_BEFORE_AND_AFTER = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from otel_toolcalls.telemetry.tally import counter

def count():
    counter(None, "calls", "{call}", "Calls", "tool").add(1, "f")

count()
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
count()
print([p.value for r in reader.get_metrics_data().resource_metrics for s in r.scope_metrics
       for m in s.metrics for p in m.data.data_points])
"""


def test_what_was_counted_before_there_was_a_global_provider_is_not_lost() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", COUNTED_BEFORE_AND_AFTER], capture_output=True, text=True, check=False
    )
    assert (answer.stdout.strip(), answer.stderr) == ("[2]", "")


def test_each_global_provider_has_its_own_where_a_test_puts_another(
    provider: MeterProvider, reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for used in (MeterProvider(shutdown_on_exit=False), provider):
        monkeypatch.setattr(metrics, "get_meter_provider", lambda used=used: used)
        monkeypatch.setattr(metrics._internal, "get_meter_provider", lambda used=used: used)
        counter(None, "calls", "{call}", "Calls", "tool").add(1, "f")
    assert read(reader)["calls"] == [({"tool": "f"}, 1)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_copy_of_the_process_can_count_while_the_lock_was_held(provider: MeterProvider) -> None:
    calls = counter(provider, "calls", "{call}", "Calls", "tool")
    held, let_go = threading.Event(), threading.Event()

    def count_slowly() -> None:
        with calls._lock:
            held.set()
            let_go.wait()

    other = threading.Thread(target=count_slowly)
    other.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # ends it where it waits for a thread that is not there
        calls.add(1, "f")
        os._exit(0)
    let_go.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
