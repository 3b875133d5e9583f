"""Prometheus names of the package's metrics and attributes, and the few query shapes that rules and dashboards share.

Prometheus sees each name of ``otel_toolcalls.conventions`` with dots turned into underscores, a unit suffix where the
unit is a real one (``{tool_call}`` is not), and ``_total`` on counters. The OTLP path through a collector and
``opentelemetry-exporter-prometheus`` agree on all of them.
"""

from __future__ import annotations

from otel_toolcalls import conventions as c


def name(dotted: str) -> str:
    """Turn an OpenTelemetry name into the label name or the metric's stem in Prometheus."""
    return dotted.replace(".", "_")


def counter(dotted: str) -> str:
    """Name of a counter's series in Prometheus."""
    return f"{name(dotted)}_total"


ANNOUNCED = counter(c.ANNOUNCED_CALLS)
FINISHED = counter(c.FINISHED_CALLS)
DISPATCHED = counter(c.DISPATCHED_CALLS)
SETTLED = counter(c.SETTLED_CALLS)
UNDISPATCHED = counter(c.UNDISPATCHED_CALLS)
VIOLATIONS = counter(c.VIOLATIONS)
INTERNAL_ERRORS = counter(c.INTERNAL_ERRORS)
PENDING = name(c.PENDING_CALLS)
ANNOUNCE_SECONDS = f"{name(c.ANNOUNCE_DURATION)}_seconds"
DELAY_SECONDS = f"{name(c.DISPATCH_DELAY_METRIC)}_seconds"
EXECUTE_SECONDS = f"{name(c.EXECUTE_TOOL_DURATION)}_seconds"
ARGUMENTS_BYTES = f"{name(c.ARGUMENTS_SIZE_METRIC)}_bytes"

JOB = "job"
"""The label that names a service: ``service.name`` on the OTLP path, the scrape job's name otherwise."""
TOOL = name(c.TOOL_NAME)
MODEL = name(c.REQUEST_MODEL)
PROVIDER = name(c.PROVIDER_NAME)
KIND = name(c.CALL_KIND)
OUTCOME = name(c.CALL_OUTCOME)
ERROR_TYPE = name(c.ERROR_TYPE)
MATCH = name(c.DISPATCH_MATCH)
SETTLED_BY = name(c.SETTLED_BY)
REASON = name(c.UNDISPATCHED_REASON)
VIOLATION_KIND = name(c.VIOLATION_KIND)
WHERE = name(c.ERROR_WHERE)


def new(series: str, window: str, memory: str = "1h") -> str:
    """Increments of a counter within ``window``, one vector element per series that has any.

    ``increase()`` alone misses the first increment of a series that appears with it, and whatever was counted while
    nobody scraped. So the last value within the window is compared with the last one known before it, at most
    ``memory`` older: higher, there was none, or lower (the process began again, and counted since). ``increase()``
    stays as the last resort for a counter that began again and reached its old value within the window. A series that
    comes back unchanged after a gap of less than ``memory`` counts nothing.
    """
    now = f"last_over_time({series}[{window}])"
    before = f"last_over_time({series}[{memory}] offset {window})"
    return (
        f"({now} - {before} > 0)\n"
        f"or ({now} > 0 unless {before})\n"
        f"or ({now} > 0 and {now} < {before})\n"
        f"or (increase({series}[{window}]) > 0)"
    )


def total(by: tuple[str, ...], expression: str) -> str:
    """Sum an expression over everything but the labels ``by``, the scope labels of the exporters among the rest."""
    return (
        f"sum by ({', '.join(by)}) (\n{_indent(expression)}\n)"
        if "\n" in expression
        else (f"sum by ({', '.join(by)}) ({expression})")
    )


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def gained(selector: str, window: str) -> str:
    """What a counter gained within ``window``, per series, with a series that began in it counted whole.

    ``increase()`` would show nothing of an app that ran for less than two scrapes. Shorter than :func:`new`, for graphs:
    it forgets what was counted during a gap in the scrapes.
    """
    return (
        f"((last_over_time({selector}[{window}]) unless {selector} offset {window}) or increase({selector}[{window}]))"
    )
