"""A ledger in one SQLite file, for the processes of one machine.

Every batch is one transaction of the one writer that SQLite allows at a time. A process holds a lock on a file of its
own beside the ledger for as long as it lives, which the system lets go when it is killed: so the others notice.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.ledger import DISPATCHES, Claim, Entry, Judged, Settlement, TraceRef
from otel_toolcalls.ledger.shared import (
    HISTORY,
    JUDGED_AT_ONCE,
    LOOK_BACK,
    RECOVERY,
    REMEMBERED,
    Add,
    Contact,
    Drop,
    Hasten,
    Operation,
    Result,
    Settle,
    StoreError,
    TransactionalStore,
)

try:
    import fcntl

    _LOCKS = True
except ImportError:  # not on this platform: what a killed process leaves goes by its deadline
    _LOCKS = False

__all__ = ["SqliteStore"]

_VERSION = 1
_BUSY_SECONDS = 5.0
_FORK_WAITS_SECONDS = 1.0
_FORGOTTEN_AT_ONCE = 1000

_SCHEMA = """
CREATE TABLE calls (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL UNIQUE,
  call_id TEXT, name TEXT, tool TEXT NOT NULL, turn TEXT NOT NULL, ordinal INTEGER NOT NULL,
  provider TEXT NOT NULL, model TEXT, response_id TEXT,
  trace_id TEXT NOT NULL, span_id TEXT NOT NULL, flags INTEGER NOT NULL,
  completed_at REAL NOT NULL, due_at REAL NOT NULL, reason TEXT NOT NULL, process TEXT NOT NULL,
  waits INTEGER NOT NULL DEFAULT 1,
  settled TEXT, lost TEXT, at REAL, dispatches INTEGER NOT NULL DEFAULT 0,
  met TEXT,
  taken_by TEXT
);
CREATE INDEX calls_by_id ON calls (call_id, waits, seq) WHERE call_id IS NOT NULL;
CREATE INDEX calls_by_id_in_trace ON calls (call_id, trace_id, waits, seq) WHERE call_id IS NOT NULL;
CREATE INDEX calls_by_name ON calls (name, waits, seq) WHERE call_id IS NULL;
CREATE INDEX calls_by_name_in_trace ON calls (name, trace_id, waits, seq) WHERE call_id IS NULL;
CREATE INDEX calls_due ON calls (due_at) WHERE waits = 1;
CREATE INDEX calls_of_turn ON calls (turn) WHERE waits = 1;
CREATE INDEX calls_of_process ON calls (process) WHERE waits = 1;
CREATE INDEX calls_past ON calls (at) WHERE waits = 0;
CREATE INDEX calls_taken ON calls (taken_by) WHERE taken_by IS NOT NULL;
CREATE TABLE claims (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  token TEXT NOT NULL, settled TEXT NOT NULL, call_id TEXT, name TEXT, trace_id TEXT NOT NULL, at REAL NOT NULL
);
CREATE INDEX claims_by_id ON claims (call_id) WHERE call_id IS NOT NULL;
CREATE INDEX claims_by_name ON claims (name) WHERE name IS NOT NULL;
CREATE INDEX claims_past ON claims (at);
CREATE TABLE processes (process TEXT PRIMARY KEY) WITHOUT ROWID;
"""
"""``calls``: those that wait, and for a while those that did (``waits`` is 0; ``taken_by`` is who is to report the
judgement, until it is reported). ``met``: tokens of the claims that were here before the call.
``claims``: those that found no announcement."""

_INSERT = """
INSERT OR IGNORE INTO calls (key, call_id, name, tool, turn, ordinal, provider, model, response_id, trace_id, span_id,
                             flags, completed_at, due_at, reason, process)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class SqliteStore(TransactionalStore):
    """The ledger in the file at ``path``, which is made where it is absent, for its user alone.

    ``history``: seconds that a call is remembered after it waited; ``remembered``: that a claim is which found no
    announcement; ``recovery``: in which nothing is judged after the file could not be written.
    """

    def __init__(
        self, path: str, *, history: float = HISTORY, remembered: float = REMEMBERED, recovery: float = RECOVERY
    ) -> None:
        self.path = Path(path).absolute()
        self._history = history
        self._remembered = remembered
        self._recovery = recovery
        self._connection: sqlite3.Connection | None = None
        self._begin()
        _stores.add(self)

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._contact = Contact(self._recovery)
        self._until = math.inf
        self._process: str | None = None
        self._alive: int | None = None

    # ---- the protocol -----------------------------------------------------------------------------------------------

    def apply(self, operations: Sequence[Operation]) -> list[Result]:
        with self._writing() as db:
            process = self._registered(db)
            return [_DOERS[type(operation)](self, db, operation, process) for operation in operations]

    def judge(self, now: float) -> Sequence[Judged]:
        if self.patience():
            return ()
        with self._reading() as db:
            dead = [one for one in self._processes(db) if not self._lives(one)]
            if not dead and not self._any_work(db, now):
                return ()
        with self._writing() as db:
            process = self._registered(db)
            for one in dead:
                self._bury(db, one, process, now)
            db.execute(
                "UPDATE calls SET waits = 0, lost = reason, at = ?, taken_by = ? WHERE seq IN"
                " (SELECT seq FROM calls WHERE waits = 1 AND due_at <= ? ORDER BY due_at LIMIT ?)",
                (now, process, now, JUDGED_AT_ONCE),
            )
            db.execute("UPDATE calls SET taken_by = ? WHERE taken_by = ''", (process,))
            self._forget(db, now)
            rows = db.execute(
                "SELECT * FROM calls WHERE taken_by = ? ORDER BY at, seq LIMIT ?", (process, JUDGED_AT_ONCE)
            )
            return [Judged(_entry(row), LostReason(row["lost"]), row["at"]) for row in rows.fetchall()]

    def reported(self, keys: Sequence[str]) -> None:
        with self._writing() as db:
            db.executemany("UPDATE calls SET taken_by = NULL WHERE key = ?", [(key,) for key in keys])

    def turn_of(self, call_id: str, trace_id: int) -> str | None:
        with self._reading() as db:
            rows = _equals(db, "call_id", call_id, trace_id, 1)
            return rows[0]["turn"] if rows else None

    def next_due(self) -> float | None:
        with self._reading() as db:
            due = _one(db, "SELECT due_at FROM calls WHERE waits = 1 ORDER BY due_at LIMIT 1")
            return None if due is None else self._contact.fair(due)

    def patience(self) -> float:
        with self._reading() as db:
            _version(db)
        return self._contact.patience

    def pending(self) -> Sequence[Entry]:
        with self._reading() as db:
            return [_entry(row) for row in db.execute("SELECT * FROM calls WHERE waits = 1 ORDER BY seq")]

    def close(self, now: float) -> Sequence[Judged]:  # noqa: ARG002  # the protocol's
        with self._lock:
            if self._process is not None:
                with contextlib.suppress(StoreError), self._writing() as db:
                    db.execute("UPDATE calls SET process = '' WHERE process = ? AND waits = 1", (self._process,))
                    db.execute("UPDATE calls SET taken_by = '' WHERE taken_by = ?", (self._process,))
                    db.execute("DELETE FROM processes WHERE process = ?", (self._process,))
                    self._lock_file(self._process).unlink(missing_ok=True)
            self._let_go()
        return ()

    def hurry(self, until: float) -> None:
        self._until = until

    def abandon(self) -> None:
        self._until = math.inf
        if self._lock.acquire(blocking=False):  # else whoever waits for the file finds out by itself
            try:
                self._let_go()
            finally:
                self._lock.release()

    def _let_go(self) -> None:
        self._until = math.inf
        self._close_lock_file()
        self._disconnect()

    def forked(self) -> None:
        # What was open is the parent's: its connection is never closed here; that of the lock's file lets go of nothing.
        if self._connection is not None:
            _abandoned.append(self._connection)
            self._connection = None
        self._close_lock_file()
        self._begin()

    # ---- operations, inside a transaction ---------------------------------------------------------------------------

    def _add(self, db: sqlite3.Connection, operation: Add, process: str) -> Result:
        e = operation.entry
        inserted = db.execute(
            _INSERT,
            (
                *(e.key, e.call_id, e.name, e.tool, e.turn, e.ordinal, e.provider, e.model, e.response_id),
                *(_hex(e.trace.trace_id, 32), _hex(e.trace.span_id, 16), e.trace.flags),
                *(e.completed_at, e.due_at, e.reason.value, process),
            ),
        )
        return self._met(db, e, inserted.lastrowid) if inserted.rowcount else None

    def _met(self, db: sqlite3.Connection, entry: Entry, seq: int | None) -> SettledBy | None:
        """The claims that were here before it: the oldest of each kind that fits is for this call."""
        column, value = ("call_id", entry.call_id) if entry.call_id is not None else ("name", entry.name)
        rows = db.execute(
            f"SELECT * FROM claims WHERE {column} = ? AND at >= ?"  # noqa: S608  # one of two literals
            " ORDER BY trace_id = ? DESC, name IS ? DESC, seq LIMIT ?",
            (value, time.time() - self._remembered, _hex(entry.trace.trace_id, 32), entry.name, LOOK_BACK),
        )
        of_kind: dict[str, sqlite3.Row] = {}
        for row in rows.fetchall():
            of_kind.setdefault("dispatch" if row["settled"] in DISPATCHES else row["settled"], row)
        if not of_kind:
            return None
        chosen = sorted(of_kind.values(), key=lambda row: int(row["seq"]))
        settled = SettledBy(chosen[0]["settled"])
        db.execute(
            "UPDATE calls SET waits = 0, settled = ?, at = ?, dispatches = ?, met = ? WHERE seq = ?",
            (settled.value, time.time(), int("dispatch" in of_kind), " ".join(row["token"] for row in chosen), seq),
        )
        db.executemany("DELETE FROM claims WHERE seq = ?", [(row["seq"],) for row in chosen])
        return settled

    def _settle(self, db: sqlite3.Connection, operation: Settle, process: str) -> Result:  # noqa: ARG002
        claim = operation.claim
        row, ambiguous = _find(db, claim)
        if row is None:
            if not operation.again:
                db.execute(
                    "INSERT INTO claims (token, settled, call_id, name, trace_id, at) VALUES (?, ?, ?, ?, ?, ?)",
                    (claim.token, claim.by.value, claim.call_id, claim.name, _hex(claim.trace_id, 32), time.time()),
                )
            return None
        lost = LostReason(row["lost"]) if row["lost"] is not None else None
        if operation.again:
            db.execute("DELETE FROM claims WHERE token = ? AND call_id IS ?", (claim.token, claim.call_id))
            if claim.token in (row["met"] or "").split():
                return Settlement(
                    _entry(row), first=False, ambiguous=ambiguous, dispatches=row["dispatches"], lost=lost
                )
        dispatches = row["dispatches"] + (claim.by in DISPATCHES)
        first = bool(row["waits"])
        if first:
            db.execute(
                "UPDATE calls SET waits = 0, settled = ?, at = ?, dispatches = ? WHERE seq = ?",
                (claim.by.value, time.time(), dispatches, row["seq"]),
            )
        elif dispatches != row["dispatches"]:
            db.execute("UPDATE calls SET dispatches = ? WHERE seq = ?", (dispatches, row["seq"]))
        return Settlement(_entry(row), first, ambiguous, dispatches, lost)

    def _hasten(self, db: sqlite3.Connection, operation: Hasten, process: str) -> Result:  # noqa: ARG002
        turn = operation.turn
        if turn is None:
            rows = _equals(db, "call_id", operation.call_id, operation.trace_id, 1)
            turn = rows[0]["turn"] if rows else None
        db.execute(
            "UPDATE calls SET due_at = ?, reason = ? WHERE turn = ? AND waits = 1 AND due_at > ?",
            (operation.due_at, operation.reason.value, turn, operation.due_at),
        )
        return None

    def _drop(self, db: sqlite3.Connection, operation: Drop, process: str) -> Result:  # noqa: ARG002
        rows = db.execute("SELECT * FROM calls WHERE turn = ? AND waits = 1 ORDER BY seq", (operation.turn,)).fetchall()
        db.execute(
            "UPDATE calls SET waits = 0, settled = ?, at = ? WHERE turn = ? AND waits = 1",
            (SettledBy.EXEMPT.value, time.time(), operation.turn),
        )
        return [_entry(row) for row in rows]

    # ---- judging ----------------------------------------------------------------------------------------------------

    def _any_work(self, db: sqlite3.Connection, now: float) -> bool:
        return any(
            _one(db, question, *values) is not None
            for question, *values in (
                ("SELECT 1 FROM calls WHERE waits = 1 AND due_at <= ? LIMIT 1", now),
                ("SELECT 1 FROM calls WHERE taken_by IN ('', ?) LIMIT 1", self._process),
                ("SELECT 1 FROM calls WHERE waits = 0 AND at < ? LIMIT 1", now - self._history),
                ("SELECT 1 FROM claims WHERE at < ? LIMIT 1", now - self._remembered),
            )
        )

    def _bury(self, db: sqlite3.Connection, dead: str, process: str, now: float) -> None:
        """A process was killed: what it announced is lost with it, what it had to report is reported by us."""
        if not db.execute("DELETE FROM processes WHERE process = ?", (dead,)).rowcount:
            return
        db.execute(
            "UPDATE calls SET due_at = min(due_at, ?), reason = ?, process = '' WHERE process = ? AND waits = 1",
            (now, LostReason.PROCESS_LOST.value, dead),
        )
        db.execute("UPDATE calls SET taken_by = ? WHERE taken_by = ?", (process, dead))
        self._lock_file(dead).unlink(missing_ok=True)

    def _forget(self, db: sqlite3.Connection, now: float) -> None:
        db.execute(
            "DELETE FROM calls WHERE seq IN"
            " (SELECT seq FROM calls WHERE waits = 0 AND at < ? AND taken_by IS NULL LIMIT ?)",
            (now - self._history, _FORGOTTEN_AT_ONCE),
        )
        db.execute(
            "DELETE FROM claims WHERE seq IN (SELECT seq FROM claims WHERE at < ? LIMIT ?)",
            (now - self._remembered, _FORGOTTEN_AT_ONCE),
        )

    # ---- processes --------------------------------------------------------------------------------------------------

    def _registered(self, db: sqlite3.Connection) -> str:
        """Our name among the processes; from now on the others see when we die."""
        if self._process is None:
            process = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
            if _LOCKS:
                path = self._lock_file(process)
                path.parent.mkdir(mode=0o700, exist_ok=True)
                self._alive = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._process = process
        db.execute("INSERT OR IGNORE INTO processes VALUES (?)", (self._process,))
        return self._process

    @staticmethod
    def _processes(db: sqlite3.Connection) -> list[str]:
        return [row["process"] for row in db.execute("SELECT process FROM processes")]

    def _lives(self, process: str) -> bool:
        if not _LOCKS or process == self._process:
            return True
        try:
            file = os.open(self._lock_file(process), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:  # another user's: nothing can be told
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(file)

    def _lock_file(self, process: str) -> Path:
        return self.path.with_name(f"{self.path.name}-processes") / process

    def _close_lock_file(self) -> None:
        if self._alive is not None:
            os.close(self._alive)
        self._alive = self._process = None

    # ---- the connection ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                left = self._until - time.monotonic()
                if left <= 0:
                    raise sqlite3.OperationalError("no time is left")
                if self._connection is None:
                    self._connection = self._connect(min(_BUSY_SECONDS, left))
                if left < _BUSY_SECONDS:
                    self._connection.execute(f"PRAGMA busy_timeout = {int(left * 1000)}")
                yield self._connection
            except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError):
                raise  # it is what was to be written
            except (sqlite3.DatabaseError, OSError) as error:
                self._contact.lost()
                self._disconnect()
                raise StoreError(f"sqlite:///{self.path}: {error}") from None
            self._contact.made(math.inf)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _connect(self, wait: float) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self.path, timeout=wait, isolation_level=None, check_same_thread=False)
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            self._make(db)
        except BaseException:
            db.close()
            raise
        return db

    def _make(self, db: sqlite3.Connection) -> None:
        """Make the tables where no process has made them yet."""
        if _version(db) == 0:
            db.execute("BEGIN IMMEDIATE")
            if _version(db) == 0:  # no other process was faster
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {_VERSION}")
            db.execute("COMMIT")
        if _version(db) != _VERSION:
            raise StoreError(f"sqlite:///{self.path}: it has version {_version(db)}, this program knows {_VERSION}")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


_DOERS: dict[type, Callable[[SqliteStore, sqlite3.Connection, Any, str], Result]] = {
    Add: SqliteStore._add,  # noqa: SLF001  # its own table
    Settle: SqliteStore._settle,  # noqa: SLF001
    Hasten: SqliteStore._hasten,  # noqa: SLF001
    Drop: SqliteStore._drop,  # noqa: SLF001
}


def _find(db: sqlite3.Connection, claim: Claim) -> tuple[sqlite3.Row | None, bool]:
    """The call that a claim means, by the rules of :class:`Claim`, and whether there was a choice."""
    meant = None
    if claim.key is not None:
        meant = db.execute("SELECT * FROM calls WHERE key = ?", (claim.key,)).fetchone()
    if claim.call_id is None and claim.name is None:
        return meant, False
    if claim.call_id is not None:
        rows = _equals(db, "call_id", claim.call_id, claim.trace_id, 1)
        if rows:
            named = [row for row in rows if row["name"] == claim.name] or rows
            return next((row for row in rows if row["key"] == claim.key), named[0]), len(named) > 1
    return (meant, False) if meant is not None else _find_less_sure(db, claim)


def _find_less_sure(db: sqlite3.Connection, claim: Claim) -> tuple[sqlite3.Row | None, bool]:
    """One of that id that waits no more, or one without an id of that name."""
    past = _equals(db, "call_id", claim.call_id, 0, 0) if claim.call_id is not None else []
    if past:
        return past[0], False
    if claim.name is not None:
        for waits in (1, 0):
            rows = _equals(db, "name", claim.name, claim.trace_id, waits)
            if rows and (waits or rows[0]["lost"] is not None):
                return [row for row in rows if row["turn"] == rows[0]["turn"]][-1], True
    return None, False


def _equals(db: sqlite3.Connection, column: str, value: str, trace_id: int, waits: int) -> list[sqlite3.Row]:
    """The calls that fit; those in the same trace, or where there is none, those in any; newest first."""
    idless = " AND call_id IS NULL" if column == "name" else ""
    question = f"SELECT * FROM calls WHERE {column} = ?{idless} AND waits = ?"  # noqa: S608  # one of two literals
    newest = " ORDER BY seq DESC LIMIT ?"
    in_trace = f"{question} AND trace_id = ?{newest}"
    rows = db.execute(in_trace, (value, waits, _hex(trace_id, 32), LOOK_BACK)).fetchall() if trace_id else []
    return rows or db.execute(question + newest, (value, waits, LOOK_BACK)).fetchall()


def _entry(row: sqlite3.Row) -> Entry:
    return Entry(
        key=row["key"],
        call_id=row["call_id"],
        name=row["name"],
        tool=row["tool"],
        turn=row["turn"],
        ordinal=row["ordinal"],
        provider=row["provider"],
        model=row["model"],
        response_id=row["response_id"],
        trace=TraceRef(int(row["trace_id"], 16), int(row["span_id"], 16), row["flags"]),
        completed_at=row["completed_at"],
        due_at=row["due_at"],
        reason=LostReason(row["reason"]),
        process=row["process"],
    )


def _hex(number: int, digits: int) -> str:
    return f"{number:0{digits}x}"


def _one(db: sqlite3.Connection, question: str, *values: object) -> Any:
    row = db.execute(question, values).fetchone()
    return None if row is None else row[0]


def _version(db: sqlite3.Connection) -> int:
    return int(_one(db, "PRAGMA user_version"))


# SQLite keeps, for each file, what this process has locked. A copy of that in a forked child is wrong there, and may
# damage the file: so no connection is open across a fork.
_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_held: list[threading.RLock] = []
_abandoned: list[sqlite3.Connection] = []
"""Copies of the parent's that could not be closed before a fork."""


def _before_fork() -> None:
    for store in list(_stores):
        lock = store._lock  # noqa: SLF001
        if lock.acquire(timeout=_FORK_WAITS_SECONDS):
            _held.append(lock)
            store._disconnect()  # noqa: SLF001


def _in_parent() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _held.clear()
    for store in list(_stores):
        store.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
