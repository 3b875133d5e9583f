"""The reference page of the metrics: names and values from ``conventions.py``, kinds, units and meanings from the
instruments that the package makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.metrics import MeterProvider, NoOpMeter

from otel_toolcalls import conventions as c
from otel_toolcalls.config import Settings
from otel_toolcalls.telemetry import Telemetry

from .promql import name

TOOL, MODEL, PROVIDER, KIND = c.TOOL_NAME, c.REQUEST_MODEL, c.PROVIDER_NAME, c.CALL_KIND
OUTCOME, ERROR_TYPE = c.CALL_OUTCOME, c.ERROR_TYPE

ATTRIBUTES: dict[str, Sequence[str]] = {
    c.ANNOUNCED_CALLS: (TOOL, PROVIDER, MODEL, KIND),
    c.FINISHED_CALLS: (TOOL, PROVIDER, MODEL, KIND, OUTCOME, ERROR_TYPE),
    c.ANNOUNCE_DURATION: (TOOL, PROVIDER, OUTCOME),
    c.ARGUMENTS_SIZE_METRIC: (TOOL,),
    c.DISPATCHED_CALLS: (TOOL, c.DISPATCH_MATCH),
    c.DISPATCH_DELAY_METRIC: (TOOL,),
    c.SETTLED_CALLS: (TOOL, c.SETTLED_BY),
    c.UNDISPATCHED_CALLS: (TOOL, c.UNDISPATCHED_REASON),
    c.PENDING_CALLS: (TOOL,),
    c.VIOLATIONS: (c.VIOLATION_KIND, PROVIDER),
    c.INTERNAL_ERRORS: (c.ERROR_WHERE,),
    c.EXECUTE_TOOL_DURATION: (c.OPERATION_NAME, TOOL, ERROR_TYPE),
    c.INFERENCE_DURATION: (c.OPERATION_NAME, PROVIDER, MODEL, c.RESPONSE_MODEL, ERROR_TYPE),
    c.TIME_TO_FIRST_CHUNK: (c.OPERATION_NAME, PROVIDER, MODEL, c.RESPONSE_MODEL, ERROR_TYPE),
}
"""Metric → the attributes that its points may carry."""

BOUNDS: dict[str, tuple[str, int]] = {
    TOOL: (f"the tools of the requests, and `{c.OTHER_TOOL}` for every name outside the request's own list", 21),
    MODEL: ("the models that the app asks for", 3),
    PROVIDER: ("the providers that the app talks to", 2),
    KIND: (" ".join(f"`{kind.value}`" for kind in c.Kind), len(c.Kind)),
    OUTCOME: (" ".join(f"`{outcome.value}`" for outcome in c.Outcome), len(c.Outcome)),
    ERROR_TYPE: ("one table of words, and the names of the exceptions that end streams or tools", 6),
    c.DISPATCH_MATCH: (" ".join(f"`{match.value}`" for match in c.Match), len(c.Match)),
    c.SETTLED_BY: (" ".join(f"`{by.value}`" for by in c.SettledBy), len(c.SettledBy)),
    c.UNDISPATCHED_REASON: (" ".join(f"`{reason.value}`" for reason in c.LostReason), len(c.LostReason)),
    c.VIOLATION_KIND: (" ".join(f"`{kind.value}`" for kind in c.Violation), len(c.Violation)),
    c.ERROR_WHERE: ("the places in the package that guard the app", 10),
    c.OPERATION_NAME: (f"`{c.OP_CHAT}` `{c.OP_GENERATE_CONTENT}`, or `{c.OP_EXECUTE}`", 1),
    c.RESPONSE_MODEL: ("the models that answer", 3),
}
"""Attribute → what bounds its values, and how many an app of the example has."""

DEPENDENT = {(c.FINISHED_CALLS, ERROR_TYPE): 2, (c.INFERENCE_DURATION, c.RESPONSE_MODEL): 1,
             (c.TIME_TO_FIRST_CHUNK, c.RESPONSE_MODEL): 1}  # fmt: skip
"""Where an attribute follows from another, it multiplies by less than its number of values."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """What the package made."""

    kind: str
    unit: str
    description: str
    buckets: Sequence[float] = ()


class _Recorder(NoOpMeter, MeterProvider):
    """A meter that notes what is made with it."""

    def __init__(self) -> None:
        super().__init__(c.SCOPE)
        self.made: dict[str, Instrument] = {}

    def get_meter(self, *_: Any, **__: Any) -> _Recorder:
        return self

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        self.made[name] = Instrument("counter", unit, description)
        return super().create_counter(name, unit, description)

    def create_observable_counter(self, name: str, callbacks: Any = None, unit: str = "", description: str = "") -> Any:
        self.made[name] = Instrument("counter", unit, description)
        return super().create_observable_counter(name, callbacks, unit, description)

    def create_observable_up_down_counter(
        self, name: str, callbacks: Any = None, unit: str = "", description: str = ""
    ) -> Any:
        self.made[name] = Instrument("up-down counter", unit, description)
        return super().create_observable_up_down_counter(name, callbacks, unit, description)

    def create_histogram(self, name: str, unit: str = "", description: str = "", **more: Any) -> Any:
        buckets = more.get("explicit_bucket_boundaries_advisory") or ()
        self.made[name] = Instrument("histogram", unit, description, buckets)
        return super().create_histogram(name, unit, description, **more)


def instruments() -> dict[str, Instrument]:
    """Every instrument of the package, by name."""
    recorder = _Recorder()
    Telemetry(Settings(), meter_provider=recorder)
    return recorder.made


_SDK_BUCKETS = 15
"""How many boundaries the SDK gives a histogram that asks for none."""
SUFFIXES = {"s": "_seconds", "By": "_bytes"}


def prometheus_name(metric: str, instrument: Instrument) -> str:
    """The name of the metric's series in Prometheus."""
    stem = f"{name(metric)}{SUFFIXES.get(instrument.unit, '')}"
    return f"{stem}_total" if instrument.kind == "counter" else stem


def ceiling(metric: str) -> int:
    """How many points one process of the example can have of a metric; of a histogram, how many histograms."""
    points = 1
    for attribute in ATTRIBUTES[metric]:
        points *= DEPENDENT.get((metric, attribute), BOUNDS[attribute][1])
    return points


HEAD = """\
# Metrics

Written by `make metrics-reference` from `otel_toolcalls/conventions.py` and the instruments that the package makes.

The scope is `otel_toolcalls`. Names are the same over OTLP and through `opentelemetry-exporter-prometheus`; the third
column is how Prometheus spells them, from either. Metrics count from the package's own state, so they do not depend on
sampling. No metric carries an id or any content.

At every moment: completed client calls = settled + undispatched + pending. Per service with a shared ledger (calls
announced in one process are settled in another), per process with the one in memory.

| metric | kind, unit | in Prometheus | attributes | says |
|---|---|---|---|---|
"""

BETWEEN = """
## Attributes, and what bounds them

| attribute | label in Prometheus | values |
|---|---|---|
"""

TAIL = """
A tool name on a span is the model's, whatever it is. On a metric it is one of the request's own tools or `_OTHER`, so a
model that invents names adds nothing. `otel_toolcalls.undispatched.calls` has a series per tool and reason from the
tool's first completed call on, at 0, so that a first loss is an increment.

## The ceiling

Points per process, for an app with 20 tools, 3 models and 2 providers, if every combination occurred; in Prometheus a
histogram has as many series per point as the factor says. Prometheus sees this once per process (`instance`), and once
more after each restart until the old series end.

| metric | points at most |
|---|---:|
"""


def rendered() -> str:
    """Return the page."""
    made = instruments()
    lines = []
    for metric, attributes in ATTRIBUTES.items():
        one = made[metric]
        lines.append(
            f"| `{metric}` | {one.kind}, `{one.unit}` | `{prometheus_name(metric, one)}` "
            f"| {', '.join(f'`{attribute}`' for attribute in attributes)} | {one.description} |"
        )
    page = HEAD + "\n".join(lines) + "\n"
    page += f"\nBuckets in seconds: {_numbers(c.SECONDS_BUCKETS)}; for `{c.DISPATCH_DELAY_METRIC}` {_numbers(c.DELAY_BUCKETS)}.\n"
    page += BETWEEN + "\n".join(
        f"| `{attribute}` | `{name(attribute)}` | {bound} |" for attribute, (bound, _) in BOUNDS.items()
    )
    page += (
        "\n"
        + TAIL
        + "\n".join(f"| `{metric}` | {ceiling(metric):,}{_histogram(made[metric])} |" for metric in ATTRIBUTES)
    )
    return page + f"\n| all counters | {_total(made, 'counter'):,} |\n"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _histogram(instrument: Instrument) -> str:
    """What a histogram multiplies its points by: a series per bucket, the infinite one, the sum and the count."""
    if instrument.kind != "histogram":
        return ""
    return f" x {(len(instrument.buckets) or _SDK_BUCKETS) + 3}"


def _total(made: dict[str, Instrument], kind: str) -> int:
    return sum(ceiling(metric) for metric, one in made.items() if one.kind == kind)
