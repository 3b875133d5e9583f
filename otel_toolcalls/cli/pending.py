"""``otel-toolcalls pending``: the calls that wait in a shared ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_toolcalls.cli.ledgers import OutOfReachError, errors_in_one_line, ledger_option, opened, trace_id, word
from otel_toolcalls.cli.printing import ROW_WIDTH, print_trimmed
from otel_toolcalls.ledger import Entry
from otel_toolcalls.ledger.sqlite import SqliteStore

__all__ = ["command"]

_COLUMNS = ("waits", "due in", "tool", "call id", "provider", "model", "announced by", "trace")


@click.command()
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def command(ledger: str, as_json: bool) -> None:
    """List the completed tool calls that nobody has run or answered yet, oldest first."""
    store, _ = opened(ledger)
    if isinstance(store, SqliteStore) and not Path(store.path).exists():
        raise OutOfReachError(f"{store.path}: no such ledger")
    with errors_in_one_line():
        entries = store.pending()
    store.close(time.time())
    if as_json:
        print(json.dumps([_facts(entry) for entry in entries], indent=2, ensure_ascii=False))
    else:
        _print_table(entries)


def _facts(entry: Entry) -> dict[str, object]:
    return {
        "key": entry.key,
        "call_id": entry.call_id,
        "tool": entry.name,
        "turn": entry.turn,
        "ordinal": entry.ordinal,
        "provider": entry.provider,
        "model": entry.model,
        "response_id": entry.response_id,
        "trace_id": trace_id(entry),
        "span_id": f"{entry.trace.span_id:016x}" if entry.trace.span_id else None,
        "completed_at": entry.completed_at,
        "due_at": entry.due_at,
        "reason": entry.reason.value,
        "process": entry.process or None,
    }


def _print_table(entries: Sequence[Entry]) -> None:
    now = time.time()
    table = Table(*_COLUMNS, box=None, pad_edge=False, header_style="bold")
    for entry in entries:
        table.add_row(
            _seconds(now - entry.completed_at),
            Text(_seconds(entry.due_at - now), "red" if entry.due_at < now else ""),
            *map(Text, (word(entry.name), word(entry.call_id), word(entry.provider), word(entry.model))),
            Text(entry.process or "(ended)"),
            Text(word(trace_id(entry))),
        )
    console = Console(highlight=False, width=ROW_WIDTH)
    if entries:
        print_trimmed(console, table)
    console.print(f"{len(entries)} waiting")


def _seconds(number: float) -> str:
    return f"{number:.1f} s"
