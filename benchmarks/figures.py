"""The figures of one group of processes that are measured together: the bare SDK and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import environments, workloads
from benchmarks.environments import FailedError, Nursery, Process
from benchmarks.measure import Figure, Setting, added, added_per_chunk, paired, times_bare
from benchmarks.shapes import Shape

__all__ = ["FULL", "Effort", "Group", "groups"]

CALLS = Shape(0, 2, 100), Shape(0, 2, 5_000)
TEXT = Shape(100, 0, 0), Shape(5_000, 0, 0)
PEERS_CALLS, PEERS_TEXT = (CALLS[0], Shape(0, 2, 1_000)), (TEXT[0], Shape(1_000, 0, 0))
"""What costs microseconds needs no long streams to be seen."""
QUIET = Shape(20, 0, 0)
TWO_CALLS = Shape(0, 2, 8)
MANY_CALLS = Shape(0, 500, 1_000)
WHOLE = Shape(0, 2, 500)
GROWTH = tuple(Shape(0, 2, n) for n in (50, 500, 5_000, 20_000))
GROWTH_TEXT = tuple(Shape(n, 0, 0) for n in (50, 500, 5_000, 20_000))
LONGEST = GROWTH[-1].fragments
LONG_CALL = Shape(0, 1, 100_000)
CONCURRENT = Shape(0, 2, 50)
LONG_CALL_ON = ("openai chat", "anthropic raw")
CONCURRENT_ON = ("openai chat",)


@dataclass(frozen=True)
class Effort:
    """How much time a figure may take."""

    rounds: int
    seconds: float
    """CPU of one measurement, about."""
    thorough: bool = True
    """Not only what peers are compared by."""


FULL = Effort(rounds=12, seconds=0.02)
PEERS = Effort(rounds=2, seconds=0.005, thorough=False)


@dataclass(frozen=True)
class Group:
    """Processes of one environment: ``(contestant, variant)`` each, the bare SDK first."""

    name: str
    packages: tuple[str, ...]
    members: tuple[tuple[str, str], ...]
    sdks: tuple[str, ...] = ("openai", "anthropic")


def groups() -> list[Group]:
    """All of them: ours with the floor, then each peer."""
    ours = environments.contestant("ours")
    floor = environments.contestant("floor")
    found = [
        Group(
            "ours",
            tuple(ours.PACKAGES),
            (
                ("bare", "bare"),
                *(("floor", variant) for variant in floor.VARIANTS),
                *(("ours", variant) for variant in ours.VARIANTS),
            ),
        )
    ]
    for name in PEERS_IN_ORDER:
        peer = environments.contestant(name)
        members = (("bare", "bare"), *((name, variant) for variant in peer.VARIANTS))
        found.append(Group(name, tuple(peer.PACKAGES), members, getattr(peer, "SDKS", ("openai", "anthropic"))))
    return found


def fitting(workload: str, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """The shapes that the SDK itself can take in linear time."""
    longest = workloads.find(workload).longest
    return tuple(Shape(min(s.text, longest), s.calls, min(s.fragments, longest)) for s in shapes)


@contextmanager
def started(group: Group, prepared: Sequence[tuple[str, Shape]]) -> Iterator[list[Process]]:
    """The processes of a group, instrumented, with these replays at hand. Those that cannot start are left out."""
    python = environments.environment(group.name, list(group.packages))
    with Nursery(python) as nursery:
        for workload, shape in prepared:
            nursery.prepare(workload, shape)
        ready = []
        for name, variant in group.members:
            try:
                ready.append(nursery.fork(name, variant))
            except FailedError as error:
                print(f"  left out: {error}", flush=True)
        yield ready


def measure_group(group: Group, effort: Effort) -> Iterator[dict[str, Any]]:
    """Every figure of a group: workload → figure → variant → median and spread, in seconds. Again after each workload."""
    names = [
        name
        for name in workloads.names()
        if workloads.find(name).sdk in group.sdks and (effort.thorough or workloads.find(name).longest >= LONGEST)
    ]
    shapes = (*CALLS, *TEXT, *PEERS_CALLS, *PEERS_TEXT, QUIET, TWO_CALLS, MANY_CALLS, *GROWTH, *GROWTH_TEXT, CONCURRENT)
    prepared = dict.fromkeys((name, shape) for name in names for shape in fitting(name, shapes))
    prepared.update({(name, LONG_CALL): None for name in names if name in LONG_CALL_ON})
    with started(group, list(prepared)) as processes:
        watched = [p for p in processes if p.name not in _NO_MEMORY]
        found: dict[str, Any] = {
            "about": processes[-1]("about"),
            "correct": {p.name: {name: _correct(p, name) for name in names} for p in processes if p.name != "bare"},
            "memory": {p.name: {name: _memory(p, name) for name in names} for p in watched},
            "workloads": {},
        }
        for name in names:
            found["workloads"][name] = _workload(processes, name, effort)
            yield found


def _workload(processes: Sequence[Process], name: str, effort: Effort) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def took(what: str, figures: Mapping[str, Figure]) -> None:
        found[what] = {variant: asdict(value) for variant, value in figures.items()}

    def per_chunk(setting: Setting, pair: Sequence[Shape]) -> dict[str, Figure]:
        shapes = fitting(name, pair)
        short, long = (processes[0]("chunks", workload=name, shape=shape) for shape in shapes)
        return added_per_chunk(_paired(processes, setting, shapes, effort), (short, long))

    def per_stream(setting: Setting, shape: Shape) -> dict[str, Figure]:
        return added(_paired(processes, setting, [shape], effort))

    calls, text = (CALLS, TEXT) if effort.thorough else (PEERS_CALLS, PEERS_TEXT)
    for form in ("sync", "async") if workloads.find(name).asynchronous else ("sync",):
        print(f"  {name}, {form}", flush=True)
        replay = Setting(name, asynchronous=form == "async")
        whole = Setting(name, replay=False, asynchronous=form == "async")
        took(f"tool chunk, {form}", per_chunk(replay, calls))
        if form == "async" and not effort.thorough:
            continue
        took(f"whole SDK, {form}", times_bare(_paired(processes, whole, fitting(name, [WHOLE]), effort)))
        if workloads.find(name).longest < LONGEST:
            continue  # the helper adds its own work to the same stream
        took(f"text chunk, {form}", per_chunk(replay, text))
        took(f"stream without calls, {form}", per_stream(replay, QUIET))
        took(f"stream with two calls, {form}", per_stream(replay, TWO_CALLS))
    if workloads.find(name).longest >= LONGEST:
        took("500 calls", added(paired(processes, Setting(name), [MANY_CALLS], rounds=2, seconds=0.0)))
        found.update(_grown(processes, name, effort))
    if name in CONCURRENT_ON and effort.thorough:
        together = Setting(name, asynchronous=True, at_once=1_000)
        took("1,000 at once", added(paired(processes, together, [CONCURRENT], rounds=1, seconds=0.0)))
    return found


def _grown(processes: Sequence[Process], name: str, effort: Effort) -> dict[str, Any]:
    found = {"growth": _growth(processes, name, fitting(name, GROWTH))}
    if effort.thorough:
        found["growth of text"] = _growth(processes, name, fitting(name, GROWTH_TEXT))
    if effort.thorough and name in LONG_CALL_ON:
        found["1 call of 100,000 fragments"] = _growth(processes, name, [CALLS[0], LONG_CALL])
    return found


def _paired(
    processes: Sequence[Process], setting: Setting, shapes: Sequence[Shape], effort: Effort
) -> dict[str, list[list[float]]]:
    return paired(processes, setting, shapes, rounds=effort.rounds, seconds=effort.seconds)


PEERS_IN_ORDER = ("genai", "openinference", "traceloop", "logfire", "openlit", "langfuse", "ddtrace")
_NO_MEMORY = ("pass-through", "floor")
_PATIENCE = 1.0
"""CPU seconds that one stream may take before longer ones are left out."""


def _growth(processes: Sequence[Process], name: str, shapes: Sequence[Shape]) -> dict[str, list[list[float]]]:
    """Variant → ``[chunks, CPU seconds of a stream]`` for each length, the best of a few."""
    grown: dict[str, list[list[float]]] = {}
    for process in processes:
        points: list[list[float]] = []
        for shape in dict.fromkeys(shapes):
            if points and points[-1][1] * (shape.fragments + shape.text) / points[-1][0] > _PATIENCE:
                break
            asked = {"workload": name, "shape": shape, "replay": True}
            try:
                first = process("time", streams=1, **asked)["cpu"]
                times = [process("time", streams=1, **asked)["cpu"] for _ in range(3 if first < 0.2 else 0)]
            except FailedError:
                break
            points.append([process("chunks", workload=name, shape=shape), min([first, *times])])
        grown[process.name] = points
    return grown


def _correct(process: Process, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for what, shape in (("two", Shape(2, 2, 40)), ("many", Shape(0, 20, 80))):
        try:
            found[what] = process("correct", workload=name, shape=shape)
        except FailedError as error:
            found[what] = {"failed": str(error)}
    return found


def _memory(process: Process, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for what, shape in (("calls", Shape(0, 2, 400)), ("text", Shape(2_000, 0, 0))):
        try:
            found[what] = process("memory", workload=name, shape=shape)
        except FailedError as error:
            found[what] = {"failed": str(error)}
    return found


def pending(group: Group, effort: Effort, calls: int = 9_500) -> dict[str, Any]:
    """What a stream with two calls adds while nothing waits in the ledger, and while thousands of calls do."""
    name = LONG_CALL_ON[0]
    python = environments.environment(group.name, list(group.packages))
    with Nursery(python) as nursery:
        nursery.prepare(name, TWO_CALLS)
        nursery.prepare(name, MANY_CALLS)
        bare = nursery.fork("bare", "bare")
        empty, full = nursery.fork("ours", "ours"), nursery.fork("ours", "ours")
        empty.name, full.name = "empty", "full"
        full("pend", workload=name, calls=calls)
        result = paired([bare, empty, full], Setting(name), [TWO_CALLS], rounds=effort.rounds, seconds=effort.seconds)
        return {"calls": calls, **{name: asdict(value) for name, value in added(result).items()}}


def parts(group: Group, effort: Effort) -> dict[str, Any]:
    """What a stream and a call add with all of this package, and without one of its parts: workload → shape → variant."""
    python = environments.environment(group.name, list(group.packages))
    shapes = {"no calls": QUIET, "two calls": TWO_CALLS, "500 calls": MANY_CALLS}
    found: dict[str, Any] = {}
    with Nursery(python) as nursery:
        for name in LONG_CALL_ON:
            for shape in shapes.values():
                nursery.prepare(name, shape)
        processes = [nursery.fork("bare", "bare"), nursery.fork("floor", "floor"), nursery.fork("ours", "ours")]
        processes += [nursery.fork("ours", variant) for variant in environments.contestant("ours").PARTS]
        for name in LONG_CALL_ON:
            result = paired(
                processes, Setting(name), list(shapes.values()), rounds=effort.rounds, seconds=effort.seconds
            )
            found[name] = {
                what: {variant: asdict(value) for variant, value in added(result, at).items() if variant != "bare"}
                for at, what in enumerate(shapes)
            }
    return found
