"""The account of calls in ClickHouse: the shipped SQL on the real engine, over the Collector's own schema."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from dashboards.account import FORMAT, lost_calls, yesterday
from tests.e2e.fleet.programs import ClickHouse, sql

CALLS = 40_000
START = yesterday()
WINDOW = {"since": START.strftime(FORMAT), "until": (START + timedelta(days=1)).strftime(FORMAT)}
BOTH_WAYS = pytest.mark.parametrize("query", ["lost_calls.sql", "lost_calls_without_account.sql"])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    with ClickHouse.started(tmp_path_factory.mktemp("clickhouse") / "log") as server:
        server.query(sql("generate.sql"), start=WINDOW["since"], first=0, calls=CALLS)
        yield server


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    with ClickHouse.started(tmp_path_factory.mktemp("clickhouse") / "log") as server:
        yield server


@pytest.fixture
def empty(other: ClickHouse) -> ClickHouse:
    for table in ("otel_traces", "toolcall_account"):
        other.query(f"TRUNCATE TABLE otel.{table}")
    return other


@BOTH_WAYS
def test_exactly_the_calls_that_nobody_ran_are_lost_with_their_reason(filled: ClickHouse, query: str) -> None:
    found = filled.rows(query, **WINDOW)
    assert {row["Key"]: row["Reason"] for row in found} == lost_calls(CALLS)
    assert len(found) == CALLS // 1000


@BOTH_WAYS
def test_a_lost_call_says_where_it_was_announced(filled: ClickHouse, query: str) -> None:
    row = next(row for row in filled.rows(query, **WINDOW) if row["Key"] == "call-1500")
    assert row["ServiceName"] == "service-6"
    assert row["ToolName"] == "tool_0"
    assert row["ModelName"] == "model-0"
    assert row["ToolCallId"] == "id_1500"
    assert datetime.fromisoformat(row["AnnouncedAt"][:26]) == START.replace(tzinfo=None) + timedelta(seconds=1.5)
    where = f"TraceId = '{row['Trace']}' AND SpanId = '{row['Span']}'"
    name = filled.query(f"SELECT SpanName FROM otel.otel_traces WHERE {where}")
    assert name.strip() == "announce_tool tool_0"


@BOTH_WAYS
def test_a_window_holds_the_calls_announced_in_it(filled: ClickHouse, query: str) -> None:
    since, until = (START + timedelta(seconds=seconds) for seconds in (10, 20))
    found = filled.rows(query, since=since.strftime(FORMAT), until=until.strftime(FORMAT))
    assert [row["Key"] for row in found] == [f"call-{number}" for number in range(10_500, 20_000, 1000)]


def test_every_awaited_call_is_in_the_windows_account_once(filled: ClickHouse) -> None:
    rows = filled.rows("by_window.sql", window=10, **WINDOW)
    total = {
        column: sum(int(row[column]) for row in rows)
        for column in ("Awaited", "Executed", "Answered", "Acknowledged", "Lost", "LostUnjudged")
    }
    lost = lost_calls(CALLS)
    # of a hundred calls one is abandoned, one run by the provider, one exempt
    assert total["Awaited"] == CALLS * 97 // 100
    assert total["Awaited"] == total["Executed"] + total["Answered"] + total["Acknowledged"] + total["Lost"]
    assert total["Lost"] == len(lost)
    assert total["LostUnjudged"] == sum(1 for reason in lost.values() if not reason)
    assert len({row["WindowStart"] for row in rows}) == CALLS // 10_000


# ---- what arrives late, twice or alone -----------------------------------------------------------------------------
def span(operation: str, *, at: float = 0, key: str | None = None, link: str | None = None, **attributes: str) -> str:
    """One row as the Collector writes it; ``link`` is the type of a link that carries the key."""
    named = {"gen_ai.operation.name": operation, "gen_ai.tool.name": "pay", **attributes}
    if key and not link:
        named["otel_toolcalls.call.key"] = key
    linked = f"map('otel_toolcalls.link.type', '{link}', 'otel_toolcalls.call.key', '{key}')" if link else ""
    pairs = ", ".join(f"'{name}', '{value}'" for name, value in named.items())
    when = (START + timedelta(seconds=at)).strftime("%Y-%m-%d %H:%M:%S.%f")
    return (
        "INSERT INTO otel.otel_traces (Timestamp, TraceId, SpanId, SpanName, ServiceName, SpanAttributes, "
        "Links.TraceId, Links.SpanId, Links.TraceState, Links.Attributes) "
        f"SELECT '{when}', 't', 's', '{operation} pay', 'bot', map({pairs}), "
        + (f"['t'], ['s'], [''], [{linked}]" if link else "[], [], [], []")
    )


def announced(key: str, *, at: float = 0, outcome: str = "completed", kind: str = "client", **more: str) -> str:
    attributes = {"otel_toolcalls.call.outcome": outcome, "otel_toolcalls.call.kind": kind, **more}
    return span("announce_tool", key=key, at=at, **attributes)


def lost(server: ClickHouse, query: str) -> dict[str, str]:
    return {row["Key"]: row["Reason"] for row in server.rows(query, **WINDOW)}


@BOTH_WAYS
def test_each_evidence_settles_a_call_whenever_it_arrives(empty: ClickHouse, query: str) -> None:
    evidence = {
        "executed": span("execute_tool", key="executed", at=1),
        "by another library": span("execute_tool", key="by another library", at=1, link="announced_by"),
        "answered": span("chat", key="answered", at=7200, link="answers"),
        "acknowledged": span("acknowledge_tool", key="acknowledged", at=1, link="announced_by"),
    }
    for key in evidence:
        empty.query(announced(key))
    assert lost(empty, query) == dict.fromkeys(evidence, "")
    for key, settlement in evidence.items():
        empty.query(settlement)
        assert key not in lost(empty, query)
    assert lost(empty, query) == {}


@BOTH_WAYS
def test_evidence_before_its_announcement_and_everything_twice_change_nothing(empty: ClickHouse, query: str) -> None:
    for _ in range(2):
        empty.query(span("execute_tool", key="ran", at=1))
        empty.query(announced("ran"))
        empty.query(announced("lost"))
        empty.query(
            span("await_dispatch", key="lost", at=300, **{"otel_toolcalls.undispatched.reason": "siblings_answered"})
        )
    assert lost(empty, query) == {"lost": "siblings_answered"}
    empty.query("OPTIMIZE TABLE otel.toolcall_account FINAL")
    assert lost(empty, query) == {"lost": "siblings_answered"}
    assert empty.query("SELECT count() FROM otel.toolcall_account").strip() == "2"


@BOTH_WAYS
def test_a_late_dispatch_takes_back_a_judgement(empty: ClickHouse, query: str) -> None:
    empty.query(announced("late"))
    empty.query(span("await_dispatch", key="late", at=300, **{"otel_toolcalls.undispatched.reason": "deadline"}))
    assert lost(empty, query) == {"late": "deadline"}
    empty.query(span("execute_tool", key="late", at=400))
    assert lost(empty, query) == {}


@BOTH_WAYS
def test_calls_that_nobody_here_must_run_are_never_lost(empty: ClickHouse, query: str) -> None:
    empty.query(announced("provider", kind="server"))
    empty.query(announced("cut", outcome="truncated"))
    empty.query(announced("left", outcome="abandoned"))
    empty.query(announced("front end", **{"otel_toolcalls.call.exempt": "true"}))
    empty.query(announced("mine"))
    assert lost(empty, query) == {"mine": ""}
