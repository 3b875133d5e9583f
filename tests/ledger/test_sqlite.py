"""What is particular to the ledger in a SQLite file."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from otel_toolcalls.conventions import LostReason
from otel_toolcalls.ledger.shared import StoreError
from otel_toolcalls.ledger.sqlite import SqliteStore
from tests.ledger.making import NOW, claim, entry

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_the_file_is_for_its_user_alone(path: Path) -> None:
    store = SqliteStore(str(path))
    store.add(entry())
    files = [file for file in path.parent.rglob("*") if file.is_file()]
    assert {file.name for file in files} > {"ledger.db", "ledger.db-wal", "ledger.db-shm"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    store.close(NOW)


def test_an_ended_process_leaves_nothing_but_the_ledger(path: Path) -> None:
    store = SqliteStore(str(path))
    store.add(entry())
    store.close(NOW)
    assert [file.name for file in path.parent.rglob("*") if file.is_file()] == ["ledger.db"]


HOLDER = """
import sys
from otel_toolcalls.ledger.sqlite import SqliteStore
from tests.ledger.making import entry
store = SqliteStore(sys.argv[1])
store.add(entry("a"))
store.add(entry("due", deadline=-1))
if sys.argv[2] == "takes":
    print([judged.entry.call_id for judged in store.judge(store.pending()[0].completed_at)])
print("ready", flush=True)
sys.stdin.read()
"""


def killed(path: Path, what: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), what],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "ready" not in process.stdout.readline():
            assert process.poll() is None
        others = SqliteStore(str(path))
        assert others.judge(NOW - 1000) == (), "it lives"
        others.close(NOW)
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_the_calls_of_a_killed_process_are_lost_at_once(path: Path) -> None:
    killed(path, "waits")
    store = SqliteStore(str(path))
    judged = store.judge(NOW - 1000)
    assert {one.entry.call_id: one.reason for one in judged} == dict.fromkeys(("a", "due"), LostReason.PROCESS_LOST)
    store.reported([one.entry.key for one in judged])
    assert not store.judge(NOW - 1000)
    store.close(NOW)


def test_what_a_killed_process_had_taken_and_not_reported_is_reported_by_another(path: Path) -> None:
    killed(path, "takes")
    store = SqliteStore(str(path))
    judged = {one.entry.call_id: one.reason for one in store.judge(NOW - 1000)}
    assert judged == {"due": LostReason.DEADLINE, "a": LostReason.PROCESS_LOST}
    store.close(NOW)


def test_a_forked_child_is_a_process_of_its_own(path: Path) -> None:
    store = SqliteStore(str(path))
    store.add(entry("parent's"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            store.add(entry("child's"))
            status = 0
        finally:
            os._exit(status)  # as a killed process does, it tidies nothing
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    judged = store.judge(NOW - 1000)
    assert [(one.entry.call_id, one.reason) for one in judged] == [("child's", LostReason.PROCESS_LOST)]
    store.reported([one.entry.key for one in judged])
    assert [one.call_id for one in store.pending()] == ["parent's"]
    settlement = store.settle(claim("parent's"))
    assert settlement is not None
    assert settlement.first
    store.close(NOW)


def test_a_fork_in_the_middle_of_writing_damages_nothing(path: Path) -> None:
    store = SqliteStore(str(path))
    for number in range(20):
        store.add(entry(f"parent-{number}"))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.add(entry(f"child-{number}", key=f"child-{number}"))
                store.close(NOW)
                status = 0
            finally:
                os._exit(status)
        store.add(entry(f"parent-{number}-again"))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(store.pending()) == 60
    store.close(NOW)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda path: path.mkdir(), "ledger.db", id="a folder"),
        pytest.param(
            lambda path: path.write_bytes(b"not a database at all, " * 100), "not a database", id="other data"
        ),
        pytest.param(lambda path: path.parent.chmod(0o500), "ledger.db", id="no permission"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(path: Path, make: object, words: str) -> None:
    if os.geteuid() == 0 and "chmod" in str(getattr(make, "__code__", None) and make.__code__.co_names):  # type: ignore[attr-defined]
        pytest.skip("root may write anywhere")
    make(path)  # type: ignore[operator]
    store = SqliteStore(str(path))
    with pytest.raises(StoreError) as caught:
        store.add(entry())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_ledger_of_a_newer_program_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="version 99"):
        SqliteStore(str(path)).add(entry())


def test_a_ledger_that_another_holds_for_long_is_out_of_reach_and_fair_to_judge_only_some_time_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_toolcalls.ledger.sqlite._BUSY_SECONDS", 0.05)
    store = SqliteStore(str(path), recovery=1000)
    store.add(entry())
    assert store.patience() == 0
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        store.settle(claim())
    other.execute("ROLLBACK")
    other.close()
    assert not store.judge(NOW + 1000), "others may have a claim to write"
    assert store.patience() > 900
    settlement = store.settle(claim())
    assert settlement is not None
    assert settlement.first
    store.close(NOW)
