"""`make bench-check`: a short run in this environment, as ratios within the run.

It fails where a change made the hot path, the fixed cost or the cost of a call about twice as dear as it is, or made the
time of a stream grow faster than its length. Every ratio is of the best times of several rounds, and one that does not
hold is measured further before it fails: a busy machine disturbs some rounds, a regression is there in all of them. The
figures themselves come from `make bench`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import Nursery, Process
from benchmarks.figures import MANY_CALLS, QUIET, TWO_CALLS
from benchmarks.measure import Best, Setting
from benchmarks.shapes import Shape

__all__ = ["main"]

WORKLOADS = ("openai chat", "anthropic raw")
TOOL = Shape(0, 2, 100), Shape(0, 2, 4_000)
TEXT = Shape(100, 0, 0), Shape(4_000, 0, 0)
SHORT, LONG = Shape(0, 2, 2_000), Shape(0, 2, 16_000)
WHOLE = Shape(0, 2, 250)
ATTEMPTS = 8


@dataclass(frozen=True)
class Ratio:
    """Ours over another, and what it may be at most."""

    name: str
    limit: float
    measured: Best
    rounds: int
    """Of an attempt."""
    of: Callable[[Best], float]

    def holds(self) -> bool:
        """Whether it does, in one of a few attempts, each of which adds to what the ones before it found. Prints it."""
        value = float("nan")
        for _ in range(ATTEMPTS):
            self.measured.more(self.rounds)
            value = self.of(self.measured)
            if value <= self.limit:
                break
        holds = value <= self.limit
        print(f"{'ok  ' if holds else 'FAIL'} {self.name}: ×{value:.2f} (at most ×{self.limit:g})", flush=True)
        return holds


def main() -> int:
    """Exit status: 0 where every ratio holds, 1 where one does not."""
    with Nursery(Path(sys.executable)) as nursery:
        for name in WORKLOADS:
            for shape in (*TOOL, *TEXT, QUIET, TWO_CALLS, MANY_CALLS, SHORT, LONG):
                nursery.prepare(name, shape)
        bare, floor = nursery.fork("bare", "bare"), nursery.fork("floor", "floor")
        ours, official = nursery.fork("ours", "ours"), nursery.fork("genai", "genai")
        held = [ratio.holds() for name in WORKLOADS for ratio in _ratios(name, bare, floor, ours, official)]
    print(f"{sum(held)} passed, {len(held) - sum(held)} failed")
    return 0 if all(held) else 1


def _of_floor(best: Best) -> float:
    return _over(best.added("ours"), best.added("floor"))


def _of_official(best: Best) -> float:
    return _over(best.added("ours"), best.added("genai"))


def _over(mine: float, theirs: float) -> float:
    """What is lost in noise is no measure of anything else."""
    return mine / theirs if theirs > 0 else float("inf")


def _ratios(name: str, bare: Process, floor: Process, ours: Process, official: Process) -> Iterator[Ratio]:
    replay, whole_sdk = Setting(name), Setting(name, replay=False)
    three = [bare, floor, ours]
    tool = Best([*three, official], replay, TOOL, seconds=0.01)
    yield Ratio(f"{name}: tool chunk, of the floor's", 4, tool, 2, _of_floor)
    yield Ratio(f"{name}: tool chunk, of the official's", 0.1, tool, 1, _of_official)
    text = Best(three, replay, TEXT, seconds=0.01)
    yield Ratio(f"{name}: text chunk, of the floor's", 4, text, 2, _of_floor)
    quiet = Best(three, replay, [QUIET], seconds=0.01)
    yield Ratio(f"{name}: stream without calls, of the floor's", 8, quiet, 8, _of_floor)
    two = Best(three, replay, [TWO_CALLS], seconds=0.01)
    yield Ratio(f"{name}: stream with two calls, of the floor's", 7, two, 8, _of_floor)
    many = Best(three, replay, [MANY_CALLS], seconds=0.0)
    yield Ratio(f"{name}: a call, of the floor's", 7, many, 2, _of_floor)
    whole = Best([bare, ours], whole_sdk, [WHOLE], seconds=0.01)
    yield Ratio(f"{name}: whole SDK, of the bare one", 1.6, whole, 3, lambda b: b.seconds("ours") / b.seconds("bare"))
    grown = Best([ours], replay, [SHORT, LONG], seconds=0.0)
    times = LONG.fragments / SHORT.fragments
    yield Ratio(
        f"{name}: {times:g} times the chunks, of {times:g} times the time",
        1.3,
        grown,
        3,
        lambda b: b.seconds("ours", 1) / b.seconds("ours", 0) / times,
    )
