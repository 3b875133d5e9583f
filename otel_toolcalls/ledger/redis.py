"""A ledger in Redis (or Valkey), for the processes of many machines.

Every batch is one script, which the server runs as a whole; it keeps the results of each process's last batch, so that
one whose answer was lost on the way can be asked for again. A process is taken for dead when nothing was heard of it
for a while.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from otel_toolcalls.config import SettingsError, masked
from otel_toolcalls.conventions import LostReason, SettledBy
from otel_toolcalls.ledger import Entry, Judged, Settlement, TraceRef
from otel_toolcalls.ledger import redis_scripts as scripts
from otel_toolcalls.ledger.shared import (
    HISTORY,
    JUDGED_AT_ONCE,
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

__all__ = ["RedisStore"]

_LOST_AFTER = 60.0
_SOCKET_SECONDS = 2.0
_MOST_PAST = 100_000
_READ_AT_ONCE = 500
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class RedisStore(TransactionalStore):
    """The ledger at a URL that redis-py takes, with two parameters of ours in its query.

    ``name`` tells the ledgers on one server apart; ``lost_after`` is the seconds of silence after which a process is
    taken for dead. ``history``: seconds that a call is remembered after it waited; ``remembered``: that a claim is
    which found no announcement; ``recovery``: in which nothing is judged after the server was out of reach.

    Raises SettingsError for a URL that is malformed, and where the package ``redis`` is absent.
    """

    def __init__(
        self, url: str, *, history: float = HISTORY, remembered: float = REMEMBERED, recovery: float = RECOVERY
    ) -> None:
        self._shown = masked(url)
        try:
            self._redis: Any = importlib.import_module("redis")
        except ModuleNotFoundError:
            raise SettingsError(
                f"ledger: {self._shown} needs the package redis: pip install 'otel-toolcalls[redis]'"
            ) from None
        self._url, ours = _parted(url)
        name, self._lost_after = ours.get("name", "default"), _LOST_AFTER
        if not _NAME.fullmatch(name):
            raise SettingsError(f"ledger: the name in {self._shown} may hold letters, digits and _.-, at most 64")
        try:
            self._lost_after = float(ours.get("lost_after", _LOST_AFTER))
            self._redis.ConnectionPool.from_url(self._url)
        except (ValueError, TypeError):
            raise SettingsError(f"ledger: expected redis://HOST:PORT/0; got {self._shown}") from None
        "host".encode("idna")  # looked up on the worker, it would be half loaded in a child that is forked just then
        self._base = f"{{otel-toolcalls:{name}}}"
        self._history = history
        self._remembered = remembered
        self._recovery = recovery
        self.forked()

    def __repr__(self) -> str:
        return f"RedisStore({self._shown!r})"

    def forked(self) -> None:
        self._lock = threading.RLock()
        self._contact = Contact(self._recovery)
        self._until = math.inf
        self._client: Any = None
        self._bound = math.inf
        """Seconds that the client waits for the server at a time, where there is a limit to how often."""
        self._scripts: dict[str, Callable[..., Any]] = {}
        self._process = _process()
        self._number = 0
        self._in_doubt: Sequence[Operation] | None = None

    # ---- the protocol -----------------------------------------------------------------------------------------------

    def apply(self, operations: Sequence[Operation]) -> list[Result]:
        with self._lock:
            if self._in_doubt != operations:
                self._in_doubt = operations
                self._number += 1
            text = json.dumps([_DOERS[type(one)](one) for one in operations], ensure_ascii=False)
            answer = self._run(
                scripts.APPLY,
                *(self._process, self._number, repr(time.time())),
                *(self._history, _MOST_PAST, int(self._remembered), text),
            )
            self._in_doubt = None
            results = json.loads(answer)
            return [_READERS[type(one)](result) for one, result in zip(operations, results, strict=True)]

    def judge(self, now: float) -> Sequence[Judged]:
        with self._lock:
            if self.patience():
                return ()
            silence = self._lost_after if self._contact.seconds >= self._lost_after else ""
        rows = self._run(scripts.JUDGE, self._process, repr(now), self._history, _MOST_PAST, silence, JUDGED_AT_ONCE)
        judged, void = [], []
        for key, row in rows:
            if row[0]:
                judged.append(Judged(_entry(row), LostReason(row[4]), float(row[5])))
            else:
                void.append(key)
        if void:
            self.reported(void)
        return judged

    def reported(self, keys: Sequence[str]) -> None:
        self._run(scripts.REPORTED, self._process, *keys)

    def turn_of(self, call_id: str, trace_id: int) -> str | None:
        with self._reach() as client:
            groups = [f"{trace_id:032x}", ""] if trace_id else [""]
            for trace in groups:
                keys = client.zrevrange(f"{self._base}:w:i:{call_id}|{trace}", 0, 0)
                if keys:
                    turn: str | None = client.hget(f"{self._base}:call:{keys[0]}", "turn")
                    return turn
            return None

    def next_due(self) -> float | None:
        with self._reach() as client:
            first = client.zrange(f"{self._base}:due", 0, 0, withscores=True)
            return self._contact.fair(float(first[0][1])) if first else None

    def patience(self) -> float:
        with self._reach() as client:
            client.ping()
        return self._contact.patience

    def pending(self) -> Sequence[Entry]:
        with self._reach() as client:
            keys = client.zrange(f"{self._base}:due", 0, -1)
            rows = []
            for start in range(0, len(keys), _READ_AT_ONCE):
                pipeline = client.pipeline(transaction=False)
                for key in keys[start : start + _READ_AT_ONCE]:
                    pipeline.hmget(f"{self._base}:call:{key}", "e", "due", "reason", "process", "by", "lost", "seq")
                rows += pipeline.execute()
        waiting = [row for row in rows if row[0] and row[4] is None and row[5] is None]
        return [_entry(row) for row in sorted(waiting, key=lambda row: int(row[6]))]

    def close(self, now: float) -> Sequence[Judged]:  # noqa: ARG002  # the protocol's
        with self._lock:
            with contextlib.suppress(StoreError):
                while self._number and self._run(scripts.RELEASE, self._process, _READ_AT_ONCE):
                    continue
            self._let_go()
        return ()

    def hurry(self, until: float) -> None:
        self._until = until

    def abandon(self) -> None:
        self._until = math.inf
        lock = self._lock
        if lock.acquire(blocking=False):  # else whoever waits for the server finds out by itself
            try:
                self._let_go()
            finally:
                lock.release()

    def _let_go(self) -> None:
        client = self._client
        self.forked()
        if client is not None:
            client.close()

    # ---- the connection ---------------------------------------------------------------------------------------------

    def _run(self, script: str, *arguments: object) -> Any:
        with self._reach() as client:
            if script not in self._scripts:
                self._scripts[script] = client.register_script(script)
            return self._scripts[script](keys=[self._base], args=arguments)

    @contextlib.contextmanager
    def _reach(self) -> Iterator[Any]:
        with self._lock:
            try:
                yield self._connected_in_time()
            except (self._redis.RedisError, self._redis.exceptions.RedisClusterException, OSError) as error:
                if self._is_ours(error):
                    raise
                self._contact.lost()
                # A cluster's client before redis-py 8 forgets all nodes with the last one and finds none again.
                self._client, self._scripts = None, {}
                raise StoreError(f"{self._shown}: {self._told(error)}") from None
            self._contact.made(0.0)

    def _connected_in_time(self) -> Any:
        """The client, with sockets that wait no longer than there is time."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time is left")
        if self._client is not None and left < self._bound:
            self._client.close()
            self._client, self._scripts = None, {}
        if self._client is None:
            hurried = left < math.inf
            wait = min(_SOCKET_SECONDS, left)
            self._client = self._connected(wait, tries=1 if hurried else 2)
            self._bound = wait if hurried else math.inf
        return self._client

    def _connected(self, wait: float, tries: int) -> Any:
        """Whatever keeps us from connecting, it is not what was to be written."""
        try:
            return self._connect(wait, tries)
        except (self._redis.RedisError, self._redis.exceptions.RedisClusterException, OSError):
            raise
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from None

    def _connect(self, wait: float, tries: int) -> Any:
        options: dict[str, Any] = {"decode_responses": True, "socket_timeout": wait, "socket_connect_timeout": wait}
        # The second is for a connection that broke while nothing was asked.
        retry = self._redis.retry.Retry(self._redis.backoff.NoBackoff(), tries - 1)
        client = self._redis.Redis.from_url(self._url, retry=retry, **options)
        server = client.info()
        if server.get("cluster_enabled"):
            client.close()
            if tries == 1:
                options["retry"] = retry
            client = self._redis.cluster.RedisCluster.from_url(self._url, **options)
        self._contact.made(float(server.get("uptime_in_seconds", 0)))
        return client

    def _told(self, error: Exception) -> str:
        """One line without the password, should the server or the client repeat it."""
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        secrets = [part for part in (urlsplit(self._url).password, dict(_query(self._url)).get("password")) if part]
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    def _is_ours(self, error: Exception) -> bool:
        """The script choked on what it was given; the server is well."""
        text = str(error)
        return type(error) is self._redis.ResponseError and "user_script" in text and not _CODES.search(text)


_CODES = re.compile(r"\b(OOM|MISCONF|READONLY|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|LOADING|BUSY|NOPERM)\b")
"""The server's words for what passes, also where a script was stopped for it."""


# ---- what goes to the scripts, and comes back -----------------------------------------------------------------------


def _add(operation: Add) -> dict[str, object]:
    e = operation.entry
    facts = {
        "key": e.key,
        "call_id": e.call_id,
        "name": e.name,
        "tool": e.tool,
        "turn": e.turn,
        "ordinal": e.ordinal,
        "provider": e.provider,
        "model": e.model,
        "response_id": e.response_id,
        "trace_id": f"{e.trace.trace_id:032x}",
        "span_id": f"{e.trace.span_id:016x}",
        "flags": e.trace.flags,
        "completed_at": e.completed_at,
    }
    asked = {"key": e.key, "id": e.call_id, "name": e.name, "trace": facts["trace_id"], "turn": e.turn}
    text = json.dumps(facts, ensure_ascii=False)
    return _given(do="add", e=text, due=repr(e.due_at), reason=e.reason.value, **asked)


def _settle(operation: Settle) -> dict[str, object]:
    claim = operation.claim
    trace = f"{claim.trace_id:032x}" if claim.trace_id else None
    return _given(
        do="settle",
        by=claim.by.value,
        id=claim.call_id,
        name=claim.name,
        trace=trace,
        key=claim.key,
        token=claim.token or os.urandom(8).hex(),
        again=operation.again or None,
    )


def _hasten(operation: Hasten) -> dict[str, object]:
    trace = f"{operation.trace_id:032x}" if operation.trace_id else None
    return _given(
        do="hasten",
        turn=operation.turn,
        id=operation.call_id,
        trace=trace,
        due=repr(operation.due_at),
        reason=operation.reason.value,
    )


def _drop(operation: Drop) -> dict[str, object]:
    return _given(do="drop", turn=operation.turn)


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _added(result: Any) -> Result:
    return SettledBy(result[0]) if result else None


def _settled(result: Any) -> Result:
    if not result:
        return None
    row, first, ambiguous, dispatches, lost = result
    return Settlement(_entry(row), bool(first), bool(ambiguous), int(dispatches), LostReason(lost) if lost else None)


def _dropped(result: Any) -> Result:
    return [_entry(row) for row in result]


_DOERS: dict[type, Callable[[Any], dict[str, object]]] = {Add: _add, Settle: _settle, Hasten: _hasten, Drop: _drop}
_READERS: dict[type, Callable[[Any], Result]] = {
    Add: _added,
    Settle: _settled,
    Hasten: lambda _: None,
    Drop: _dropped,
}


def _entry(row: Sequence[str]) -> Entry:
    facts = json.loads(row[0])
    trace = TraceRef(int(facts.pop("trace_id"), 16), int(facts.pop("span_id"), 16), facts.pop("flags"))
    return Entry(**facts, trace=trace, due_at=float(row[1]), reason=LostReason(row[2]), process=row[3] or "")


# ---- names ----------------------------------------------------------------------------------------------------------


def _process() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"


def _query(url: str) -> list[tuple[str, str]]:
    return parse_qsl(urlsplit(url).query, keep_blank_values=True)


def _parted(url: str) -> tuple[str, dict[str, str]]:
    """The URL as redis-py takes it, and the parameters that are ours."""
    query = _query(url)
    ours = {name: value for name, value in query if name in ("name", "lost_after")}
    theirs = urlencode([(name, value) for name, value in query if name not in ours])
    return urlunsplit(urlsplit(url)._replace(query=theirs)), ours
