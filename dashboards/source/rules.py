"""The Prometheus rules: what is recorded, what alerts, how urgent it is, and which traces it leads to.

Each alert has a page of its own name in ``docs/runbooks/``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from otel_toolcalls import conventions as c

from . import links, promql
from .promql import JOB, MODEL, OUTCOME, PENDING, PROVIDER, REASON, TOOL, VIOLATION_KIND, WHERE

LOST = "job_tool_reason:otel_toolcalls_undispatched_calls:new10m"
VIOLATED = "job_provider_kind:otel_toolcalls_violations:new10m"
FAULTS = "job_where:otel_toolcalls_internal_errors:new10m"
ENDED = "job_tool_model_outcome:otel_toolcalls_finished_calls:new15m"
WAITING = "job_tool:otel_toolcalls_pending_calls:sum"
DELAY = "job_tool:otel_toolcalls_dispatch_delay_seconds"
DISPATCHES = "job_tool:otel_toolcalls_dispatch_delay_seconds:new15m"
PRESENT = "job:otel_toolcalls_announced_calls:series"

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

SLOW_SECONDS = 60
"""A fifth of the default ``dispatch_deadline``: slow enough to look, early enough to act."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A query kept as a series, named level:metric:operation as Prometheus advises."""

    record: str
    expr: str

    def rendered(self) -> dict[str, Any]:
        """Return the rule as the rules file holds it."""
        return {"record": self.record, "expr": self.expr}


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. ``search`` finds the spans it speaks of (see ``links``); ``wait`` is Prometheus' ``for``."""

    alert: str
    expr: str
    severity: str
    summary: str
    description: str
    search: dict[str, str] = field(default_factory=dict)
    wait: str | None = None

    def rendered(self) -> dict[str, Any]:
        """Return the rule as the rules file holds it."""
        rule: dict[str, Any] = {"alert": self.alert, "expr": self.expr}
        if self.wait:
            rule["for"] = self.wait
        rule["labels"] = {"severity": self.severity}
        rule["annotations"] = {
            "summary": self.summary,
            "description": self.description,
            "jaeger_url": links.jaeger(self.search),
            "tempo_url": links.tempo(self.search),
            "runbook_url": f"{links.RUNBOOKS}/{self.alert}.md",
        }
        return rule


RECORDINGS = [
    Recording(LOST, promql.total((JOB, TOOL, REASON), promql.new(promql.UNDISPATCHED, "10m"))),
    Recording(VIOLATED, promql.total((JOB, PROVIDER, VIOLATION_KIND), promql.new(promql.VIOLATIONS, "10m"))),
    Recording(FAULTS, promql.total((JOB, WHERE), promql.new(promql.INTERNAL_ERRORS, "10m"))),
    Recording(ENDED, promql.total((JOB, TOOL, MODEL, OUTCOME), promql.new(promql.FINISHED, "15m"))),
    Recording(WAITING, promql.total((JOB, TOOL), PENDING)),
    *(
        Recording(
            f"{DELAY}:{label}",
            f"histogram_quantile({quantile}, sum by ({JOB}, {TOOL}, le) (rate({promql.DELAY_SECONDS}_bucket[15m])))",
        )
        for label, quantile in QUANTILES.items()
    ),
    Recording(DISPATCHES, promql.total((JOB, TOOL), f"increase({promql.DELAY_SECONDS}_count[15m])")),
    Recording(PRESENT, f"count by ({JOB}) ({promql.ANNOUNCED})"),
]

_TOOL = f"{{{{ $labels.{TOOL} }}}}"
_MODEL = f"{{{{ $labels.{MODEL} }}}}"
_REASON = f"{{{{ $labels.{REASON} }}}}"
_COUNT = '{{ printf "%.0f" $value }}'
_PERCENT = "{{ humanizePercentage $value }}"


def _failing(alert: str, outcome: c.Outcome, threshold: float, meaning: str) -> Alert:
    """Alert on the share of announced calls that end with one outcome, per tool and model; three make a pattern."""
    failed = f'{ENDED}{{{OUTCOME}="{outcome.value}"}}'
    return Alert(
        alert=alert,
        expr=(
            f"sum without ({OUTCOME}) ({failed}) / sum without ({OUTCOME}) ({ENDED}) > {threshold}\n"
            f"and sum without ({OUTCOME}) ({failed}) > 2.5"
        ),
        severity="warning",
        summary=f"{_PERCENT} of {_MODEL}'s calls of {_TOOL} in {{{{ $labels.job }}}} {meaning}",
        description=f"Over the last 15 minutes, {_PERCENT} of the announced calls ended as {outcome.value}.",
        search={c.TOOL_NAME: TOOL, c.REQUEST_MODEL: MODEL, c.CALL_OUTCOME: f"={outcome.value}"},
    )


ALERTS = [
    Alert(
        alert="ToolCallLost",
        expr=f"{LOST} > 0",
        severity="critical",
        summary=f"{_COUNT} announced and complete call(s) of {_TOOL} never ran in {{{{ $labels.job }}}} ({_REASON})",
        description=(
            f"The model announced the call, its arguments arrived whole, and nobody ran or answered it: {_REASON}. "
            "The link lists the traces; the span await_dispatch sits under the call that was lost, in its turn."
        ),
        search={c.TOOL_NAME: TOOL, c.UNDISPATCHED_REASON: REASON},
    ),
    _failing("ToolCallsAbandoned", c.Outcome.ABANDONED, 0.1, "were given up before they were whole"),
    _failing("ToolCallsTruncated", c.Outcome.TRUNCATED, 0.05, "were cut by a limit of the reply"),
    _failing("ToolCallArgumentsInvalid", c.Outcome.INVALID, 0.05, "had arguments that are not JSON"),
    Alert(
        alert="ToolCallProtocolViolated",
        expr=f"{VIOLATED} > 0",
        severity="warning",
        summary=(
            f"{_COUNT} {{{{ $labels.{VIOLATION_KIND} }}}} from {{{{ $labels.{PROVIDER} }}}} in {{{{ $labels.job }}}}"
        ),
        description="A stream contradicted its own protocol; the calls concerned ended as invalid.",
        search={c.ERROR_TYPE: f"={c.ErrorType.PROTOCOL_VIOLATION}"},
    ),
    Alert(
        alert="ToolCallsPiling",
        expr=(
            f"min_over_time({WAITING}[10m]) > max_over_time({WAITING}[10m] offset 20m)\n"
            f"and min_over_time({WAITING}[10m]) >= 10"
        ),
        severity="warning",
        summary=f"Calls of {_TOOL} wait for their dispatch in {{{{ $labels.job }}}}, and they grow: {_COUNT} at least",
        description=(
            "For ten minutes more completed calls have been waiting than at any time in the ten minutes before the last "
            "twenty. They are judged lost when their deadline passes."
        ),
        search={c.TOOL_NAME: TOOL, c.OPERATION_NAME: f"={c.OP_ANNOUNCE}"},
    ),
    Alert(
        alert="ToolCallsDispatchedLate",
        expr=f"{DELAY}:p95 > {SLOW_SECONDS}\nand {DISPATCHES} >= 5",
        wait="5m",
        severity="warning",
        summary=f"Calls of {_TOOL} in {{{{ $labels.job }}}} start late: p95 {{{{ humanizeDuration $value }}}}",
        description="The time between a call's completion and its dispatch nears the deadline at which it is judged lost.",
        search={c.TOOL_NAME: TOOL, c.OPERATION_NAME: f"={c.OP_EXECUTE}"},
    ),
    Alert(
        alert="ToolCallsInstrumentationFaulty",
        expr=f"{FAULTS} > 0",
        severity="warning",
        summary=f"otel-toolcalls met {_COUNT} error(s) of its own in {{{{ $labels.job }}}}, at {{{{ $labels.{WHERE} }}}}",
        description="The app is not harmed, but calls may be missing from the account. The first error of each place is logged.",
    ),
    Alert(
        alert="ToolCallsTelemetryQuiet",
        expr=(f"count_over_time({PRESENT}[45m:1m] offset 15m) >= 30\nunless last_over_time({PRESENT}[15m])"),
        severity="warning",
        summary="{{ $labels.job }} sent tool call metrics for at least half an hour, and none for the last 15 minutes",
        description="No lost call of this service would be reported now. Jobs that run for less than half an hour never alert.",
    ),
]


URGENT = ("ToolCallLost", LOST)
"""The alert that wakes somebody, and what it reads."""
URGENT_SECONDS = 5
"""How often they are evaluated, whatever the others take: they read one counter."""


def rules() -> dict[str, Any]:
    """The content of the rules file."""
    every = [rule.rendered() for rule in (*RECORDINGS, *ALERTS)]
    urgent = [rule for rule in every if {rule.get("alert"), rule.get("record")} & set(URGENT)]
    return {
        "groups": [
            {"name": "otel-toolcalls-lost", "interval": f"{URGENT_SECONDS}s", "rules": urgent},
            {"name": "otel-toolcalls", "rules": [rule for rule in every if rule not in urgent]},
        ]
    }
