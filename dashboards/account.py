"""The SQL of ``dashboards/clickhouse`` on ClickHouse's own engine inside this process (chdb), and how long it takes.

``python -m dashboards.account --calls 4000000`` fills a table with the spans of that many calls in growing steps, asks for
the lost ones both ways after each, checks the answers against what the generator says, and prints a table of times.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chdb.session import Session

SQL = Path(__file__).resolve().parent / "clickhouse"
FORMAT = "%Y-%m-%d %H:%M:%S"


class Engine:
    """One in-process ClickHouse with the schema and the account applied."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.script("schema.sql")
        self.script("account.sql")

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Engine]:
        """Start one in a folder of its own; chdb has room for one per process."""
        from chdb.session import Session  # noqa: PLC0415 - the generator's answers are of use without it

        with tempfile.TemporaryDirectory() as folder:
            session = Session(folder)
            try:
                yield cls(session)
            finally:
                session.close()

    def script(self, name: str) -> None:
        """Run each statement of a file."""
        for statement in _bare(name).split(";"):
            if statement.strip():
                self.session.query(statement)

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a file's one query."""
        answer = self.session.query(_bare(name).strip().rstrip(";"), "JSONEachRow", params=parameters)
        return [json.loads(line) for line in str(answer).splitlines()]

    def timed(self, name: str, **parameters: Any) -> tuple[list[dict[str, Any]], float]:
        """Return the rows of a file's one query, and the seconds of the fastest of three runs."""
        rows, times = [], []
        for _ in range(3):
            began = time.perf_counter()
            rows = self.rows(name, **parameters)
            times.append(time.perf_counter() - began)
        return rows, min(times)

    def settle(self) -> None:
        """Wait for the merges that the last inserts started."""
        while self.value("SELECT toUInt32(count()) FROM system.merges"):
            time.sleep(0.5)

    def value(self, query: str) -> Any:
        """Return the one value of a query."""
        return json.loads(str(self.session.query(query, "JSONCompactEachRow")))[0]


def _bare(name: str) -> str:
    return re.sub(r"(^|\s)--.*", "", (SQL / name).read_text())


def yesterday() -> datetime:
    """Return midnight before the last one, in UTC: as far back as calls are generated."""
    today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=1)


def lost_calls(calls: int) -> dict[str, str]:
    """Return what the generator leaves lost: key → reason."""
    return {f"call-{n}": "deadline" if n % 2000 == 500 else "" for n in range(500, calls, 1000)}  # noqa: PLR2004


def measure(calls: int, steps: int = 3) -> Iterator[dict[str, float]]:
    """Fill up to ``calls`` in steps of ten times the last; yield rows and seconds of each query.

    Raises AssertionError where a query's answer is not what the generator says.
    """
    start = yesterday()
    window = {"since": start.strftime(FORMAT), "until": (start + timedelta(days=1)).strftime(FORMAT)}
    with Engine.started() as engine:
        done = 0
        for total in (calls // 10**step for step in reversed(range(steps))):
            engine.rows("generate.sql", start=window["since"], first=done, calls=total - done)
            engine.settle()
            done = total
            found, by_account = engine.timed("lost_calls.sql", **window)
            same, by_join = engine.timed("lost_calls_without_account.sql", **window)
            _, by_window = engine.timed("by_window.sql", window=3600, **window)
            for rows in (found, same):
                if {row["Key"]: row["Reason"] for row in rows} != lost_calls(total):
                    raise AssertionError(f"the lost calls of {total} are not the right ones")
            yield {
                "spans": engine.value("SELECT toUInt32(count()) FROM otel.otel_traces"),
                "calls": total,
                "lost": len(found),
                "lost_calls": by_account,
                "lost_calls_without_account": by_join,
                "by_window": by_window,
            }


def main() -> int:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=4_000_000, help="how many calls in the end (2.57 spans each)")
    calls = parser.parse_args().calls
    print("| spans | calls | lost, found | lost_calls.sql | lost_calls_without_account.sql | by_window.sql |")
    print("|---:|---:|---:|---:|---:|---:|")
    for row in measure(calls):
        print(
            f"| {row['spans']:,} | {row['calls']:,} | {row['lost']:,} | {row['lost_calls']:.2f} s "
            f"| {row['lost_calls_without_account']:.2f} s | {row['by_window']:.2f} s |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
