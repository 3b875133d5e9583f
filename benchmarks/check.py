"""`make bench-check`: a short run in this environment, as ratios within the run, with margins for a busy machine.

It fails where a change made the hot path, the fixed cost or the cost of a call several times dearer than it is, or made
the time of a stream grow faster than its length. The figures themselves come from `make bench`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import Nursery, Process
from benchmarks.figures import MANY_CALLS, QUIET, TWO_CALLS
from benchmarks.measure import Setting, added, added_per_chunk, paired, times_bare
from benchmarks.shapes import Shape

__all__ = ["main"]

WORKLOADS = ("openai chat", "anthropic raw")
TOOL = Shape(0, 2, 100), Shape(0, 2, 4_000)
TEXT = Shape(100, 0, 0), Shape(4_000, 0, 0)
SHORT, LONG = Shape(0, 2, 2_000), Shape(0, 2, 16_000)
WHOLE = Shape(0, 2, 250)
_NOISE = 0.05e-6
"""Seconds that the slope of a chunk may be off: what is below cannot be told apart."""


@dataclass(frozen=True)
class Ratio:
    """Ours over another, and what it may be at most."""

    name: str
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        return f"{'ok  ' if self.holds else 'FAIL'} {self.name}: ×{self.value:.2f} (at most ×{self.limit:g})"


def main() -> int:
    """Exit status: 0 where every ratio holds, 1 where one does not."""
    ratios: list[Ratio] = []
    shapes = (*TOOL, *TEXT, QUIET, TWO_CALLS, MANY_CALLS, SHORT, LONG)
    with Nursery(Path(sys.executable)) as nursery:
        for name in WORKLOADS:
            for shape in shapes:
                nursery.prepare(name, shape)
        bare = nursery.fork("bare", "bare")
        floor, ours, official = (
            nursery.fork("floor", "floor"),
            nursery.fork("ours", "ours"),
            nursery.fork("genai", "genai"),
        )
        for name in WORKLOADS:
            found = _ratios(name, bare, floor, ours, official)
            print("\n".join(map(str, found)), flush=True)
            ratios += found
    failed = sum(not ratio.holds for ratio in ratios)
    print(f"{len(ratios) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _ratios(name: str, bare: Process, floor: Process, ours: Process, official: Process) -> list[Ratio]:
    replay = Setting(name)
    three, four = [bare, floor, ours], [bare, floor, ours, official]
    lengths = tuple(bare("chunks", workload=name, shape=shape) for shape in TOOL)
    tool = added_per_chunk(paired(four, replay, TOOL, rounds=3, seconds=0.01), (lengths[0], lengths[1]))
    lengths = tuple(bare("chunks", workload=name, shape=shape) for shape in TEXT)
    text = added_per_chunk(paired(three, replay, TEXT, rounds=3, seconds=0.01), (lengths[0], lengths[1]))
    quiet = added(paired(three, replay, [QUIET], rounds=5, seconds=0.03))
    two = added(paired(three, replay, [TWO_CALLS], rounds=5, seconds=0.03))
    many = added(paired(three, replay, [MANY_CALLS], rounds=1, seconds=0.0))
    whole = times_bare(paired([bare, ours], Setting(name, replay=False), [WHOLE], rounds=3, seconds=0.03))
    return [
        Ratio(f"{name}: tool chunk, of the floor's", _over(tool["ours"].median, tool["floor"].median), 4.0),
        Ratio(f"{name}: tool chunk, of the official's", _over(tool["ours"].median, tool["genai"].median), 0.3),
        Ratio(f"{name}: text chunk, of the floor's", _over(text["ours"].median, text["floor"].median), 3.0),
        Ratio(f"{name}: stream without calls, of the floor's", quiet["ours"].median / quiet["floor"].median, 8.0),
        Ratio(f"{name}: stream with two calls, of the floor's", two["ours"].median / two["floor"].median, 8.0),
        Ratio(f"{name}: a call, of the floor's", many["ours"].median / many["floor"].median, 9.0),
        Ratio(f"{name}: whole SDK, of the bare one", whole["ours"].median, 1.7),
        Ratio(f"{name}: 8 times the chunks, of 8 times the time", _growth(ours, name), 1.6),
    ]


def _over(mine: float, theirs: float) -> float:
    return max(mine, _NOISE) / max(theirs, _NOISE)


def _growth(process: Process, name: str) -> float:
    def best(shape: Shape) -> float:
        return min(process("time", workload=name, shape=shape, streams=1, replay=True)["cpu"] for _ in range(5))

    return best(LONG) / best(SHORT) / (LONG.fragments / SHORT.fragments)
