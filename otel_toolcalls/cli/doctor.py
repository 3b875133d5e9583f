"""``otel-toolcalls doctor``: whether the installed SDKs still have what the hooks patch."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

import click
from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from otel_toolcalls.cli.printing import ROW_WIDTH, print_trimmed
from otel_toolcalls.hooks.patching import Fact
from otel_toolcalls.instrumentor import instrument, report, uninstrument

__all__ = ["command"]

_STYLES = {"patched": "green", "moved": "bold red", "absent": "dim"}
_MEANINGS = {
    "moved": "gone from this version: what passes there is not seen",
    "absent": "not in this version, and not needed there",
}


@click.command()
def command() -> int:
    """Show each place in the model SDKs that is patched, and whether it is where it should be.

    The exit status is 1 when an installed SDK has moved one of them, and when no SDK is installed that is observed.
    """
    logging.getLogger("otel_toolcalls").setLevel(logging.CRITICAL)  # the table says it all
    instrument(NoOpTracerProvider(), NoOpMeterProvider(), NoOpLoggerProvider())
    try:
        for fact in report():
            if fact.version is not None:
                _import_module_of(fact.target)
        facts = [_settled(fact) for fact in report()]
    finally:
        uninstrument()
    table = Table.grid(padding=(0, 2, 0, 0))
    for fact in facts:
        if fact.version is not None:
            table.add_row(*_row(fact))
    console = Console(highlight=False, width=ROW_WIDTH)
    versions = {fact.sdk: fact.version for fact in facts}
    print_trimmed(console, Group(*([table] if table.rows else []), *_totals(versions)))
    return int(not any(versions.values()) or any(fact.state == "moved" for fact in facts))


def _totals(versions: Mapping[str, str | None]) -> Iterator[Text]:
    """Which SDKs are here to be observed."""
    present = [f"{sdk} {version}" for sdk, version in versions.items() if version is not None]
    absent = [sdk for sdk, version in versions.items() if version is None]
    if present:
        yield Text(f"observed: {', '.join(present)}", "bold")
        if absent:
            yield Text(f"not installed: {', '.join(absent)}", "dim")
    else:
        yield Text(
            f"no SDK that is observed is installed here, so nothing will be seen: {', '.join(absent)}", "bold red"
        )


def _settled(fact: Fact) -> Fact:
    """What still waits for its module, when everything is imported, waits for one that is not there."""
    if fact.state != "waiting":
        return fact
    return replace(fact, state="absent" if fact.optional else "moved")


def _row(fact: Fact) -> tuple[Text, ...]:
    style = _STYLES.get(fact.state, "")
    meaning = fact.detail or _MEANINGS.get(fact.state, "")
    return (
        Text(fact.state, style),
        Text(f"{fact.sdk} {fact.version}"),
        Text(fact.target),
        Text(meaning, style),
    )


def _import_module_of(target: str) -> None:
    """Import the longest part of the dotted name that is a module, which patches what waits for it."""
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            importlib.import_module(".".join(parts[:length]))
        except Exception:  # noqa: S112  (its targets go on waiting, and are shown so)
            continue
        return
