"""What a call costs in the ledger, in each store, with 0 to 100,000 calls that wait.

    python benchmarks/ledger.py [--calls 2000] [--pending 0 1000 10000 100000] [--stores memory sqlite redis]

One call here is announced, and then claimed. ``app`` is what both take where they come up; ``worker`` is what writing
both takes on the background thread, batched as it does that; ``look`` is one look for what is due. Redis is one
redis-server on loopback, started for this (Debian: redis-server).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from otel_toolcalls.conventions import SettledBy
from otel_toolcalls.ledger import Claim, Entry, TraceRef
from otel_toolcalls.ledger.account import Account, MemoryAccount
from otel_toolcalls.ledger.redis import RedisStore
from otel_toolcalls.ledger.shared import SharedAccount, SharedStore, StoreError
from otel_toolcalls.ledger.sqlite import SqliteStore

CAPACITY = 1_000_000
DAY = 86_400.0
ROUNDS = 5
_numbers = itertools.count()


def nothing(*_: object) -> None:
    """Nobody listens."""


def entry() -> Entry:
    number, now = next(_numbers), time.time()
    return Entry(
        key=f"{number:016x}",
        call_id=f"toolu_{number:024d}",
        name="search_orders",
        tool="search_orders",
        turn=f"{number // 3:016x}",
        ordinal=number % 3,
        provider="anthropic",
        model="a-model",
        response_id=f"msg_{number // 3:024d}",
        trace=TraceRef(number + 1, number + 1, 1),
        completed_at=now,
        due_at=now + DAY,
    )


Opened = tuple[Account, "SharedStore | None"]


def shared(store: SharedStore) -> Iterator[Opened]:
    account = SharedAccount(store, CAPACITY, nothing, nothing, nothing)
    yield account, store
    account.release()


def in_memory(_: Path) -> Iterator[Opened]:
    yield MemoryAccount(CAPACITY, nothing, nothing), None


def in_sqlite(folder: Path) -> Iterator[Opened]:
    yield from shared(SqliteStore(str(folder / "ledger.db"), recovery=0))


def in_redis(folder: Path) -> Iterator[Opened]:
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("no redis-server on PATH (Debian: redis-server); leave it out with --stores memory sqlite")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            store = RedisStore(f"redis://127.0.0.1:{port}/0", recovery=0)
            for _ in range(500):
                with contextlib.suppress(StoreError):
                    store.patience()
                    break
                time.sleep(0.02)
            yield from shared(store)
        finally:
            server.terminate()


STORES: dict[str, Callable[[Path], Iterator[Opened]]] = {"memory": in_memory, "sqlite": in_sqlite, "redis": in_redis}


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def measure(account: Account, store: SharedStore | None, waiting: int, calls: int) -> tuple[float, float, float]:
    """Microseconds per call on the app's side and on the worker's, and per look; the median of some rounds."""
    for _ in range(waiting):
        account.add(entry())
    account.tick()
    rounds = []
    for _ in range(ROUNDS):
        entries = [entry() for _ in range(calls)]
        claims = [Claim(SettledBy.DISPATCH, time.time(), one.call_id, one.name, one.trace.trace_id) for one in entries]

        def app(entries: list[Entry] = entries, claims: list[Claim] = claims) -> None:
            for one, claim in zip(entries, claims, strict=True):
                account.add(one)
                account.settle(claim, nothing)

        def look() -> None:
            if store is None:
                account.tick()
            else:
                store.judge(time.time())
                store.next_due()

        on_app, on_worker = seconds(app), seconds(account.tick)
        rounds.append((on_app / calls * 1e6, on_worker / calls * 1e6, seconds(look) * 1e6))
    app_side, worker_side, look_side = (statistics.median(column) for column in zip(*rounds, strict=True))
    return app_side, worker_side if store is not None else 0.0, look_side


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000, help="calls per round")
    parser.add_argument("--pending", type=int, nargs="+", default=[0, 1000, 10_000, 100_000])
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    arguments = parser.parse_args()
    print(f"{'store':8}{'pending':>9}{'app µs/call':>14}{'worker µs/call':>16}{'look µs':>10}")
    for name in arguments.stores:
        for waiting in arguments.pending:
            with tempfile.TemporaryDirectory() as folder:
                for account, store in STORES[name](Path(folder)):
                    app, worker, look = measure(account, store, waiting, arguments.calls)
                    print(f"{name:8}{waiting:9,}{app:14.1f}{worker:16.1f}{look:10.0f}", flush=True)


if __name__ == "__main__":
    main()
