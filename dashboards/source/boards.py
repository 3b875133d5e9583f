"""The Grafana dashboards: an overview, a page for one tool, and the health of the instrumentation itself."""

from __future__ import annotations

import json
from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as m_dashboard

from otel_toolcalls import conventions as c

from . import panels
from .promql import (
    ANNOUNCE_SECONDS,
    ANNOUNCED,
    ARGUMENTS_BYTES,
    DELAY_SECONDS,
    DISPATCHED,
    ERROR_TYPE,
    EXECUTE_SECONDS,
    FINISHED,
    INTERNAL_ERRORS,
    JOB,
    KIND,
    MATCH,
    MODEL,
    OUTCOME,
    PENDING,
    PROVIDER,
    REASON,
    SETTLED,
    SETTLED_BY,
    TOOL,
    UNDISPATCHED,
    VIOLATION_KIND,
    VIOLATIONS,
    WHERE,
    gained,
)

RANGE, STEP = "$__range", "$__rate_interval"
TAG = "otel-toolcalls"
SERVICE_OF_ROW = "${__data.fields.service}"
SERVICE_OF_LINE = "${__field.labels.job}"

CHOSEN = f'{{{JOB}=~"$service", {TOOL}=~"$tool"}}'
"""What the variables select, on metrics that know no model."""
CHOSEN_MODEL = f'{{{JOB}=~"$service", {TOOL}=~"$tool", {MODEL}=~"$model"}}'
SERVICE = f'{{{JOB}=~"$service"}}'


def also(selector: str, *matchers: str) -> str:
    """Add matchers to a selector."""
    return f"{selector[:-1]}, {', '.join(matchers)}}}"


CLIENT = f'{KIND}="{c.Kind.CLIENT.value}"'
COMPLETED = f'{OUTCOME}="{c.Outcome.COMPLETED.value}"'
NOT_COMPLETED = f'{OUTCOME}!="{c.Outcome.COMPLETED.value}"'


def summed(expression: str, *by: str, empty: str = "") -> str:
    """Sum by labels; with ``empty``, a 0 that stands where nothing was ever counted."""
    text = f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})"
    return f"{text}{empty}"


NONE_YET = " or vector(0)"


def quantiles(histogram: str, selector: str, *by: str) -> panels.Queries:
    """Median and 95th percentile, per combination of the labels ``by``."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by)
    return {
        f"p{quantile * 100:g} {legend}".strip(): (
            f"histogram_quantile({quantile}, {summed(gained(f'{histogram}_bucket{selector}', STEP), *by, 'le')})"
        )
        for quantile in (0.5, 0.95)
    }


def legend(label: str) -> str:
    """Grafana's placeholder for a label's value."""
    return f"{{{{{label}}}}}"


# ---- variables -----------------------------------------------------------------------------------------------------
def choice(name: str, label: str, metric: str, shown: str) -> dashboard.QueryVariable:
    """A variable of label values; "All" also takes series without the label."""
    return (
        dashboard.QueryVariable(name)
        .label(shown)
        .query({"query": f"label_values({metric}, {label})", "refId": name})
        .datasource(panels.DATASOURCE)
        .refresh(m_dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(m_dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(m_dashboard.VariableOption(text="All", value="$__all", selected=True))
    )


def variables(*, one_tool: bool = False) -> Sequence[dashboard.DatasourceVariable | dashboard.QueryVariable]:
    """Data sources, then service, tool and model."""
    tool = choice("tool", TOOL, f'{ANNOUNCED}{{{JOB}=~"$service"}}', "Tool")
    if one_tool:
        tool = tool.multi(False).include_all(False).current(m_dashboard.VariableOption(text="", value=""))
    return [
        dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        dashboard.DatasourceVariable("jaeger").label("Jaeger").type("jaeger"),
        dashboard.DatasourceVariable("tempo").label("Tempo").type("tempo"),
        choice("service", JOB, ANNOUNCED, "Service"),
        tool,
        choice("model", MODEL, f"{ANNOUNCED}{CHOSEN}", "Model"),
    ]


def board(uid: str, title: str, description: str, *, one_tool: bool = False) -> dashboard.Dashboard:
    """Return an empty dashboard with what all of them share."""
    made = (
        dashboard.Dashboard(f"Tool calls: {title}")
        .uid(uid)
        .description(description)
        .tags([TAG])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(m_dashboard.DashboardCursorSync.CROSSHAIR)
        .editable()
        .link(
            dashboard.DashboardLink("Tool calls")
            .type(m_dashboard.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in variables(one_tool=one_tool):
        made = made.with_variable(variable)
    return made


def traces(service: str, tags: dict[str, str], what: str = "traces") -> list[dashboard.DashboardLink]:
    """Two links to one search."""
    return [
        panels.to_jaeger(f"{what} in Jaeger", service, tags),
        panels.to_tempo(f"{what} in Tempo", service, tags),
    ]


# ---- panels that more than one dashboard shows ---------------------------------------------------------------------
def lost_table() -> table.Panel:
    """Return who lost what, and the way to the traces."""
    return panels.grid(
        "Lost calls",
        "Announced, complete, and never dispatched or answered, in the chosen time. Click a row for its traces.",
        {"lost": f"{summed(gained(f'{UNDISPATCHED}{CHOSEN}', RANGE), JOB, TOOL, REASON)} > 0"},
        {JOB: "service", TOOL: "tool", REASON: "reason"},
        links=traces(
            SERVICE_OF_ROW,
            {c.TOOL_NAME: "${__data.fields.tool}", c.UNDISPATCHED_REASON: "${__data.fields.reason}"},
        ),
    )


def pending(*by: str) -> timeseries.Panel:
    """Return what waits now."""
    return panels.lines(
        "Pending calls",
        "Completed client calls that wait for their dispatch. A line that only climbs is a dispatcher that stopped.",
        {legend(by[-1]): summed(f"{PENDING}{CHOSEN}", *by)},
        links=traces(SERVICE_OF_LINE, {c.TOOL_NAME: "${__field.labels.gen_ai_tool_name}"}),
    )


# ---- dashboards ----------------------------------------------------------------------------------------------------
def overview() -> dashboard.Dashboard:
    """Announced against dispatched, what was lost, how announcements ended, how long dispatch took."""
    ended = f"{FINISHED}{CHOSEN_MODEL}"
    return (
        board("otel-toolcalls-overview", "overview", "Every tool call that models announced, and what became of it.")
        .with_panel(
            panels.number(
                "Announced",
                "Tool calls that models announced.",
                summed(gained(f"{ANNOUNCED}{CHOSEN_MODEL}", RANGE)),
            )
        )
        .with_panel(
            panels.number(
                "Settled",
                "Completed calls that were dispatched, answered, acknowledged or exempt.",
                summed(gained(f"{SETTLED}{CHOSEN}", RANGE)),
            )
        )
        .with_panel(
            panels.number(
                "Lost",
                "Completed calls that nobody ran. Anything above 0 is a fault.",
                summed(gained(f"{UNDISPATCHED}{CHOSEN}", RANGE)),
                bad_above=1,
            )
        )
        .with_panel(
            panels.number(
                "Not completed",
                "Share of announced calls that ended invalid, truncated or abandoned.",
                f"({summed(gained(also(ended, NOT_COMPLETED), RANGE))}{NONE_YET}) / {summed(gained(ended, RANGE))}",
                unit="percentunit",
                bad_above=0.1,
            )
        )
        .with_panel(
            panels.number("Pending", "Completed calls that wait for their dispatch.", summed(f"{PENDING}{CHOSEN}"))
        )
        .with_panel(
            panels.number(
                "Dispatch delay, p95",
                "From a call's completion to its dispatch.",
                f"histogram_quantile(0.95, {summed(gained(f'{DELAY_SECONDS}_bucket{CHOSEN}', RANGE), 'le')})",
                unit="s",
                bad_above=60,
            )
        )
        .with_panel(lost_table())
        .with_row(dashboard.Row("Account"))
        .with_panel(
            panels.bars(
                "Announced against dispatched",
                "Each completed client call ends as settled or lost. The first two bars differ by what did not complete.",
                {
                    "announced": summed(gained(also(f"{ANNOUNCED}{CHOSEN_MODEL}", CLIENT), STEP)),
                    "settled": summed(gained(f"{SETTLED}{CHOSEN}", STEP)),
                    "lost": summed(gained(f"{UNDISPATCHED}{CHOSEN}", STEP)),
                },
                stacked=False,
            )
        )
        .with_panel(pending(JOB, TOOL))
        .with_row(dashboard.Row("How announcements ended"))
        .with_panel(
            panels.bars(
                "Outcomes",
                "completed, invalid, truncated, abandoned.",
                {legend(OUTCOME): summed(gained(ended, STEP), OUTCOME)},
            )
        )
        .with_panel(
            panels.bars(
                "Failures by model",
                "Announced calls that did not complete.",
                {
                    f"{legend(MODEL)} {legend(OUTCOME)}": f"{summed(gained(also(ended, NOT_COMPLETED), STEP), MODEL, OUTCOME)}"
                },
            )
        )
        .with_panel(
            panels.grid(
                "By tool and model",
                "Announced calls in the chosen time, and how they ended.",
                {
                    outcome.value: summed(gained(also(ended, f'{OUTCOME}="{outcome.value}"'), RANGE), JOB, TOOL, MODEL)
                    for outcome in c.Outcome
                },
                {JOB: "service", TOOL: "tool", MODEL: "model"},
                links=traces(
                    SERVICE_OF_ROW,
                    {c.TOOL_NAME: "${__data.fields.tool}", c.REQUEST_MODEL: "${__data.fields.model}"},
                ),
            )
        )
        .with_row(dashboard.Row("Time"))
        .with_panel(
            panels.lines(
                "Announcement, by tool",
                "How long the model took to write a call's arguments.",
                quantiles(ANNOUNCE_SECONDS, CHOSEN, TOOL),
                unit="s",
                exemplars=True,
            )
        )
        .with_panel(
            panels.lines(
                "Dispatch delay, by tool",
                "From a call's completion to its dispatch.",
                quantiles(DELAY_SECONDS, CHOSEN, TOOL),
                unit="s",
                exemplars=True,
            )
        )
    )


def tool() -> dashboard.Dashboard:
    """One tool: its calls, sizes, times and failures."""
    ended = f"{FINISHED}{CHOSEN_MODEL}"
    return (
        board("otel-toolcalls-tool", "one tool", "One tool's calls, by model.", one_tool=True)
        .with_panel(
            panels.bars(
                "Announced, by model",
                "Calls of this tool that models announced.",
                {legend(MODEL): summed(gained(f"{ANNOUNCED}{CHOSEN_MODEL}", STEP), MODEL)},
            )
        )
        .with_panel(
            panels.bars(
                "Outcomes",
                "completed, invalid, truncated, abandoned.",
                {legend(OUTCOME): summed(gained(ended, STEP), OUTCOME)},
            )
        )
        .with_panel(lost_table())
        .with_panel(
            panels.bars(
                "Why announcements failed",
                "error.type of the calls that did not complete.",
                {legend(ERROR_TYPE): summed(gained(also(ended, NOT_COMPLETED), STEP), ERROR_TYPE, empty=NONE_YET)},
            )
        )
        .with_panel(
            panels.bars(
                "Settled by",
                "Which evidence settled the completed calls: a dispatch, another library's span, an answer in a later "
                "request, an acknowledgement, an exemption.",
                {legend(SETTLED_BY): summed(gained(f"{SETTLED}{CHOSEN}", STEP), SETTLED_BY)},
            )
        )
        .with_row(dashboard.Row("Time and size"))
        .with_panel(
            panels.heat(
                "Announcement",
                "From the announcement to its end. Dots lead to traces.",
                summed(gained(f"{ANNOUNCE_SECONDS}_bucket{CHOSEN}", STEP), "le"),
            )
        )
        .with_panel(
            panels.heat(
                "Dispatch delay",
                "From a call's completion to its dispatch. Dots lead to traces.",
                summed(gained(f"{DELAY_SECONDS}_bucket{CHOSEN}", STEP), "le"),
            )
        )
        .with_panel(
            panels.lines(
                "Size of the arguments",
                "Bytes of JSON. Near a reply's limit, calls get truncated.",
                quantiles(ARGUMENTS_BYTES, CHOSEN),
                unit="bytes",
            )
        )
        .with_panel(pending(JOB, TOOL))
        .with_panel(
            panels.lines(
                "Execution",
                "How long the tool itself ran, where its runs are spans of this package.",
                quantiles(EXECUTE_SECONDS, CHOSEN),
                unit="s",
                exemplars=True,
            )
        )
    )


def health() -> dashboard.Dashboard:
    """Whether the account itself can be trusted."""
    completed = also(f"{FINISHED}{CHOSEN}", COMPLETED, CLIENT)
    balance = (
        f"{summed(completed, JOB)} - ({summed(f'{SETTLED}{CHOSEN}', JOB)} or 0 * {summed(completed, JOB)})"
        f" - ({summed(f'{UNDISPATCHED}{CHOSEN}', JOB)} or 0 * {summed(completed, JOB)})"
        f" - ({summed(f'{PENDING}{CHOSEN}', JOB)} or 0 * {summed(completed, JOB)})"
    )
    return (
        board("otel-toolcalls-health", "instrumentation", "Whether the account of tool calls can be trusted.")
        .with_panel(
            panels.lines(
                "Account balance",
                "Completed client calls less settled, lost and pending ones: 0 at every moment. It leaves 0 when a "
                "process died with calls in memory, or when a fault of the instrumentation dropped some.",
                {legend(JOB): balance},
            )
            .min(-10)
            .axis_soft_max(10)
        )
        .with_panel(
            panels.lines(
                "Reporting processes",
                "Instances that send tool call metrics.",
                {legend(JOB): f"count by ({JOB}) (count by ({JOB}, instance) ({ANNOUNCED}{SERVICE}))"},
            )
        )
        .with_panel(
            panels.bars(
                "Errors of the instrumentation",
                "Swallowed, so that the app is not harmed. Anything above 0 is to be reported.",
                {legend(WHERE): summed(gained(f"{INTERNAL_ERRORS}{SERVICE}", STEP), WHERE, empty=NONE_YET)},
            )
        )
        .with_panel(
            panels.bars(
                "Protocol violations",
                "Streams that contradicted their own protocol, by kind and provider.",
                {
                    f"{legend(VIOLATION_KIND)} {legend(PROVIDER)}": summed(
                        gained(f"{VIOLATIONS}{SERVICE}", STEP), VIOLATION_KIND, PROVIDER, empty=NONE_YET
                    )
                },
                links=traces(SERVICE_OF_LINE, {c.ERROR_TYPE: c.ErrorType.PROTOCOL_VIOLATION}),
            )
        )
        .with_panel(
            panels.bars(
                "Dispatches, by how they met the ledger",
                "unmatched: a tool ran that no model announced here, or its id was lost. duplicate: it ran twice.",
                {legend(MATCH): summed(gained(f"{DISPATCHED}{CHOSEN}", STEP), MATCH, empty=NONE_YET)},
            )
        )
        .with_panel(
            panels.lines(
                "Tools outside the request's own list",
                f"Share of announced calls whose tool is {c.OTHER_TOOL} on metrics: names that the model invented.",
                {
                    legend(JOB): f"{summed(f'{ANNOUNCED}{also(SERVICE, _other())}', JOB)} / "
                    f"{summed(f'{ANNOUNCED}{SERVICE}', JOB)}{NONE_YET}"
                },
                unit="percentunit",
            )
        )
        .with_panel(
            panels.lines(
                "Series",
                "How many series the package's metrics have. docs/metrics.md has the ceiling.",
                {legend("__name__"): f'count by (__name__) ({{__name__=~"otel_toolcalls_.+", {JOB}=~"$service"}})'},
                span=24,
            )
        )
    )


def _other() -> str:
    return f'{TOOL}="{c.OTHER_TOOL}"'


BOARDS = {"overview": overview, "tool": tool, "instrumentation": health}


def rendered(name: str) -> str:
    """Return a dashboard as the JSON that Grafana imports."""
    return json.dumps(BOARDS[name]().build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
