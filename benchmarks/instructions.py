"""Instructions per chunk, counted by callgrind: the same on every run, whatever else the machine does."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.environments import Nursery, Process, environment
from benchmarks.figures import Group
from benchmarks.shapes import Shape

__all__ = ["per_chunk"]

SHORT, LONG = 50, 550


def per_chunk(group: Group, workloads: list[str], variants: list[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Workload → kind of chunk → variant → instructions, of the whole replay. Empty where there is no valgrind."""
    if shutil.which("valgrind") is None:
        return {}
    kinds = {
        "tool chunk": (Shape(0, 2, SHORT), Shape(0, 2, LONG)),
        "text chunk": (Shape(SHORT, 0, 0), Shape(LONG, 0, 0)),
    }
    found: dict[str, dict[str, dict[str, float]]] = {name: {kind: {} for kind in kinds} for name in workloads}
    python = environment(group.name, list(group.packages))
    with tempfile.TemporaryDirectory() as folder:
        under = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counted.%p")
        with Nursery(python, under=under) as nursery:
            for name in workloads:
                for pair in kinds.values():
                    for shape in pair:
                        nursery.prepare(name, shape)
            for contestant, variant in group.members:
                if variant not in variants:
                    continue
                print(f"  instructions: {variant}", flush=True)
                process = nursery.fork(contestant, variant)
                counted = _Counter(process, Path(folder))
                for name in workloads:
                    for kind, (short, long) in kinds.items():
                        chunks = [process("chunks", workload=name, shape=shape) for shape in (short, long)]
                        counts = [counted(name, shape) for shape in (short, short, long)][1:]
                        found[name][kind][variant] = (counts[1] - counts[0]) / (chunks[1] - chunks[0])
                process.close()
    return found


class _Counter:
    def __init__(self, process: Process, folder: Path) -> None:
        self._process, self._folder = process, folder
        self._control("--instr=on")

    def __call__(self, workload: str, shape: Shape) -> int:
        self._control("--zero")
        self._process("time", workload=workload, shape=shape, streams=1, replay=True)
        before = set(self._folder.iterdir())
        self._control("--dump")
        (dump,) = set(self._folder.iterdir()) - before
        total = re.search(r"^(?:totals|summary): (\d+)", dump.read_text(errors="replace"), re.MULTILINE)
        if total is None:
            raise ValueError(f"no total in {dump.name}")
        return int(total[1])

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self._process.pid)], check=True, capture_output=True)
