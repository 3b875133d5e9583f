"""The kinds of panel that the dashboards are made of, each in one look and with its links to the traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as m_common
from grafana_foundation_sdk.models import dashboard as m_dashboard
from grafana_foundation_sdk.models import heatmap as m_heatmap
from grafana_foundation_sdk.models import prometheus as m_prometheus
from grafana_foundation_sdk.models.dashboard import DataSourceRef

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
Queries = Mapping[str, str]
"""Legend → query. A legend may name labels: ``{{gen_ai_tool_name}}``."""

COLOURS = {
    "completed": "green",
    "settled": "green",
    "announced": "blue",
    "invalid": "orange",
    "truncated": "yellow",
    "abandoned": "purple",
    "lost": "red",
    "pending": "text",
}


def query(expression: str, legend: str, *, instant: bool = False, exemplar: bool = False) -> prometheus.Dataquery:
    """One PromQL target on the chosen data source."""
    target = prometheus.Dataquery().expr(expression).legend_format(legend).datasource(DATASOURCE)
    if exemplar:
        target = target.exemplar(True)
    return target.instant() if instant else target.range()


def number(title: str, description: str, expression: str, *, unit: str = "short", bad_above: float | None = None,
           links: list[dashboard.DashboardLink] | None = None) -> stat.Panel:  # fmt: skip
    """One figure over the chosen time, red above ``bad_above``."""
    steps = [m_dashboard.Threshold(value=None, color="text" if bad_above is None else "green")]
    if bad_above is not None:
        steps.append(m_dashboard.Threshold(value=bad_above, color="red"))
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .with_target(query(expression, title, instant=True))
        .unit(unit)
        .no_value("0")
        .thresholds(dashboard.ThresholdsConfig().mode(m_dashboard.ThresholdsMode.ABSOLUTE).steps(steps))
        .graph_mode(m_common.BigValueGraphMode.NONE)
        .data_links(links or [])
        .height(4)
        .span(4)
    )


def lines(title: str, description: str, queries: Queries, *, unit: str = "short", span: int = 12,
          exemplars: bool = False, links: list[dashboard.DashboardLink] | None = None) -> timeseries.Panel:  # fmt: skip
    """Lines over time; with ``exemplars`` each dot leads to a trace."""
    panel = _over_time(title, description, queries, unit=unit, span=span, exemplars=exemplars, links=links)
    return panel.line_width(2).fill_opacity(10).show_points(m_common.VisibilityMode.AUTO)


def bars(title: str, description: str, queries: Queries, *, stacked: bool = True, span: int = 12,
         links: list[dashboard.DashboardLink] | None = None) -> timeseries.Panel:  # fmt: skip
    """Counts per interval."""
    panel = _over_time(title, description, queries, unit="short", span=span, exemplars=False, links=links)
    mode = m_common.StackingMode.NORMAL if stacked else m_common.StackingMode.NONE
    stacking = common.StackingConfig().mode(mode)
    return panel.draw_style(m_common.GraphDrawStyle.BARS).fill_opacity(80).line_width(0).stacking(stacking)


def _over_time(title: str, description: str, queries: Queries, *, unit: str, span: int, exemplars: bool,
               links: list[dashboard.DashboardLink] | None) -> timeseries.Panel:  # fmt: skip
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .height(8)
        .span(span)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(m_common.LegendDisplayMode.TABLE)
            .placement(m_common.LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(common.VizTooltipOptions().mode(m_common.TooltipDisplayMode.MULTI).sort(m_common.SortOrder.DESCENDING))
        .data_links(links or [])
    )
    for legend, expression in queries.items():
        panel = panel.with_target(query(expression, legend, exemplar=exemplars))
    for word, colour in COLOURS.items():
        fixed = m_dashboard.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})
        panel = panel.override_by_name(word, [fixed])
    return panel


def grid(title: str, description: str, columns: Queries, by: Mapping[str, str],
         *, links: list[dashboard.DashboardLink] | None = None, span: int = 24) -> table.Panel:  # fmt: skip
    """One row per combination of the labels ``by`` (label → heading), one column per query."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .height(8)
        .span(span)
        .filterable(True)
        .decimals(0)
        .data_links(links or [])
    )
    names = {}
    for letter, (heading, expression) in zip("ABCDEFGHIJ", columns.items(), strict=False):
        target = query(expression, heading, instant=True).format(m_prometheus.PromQueryFormat.TABLE).ref_id(letter)
        panel = panel.with_target(target)
        names[f"Value #{letter}" if len(columns) > 1 else "Value"] = heading
    order = {field: position for position, field in enumerate([*by, *names])}
    organised = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": {**names, **by}}
    return panel.with_transformation(m_dashboard.DataTransformerConfig(id_val="merge", options={})).with_transformation(
        m_dashboard.DataTransformerConfig(id_val="organize", options=organised)
    )


def heat(title: str, description: str, expression: str, *, unit: str = "s", span: int = 12) -> heatmap.Panel:
    """A histogram over time, by its buckets."""
    target = query(expression, "{{le}}").format(m_prometheus.PromQueryFormat.HEATMAP).exemplar(True)
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .with_target(target)
        .calculate(False)
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .color(
            heatmap.HeatmapColorOptions()
            .mode(m_heatmap.HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .fill("dark-orange")
            .exponent(0.5)
            .steps(64)
        )
        .height(8)
        .span(span)
    )


def to_jaeger(title: str, service: str, tags: Mapping[str, str]) -> dashboard.DashboardLink:
    """Open the traces in Grafana's Explore on the Jaeger data source. Values may be Grafana's own ``${…}``."""
    text = " ".join(f"{attribute}={value}" for attribute, value in tags.items())
    return _explore(title, "${jaeger}", {"queryType": "search", "service": service, "tags": text, "limit": 20})


def to_tempo(title: str, service: str, tags: Mapping[str, str]) -> dashboard.DashboardLink:
    """Open the same search in TraceQL on the Tempo data source."""
    conditions = [
        f'resource.service.name = "{service}"',
        *(f'span.{attribute} = "{value}"' for attribute, value in tags.items()),
    ]
    return _explore(title, "${tempo}", {"queryType": "traceql", "query": f"{{ {' && '.join(conditions)} }}"})


def _explore(title: str, datasource: str, sought: Mapping[str, object]) -> dashboard.DashboardLink:
    pane = {
        "datasource": datasource,
        "queries": [{"refId": "A", **sought}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    # Grafana fills in its ${…} after this, so they stay as they are.
    panes = quote(json.dumps({"a": pane}, separators=(",", ":")), safe="${}_.:")
    return dashboard.DashboardLink(title).url(f"/explore?schemaVersion=1&orgId=1&panes={panes}").target_blank(True)
