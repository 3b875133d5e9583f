"""Paired measurements: every process in turn, forth and back (A B B A), as often as there are rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.environments import FailedError, Process
from benchmarks.shapes import Shape

__all__ = ["Best", "Figure", "Setting", "added", "added_per_chunk", "figure", "paired", "times_bare"]

BARE = "bare"


@dataclass(frozen=True)
class Setting:
    """How a workload is run."""

    workload: str
    replay: bool = True
    asynchronous: bool = False
    at_once: int = 1


@dataclass(frozen=True)
class Figure:
    """Seconds (or a ratio): the median of the rounds, and the distance of the quartiles."""

    median: float
    spread: float


def figure(values: Sequence[float]) -> Figure:
    if len(values) < 2:
        return Figure(values[0], 0.0)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Figure(statistics.median(values), high - low)


def paired(
    processes: Sequence[Process], setting: Setting, shapes: Sequence[Shape], *, rounds: int, seconds: float
) -> dict[str, list[list[float]]]:
    """CPU seconds per stream: process → for each shape, one mean of a forth and a back per round.

    A stream is read as often as fits in ``seconds``. A process that fails is left out.
    """
    counts: dict[tuple[str, int], int] = {}
    taking_part = list(processes)
    for process in processes:
        for at, shape in enumerate(shapes):
            try:
                counts[process.name, at] = _fitting(process, setting, shape, seconds)
            except FailedError:
                taking_part.remove(process)
                break
    result: dict[str, list[list[float]]] = {process.name: [[] for _ in shapes] for process in taking_part}
    for _ in range(rounds):
        for at, shape in enumerate(shapes):
            forth = {p.name: _once(p, setting, shape, counts[p.name, at]) for p in taking_part}
            back = {p.name: _once(p, setting, shape, counts[p.name, at]) for p in reversed(taking_part)}
            for name in result:
                result[name][at].append((forth[name] + back[name]) / 2)
    return result


def _fitting(process: Process, setting: Setting, shape: Shape, seconds: float) -> int:
    """How many streams to read at a time. The first of a kind also pays what is made once: it is not counted."""
    taken = _once(process, setting, shape, setting.at_once)
    return setting.at_once * max(1, min(400, int(seconds / max(taken, 1e-6) / setting.at_once)))


def _once(process: Process, setting: Setting, shape: Shape, streams: int) -> float:
    answer: Mapping[str, Any] = process(
        "time",
        workload=setting.workload,
        shape=shape,
        streams=streams,
        replay=setting.replay,
        asynchronous=setting.asynchronous,
        at_once=setting.at_once,
    )
    return float(answer["cpu"])


def added(result: Mapping[str, list[list[float]]], at: int = 0) -> dict[str, Figure]:
    """What each process took more than the bare SDK, by pairs."""
    bare = result[BARE][at]
    return {
        name: figure([mine - base for mine, base in zip(times[at], bare, strict=True)])
        for name, times in result.items()
    }


def added_per_chunk(result: Mapping[str, list[list[float]]], chunks: tuple[int, int]) -> dict[str, Figure]:
    """The slope between a short and a long stream, less the bare SDK's."""
    span = chunks[1] - chunks[0]
    slopes = {
        name: [(long - short) / span for short, long in zip(*times, strict=True)] for name, times in result.items()
    }
    return {
        name: figure([mine - base for mine, base in zip(values, slopes[BARE], strict=True)])
        for name, values in slopes.items()
    }


def times_bare(result: Mapping[str, list[list[float]]]) -> dict[str, Figure]:
    """How many times the bare SDK each took."""
    bare = result[BARE][0]
    return {
        name: figure([mine / base for mine, base in zip(times[0], bare, strict=True)]) for name, times in result.items()
    }


class Best:
    """The least CPU seconds per stream that each process has shown so far: what else the machine does only adds to it.

    Less telling than pairs of one quiet run, but it gets better with each round on a machine that is never quiet.
    """

    def __init__(
        self, processes: Sequence[Process], setting: Setting, shapes: Sequence[Shape], *, seconds: float
    ) -> None:
        self._setting = setting
        self._shapes = shapes
        self._counts = [[(p, _fitting(p, setting, shape, seconds)) for p in processes] for shape in shapes]
        self._best = {process.name: [float("inf")] * len(shapes) for process in processes}

    def more(self, rounds: int) -> None:
        """Measure further, forth and back."""
        for _ in range(rounds):
            for at, (shape, counts) in enumerate(zip(self._shapes, self._counts, strict=True)):
                for process, streams in (*counts, *reversed(counts)):
                    best = self._best[process.name]
                    best[at] = min(best[at], _once(process, self._setting, shape, streams))

    def seconds(self, name: str, at: int = 0) -> float:
        """Of one stream of a shape."""
        return self._best[name][at]

    def added(self, name: str) -> float:
        """Seconds more than the bare SDK: of the first shape, or where there are two, from the one to the other."""
        mine, bare = self._best[name], self._best[BARE]
        return (mine[-1] - bare[-1]) - (mine[0] - bare[0] if len(mine) > 1 else 0.0)
