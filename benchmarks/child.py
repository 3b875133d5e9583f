"""One contestant in one process: does what it is told through a socket, one JSON object a line, and answers likewise.

``python -m benchmarks.child SOCKET`` imports the SDKs, prepares the replays, and forks a contestant's process whenever it
is told to: what they have in common is made once.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import signal
import socket
import sys
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

from benchmarks import correctness, stainless, workloads
from benchmarks.shapes import Shape
from benchmarks.telemetry import Telemetry

SDKS = ("openai", "anthropic")
_MOST_MEMORY = 8 * 2**30
"""Bytes. A contestant that keeps every span for want of its own collector would take all that the machine has."""


class Child:
    """Makes each workload once, and measures it as often as it is asked to."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Shape], stainless.Workload] = {}
        for sdk in SDKS:
            importlib.import_module(sdk)
            stainless.install_replay(sdk)

    def prepare(self, workload: str, shape: Shape) -> None:
        """Parse its chunks, while the SDK is still bare."""
        made = self._made[workload, shape] = workloads.find(workload)(shape)
        made.parse()

    def become(self, contestant: str, variant: str, environ: dict[str, str]) -> None:
        """From now on this process is a contestant's."""
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        os.environ.update(environ)
        self._variant = variant
        self._loop = asyncio.new_event_loop()
        self.telemetry = Telemetry()
        self._module: ModuleType = importlib.import_module(f"benchmarks.contestants.{contestant}")
        if not hasattr(self._module, "OWN_PROVIDERS"):
            self.telemetry.make_global()
        self.settle: Callable[[], None] = getattr(self._module, "settle", lambda: None)

    def begin(self) -> dict[str, Any]:
        """Switch the contestant on."""
        cpu, wall = time.process_time(), time.perf_counter()
        self._module.instrument(self.telemetry, self._variant)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        gc.collect()
        gc.freeze()  # what is prepared is not what the collector would meet in an app
        return {"cpu": cpu, "wall": wall}

    def chunks(self, workload: str, shape: Shape) -> int:
        return len(self._made[workload, shape].chunks)

    def _work(self, workload: str, shape: Shape) -> stainless.Workload:
        made = self._made.get((workload, shape))
        if made is None:
            made = self._made[workload, shape] = workloads.find(workload)(shape)
        return made

    def time(
        self, workload: str, shape: Shape, streams: int, *, replay: bool, asynchronous: bool = False, at_once: int = 1
    ) -> dict[str, float]:
        """CPU and wall seconds of one stream, as the mean of ``streams``; ``at_once`` of them are read together."""
        work = self._work(workload, shape)
        if replay and not work.chunks:
            raise RuntimeError("this workload was not prepared")
        stainless.replay(work.chunks if replay else None)
        gc.collect()
        if asynchronous:
            cpu, wall = self._loop.run_until_complete(_read_async(work, streams, at_once))
        else:
            cpu, wall = _read(work, streams)
        stainless.replay(None)
        self.settle()
        return {"cpu": cpu / streams, "wall": wall / streams}

    def memory(self, workload: str, shape: Shape) -> dict[str, float]:
        """Bytes that one stream of the whole SDK takes: kept per chunk while it runs, at its peak, and after its end."""
        work = self._work(workload, shape)
        stainless.replay(None)
        list(work.open())  # whatever is made once
        self.settle()
        total = sum(1 for _ in work.open())
        self.settle()
        gc.collect()
        tracemalloc.start()
        start = tracemalloc.get_traced_memory()[0]
        early, late = total // 4, total - 8
        at: dict[int, int] = {}
        for count, _ in enumerate(work.open()):
            if count in {early, late}:
                gc.collect()
                at[count] = tracemalloc.get_traced_memory()[0]
        peak = tracemalloc.get_traced_memory()[1]
        self.settle()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        kept = (at[late] - at[early]) / (late - early)
        return {"kept_per_chunk": kept, "peak": peak - start, "after": after - start}

    def correct(self, workload: str, shape: Shape) -> dict[str, Any]:
        """What the contestant said of the calls of one stream."""
        if hasattr(self._module, "FOREIGN"):
            return {}
        work = self._work(workload, shape)
        stainless.replay(None)
        self.telemetry.keep(on=True)
        for _ in work.open():
            pass
        gc.collect()
        time.sleep(0.05)  # some contestants tell on another thread
        said = self.telemetry.kept()
        self.telemetry.keep(on=False)
        self.settle()
        return correctness.judge(said, shape.expected())

    def pend(self, workload: str, calls: int) -> None:
        """Let this many calls wait for their dispatch, and go on waiting."""
        shape = Shape(0, 500, 1_000)
        work = self._work(workload, shape)
        stainless.replay(work.chunks)
        for _ in range(calls // shape.calls):
            for _ in work.open():
                pass
        stainless.replay(None)
        self.settle = getattr(self._module, "settle_newest", self.settle)

    def about(self) -> dict[str, Any]:
        """Versions that matter."""
        own = (package.partition(" ")[0] for package in self._module.PACKAGES if package != ".")
        wanted = (*SDKS, "pydantic", "opentelemetry-sdk", *own)
        versions = {name: importlib.metadata.version(name) for name in wanted}
        return {"python": platform.python_version(), "versions": versions, "packages": list(self._module.PACKAGES)}


def _read(work: stainless.Workload, streams: int) -> tuple[float, float]:
    open_it = work.open
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(streams):
        for _ in open_it():
            pass
    return time.process_time() - cpu, time.perf_counter() - wall


async def _read_async(work: stainless.Workload, streams: int, at_once: int) -> tuple[float, float]:
    open_it = work.aopen
    cpu, wall = time.process_time(), time.perf_counter()
    if at_once == 1:
        for _ in range(streams):
            async for _ in await open_it():
                pass
    else:
        for _ in range(streams // at_once):
            await asyncio.gather(*(_read_one(open_it) for _ in range(at_once)))
    return time.process_time() - cpu, time.perf_counter() - wall


async def _read_one(open_it: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    async for _ in await open_it():
        await asyncio.sleep(0)  # another stream's turn


def main() -> None:
    address = sys.argv[1]
    os.dup2(2, 1)  # what contestants print is no answer
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    child = Child()
    connection = _connect(address)
    while line := connection.readline():
        asked = json.loads(line)
        if asked["do"] == "fork":
            gc.freeze()  # what is prepared is not what the collector would meet in an app
            if os.fork() == 0:
                connection = _connect(address)
            continue
        print(json.dumps(_answer(child, asked)), file=connection, flush=True)
    os._exit(0)  # contestants' threads and exit hooks are not measured


def _connect(address: str) -> Any:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection.makefile("rw")


def _answer(child: Child, asked: dict[str, Any]) -> Any:
    what = asked.pop("do")
    if "shape" in asked:
        asked["shape"] = Shape(**asked["shape"])
    try:
        return getattr(child, what)(**asked)
    except Exception as error:  # noqa: BLE001 - a contestant may fail at anything, and that is a result
        return {"error": f"{type(error).__name__}: {error}"[:200]}


if __name__ == "__main__":
    main()
