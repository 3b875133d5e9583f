"""Links from an alert to the traces behind it: a search in Jaeger, and the same search in Tempo through Grafana.

They are Go templates that Prometheus expands. They hold absolute times (the hour up to the evaluation), so that they
open the same traces whenever somebody clicks them. The addresses come from ``external_labels`` of the Prometheus that
evaluates the rules: ``jaeger_url``, ``grafana_url``, ``runbooks_url``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from otel_toolcalls import conventions as c

from . import promql

Search = Mapping[str, str]
"""Attribute of the spans sought → the alert's label that holds its value, or ``=value`` for a fixed one."""


def external(label: str, default: str) -> str:
    """Take an address from Prometheus' external labels."""
    return f"{{{{ with $externalLabels.{label} }}}}{{{{ . }}}}{{{{ else }}}}{default}{{{{ end }}}}"


JAEGER = external("jaeger_url", "http://localhost:16686")
GRAFANA = external("grafana_url", "http://localhost:3000")
RUNBOOKS = external("runbooks_url", "docs/runbooks")

_SERVICE = '(reReplaceAll "^.*/" "" $labels.job)'
"""``job`` is ``namespace/name`` where the service has a namespace; Jaeger and Tempo know it by its name alone."""
_FROM = '(query "time() - 3600" | first | value)'
_TO = '(query "time()" | first | value)'


def jaeger(search: Search) -> str:
    """Search in Jaeger's UI. Its API takes the same parameters at ``/api/traces``."""
    return (
        f"{_assign('$tags', _json, search)}{JAEGER}/search"
        f"?service={{{{ {_SERVICE} | urlquery }}}}&tags={{{{ $tags | urlquery }}}}&limit=20&lookback=custom"
        f'&start={{{{ printf "%.0f000000" {_FROM} }}}}&end={{{{ printf "%.0f000000" {_TO} }}}}'
    )


def tempo(search: Search) -> str:
    """Search in Grafana's Explore, on the data source with the uid ``tempo``."""
    panes = (
        '`{"a":{"datasource":"tempo","queries":[{"refId":"A","queryType":"traceql","query":%q}],'
        '"range":{"from":"%.0f000","to":"%.0f000"}}}`'
    )
    return (
        f"{_assign('$query', _traceql, search)}{GRAFANA}/explore?schemaVersion=1&orgId=1"
        f"&panes={{{{ printf {panes} $query {_FROM} {_TO} | urlquery }}}}"
    )


def _assign(variable: str, render: Callable[[Search], str], search: Search) -> str:
    """Set a template variable to the rendered search; without the tool's name where a metric could not carry it."""
    text = f"{{{{ {variable} := {render(search)} }}}}"
    if c.TOOL_NAME in search:
        rest = {attribute: source for attribute, source in search.items() if attribute != c.TOOL_NAME}
        text += (
            f'{{{{ if eq $labels.{promql.TOOL} "{c.OTHER_TOOL}" }}}}{{{{ {variable} = {render(rest)} }}}}{{{{ end }}}}'
        )
    return text


def _json(search: Search) -> str:
    return _printf("{" + ",".join(f'"{attribute}":%q' for attribute in search) + "}", search.values())


def _traceql(search: Search) -> str:
    conditions = " && ".join(["resource.service.name = %q", *(f"span.{attribute} = %q" for attribute in search)])
    return _printf(f"{{ {conditions} }}", search.values(), _SERVICE)


def _printf(pattern: str, sources: Iterable[str], *first: str) -> str:
    values = [f'"{source[1:]}"' if source.startswith("=") else f"$labels.{source}" for source in sources]
    return " ".join(["printf", f"`{pattern}`", *first, *values])
