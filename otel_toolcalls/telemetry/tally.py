"""Counters of our own: plain integers, which the metrics SDK is told when a reader asks.

The SDK takes some microseconds to count one, and a call is counted half a dozen times while the app waits for its next
event. A counter lives as long as its meter provider: instruments of one name are one, whoever asks for them again.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from otel_toolcalls._version import __version__
from otel_toolcalls.conventions import SCOPE

__all__ = ["Tally", "counter", "up_down_counter"]


class Tally:
    """The counts of one instrument, by the values of its attributes."""

    def __init__(self, attributes: Sequence[str]) -> None:
        self._attributes = tuple(attributes)
        self._counts: dict[tuple[str | None, ...], int] = {}
        self.forked()

    def forked(self) -> None:
        """This process is a copy, in which nobody is left to release the lock."""
        self._lock = threading.RLock()  # reentrant: a signal handler that shuts down counts too

    def add(self, amount: int, *values: str | None) -> None:
        """Count. ``values`` are those of the attributes, in their order, None for one that is absent."""
        with self._lock:
            self._counts[values] = self._counts.get(values, 0) + amount

    def begin(self, *values: str | None) -> None:
        """Have the series seen before there is anything to count, at 0."""
        if values not in self._counts:
            self.add(0, *values)

    def observe(self, _options: CallbackOptions) -> Iterable[Observation]:
        """What a reader is told."""
        with self._lock:
            counts = list(self._counts.items())
        return [
            Observation(
                count, {name: value for name, value in zip(self._attributes, values, strict=True) if value is not None}
            )
            for values, count in counts
        ]


def counter(provider: MeterProvider | None, name: str, unit: str, description: str, *attributes: str) -> Tally:
    """One that only grows; of the global meter provider where none is given."""
    return _tally(provider, name, attributes, lambda m, f: m.create_observable_counter(name, [f], unit, description))


def up_down_counter(provider: MeterProvider | None, name: str, unit: str, description: str, *attributes: str) -> Tally:
    """One that grows and shrinks; otherwise the same."""
    return _tally(
        provider, name, attributes, lambda m, f: m.create_observable_up_down_counter(name, [f], unit, description)
    )


_by_meter: weakref.WeakKeyDictionary[object, dict[str, Tally]] = weakref.WeakKeyDictionary()
"""By meter, as that is where instruments of one name are one: of two wrappers around one provider too."""
_before_any: dict[str, Tally] = {}
"""Those made while there was no global provider: whichever becomes it takes their instruments over."""
_STAND_IN = "_ProxyMeterProvider"
"""The class of what the API gives for the global provider until there is one."""


def _tally(
    provider: MeterProvider | None, name: str, attributes: Sequence[str], create: Callable[[Any, Any], object]
) -> Tally:
    current = metrics.get_meter_provider()
    used = provider if provider is not None else current
    meter = metrics.get_meter(SCOPE, __version__, provider)
    try:
        tallies = _by_meter.setdefault(meter, {})
    except TypeError:  # it takes no weak reference, or has no hash: what it has cannot be found again
        tallies = {}
    tally = tallies.get(name)
    if tally is None and used is current:
        tally = _before_any.get(name)
    if tally is None:
        tally = Tally(attributes)
        create(meter, tally.observe)
        if type(used).__name__ == _STAND_IN:
            _before_any[name] = tally
    tallies[name] = tally
    return tally


def _after_fork() -> None:
    for tally in {
        *_before_any.values(),
        *(tally for tallies in list(_by_meter.values()) for tally in tallies.values()),
    }:
        tally.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
