"""Instructions per chunk, counted by callgrind: the same on every run, whatever else the machine does.

``python -m benchmarks.instructions CONTESTANT VARIANT WORKLOAD ...``, run under callgrind, counts those of one contestant
and prints them as JSON. It has no process forked for it, as callgrind cannot be told anything about a forked one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.child import Child
from benchmarks.environments import ROOT, contestant, environment
from benchmarks.figures import Group
from benchmarks.shapes import Shape

__all__ = ["per_chunk"]

KINDS = {
    "tool chunk": (Shape(0, 2, 50), Shape(0, 2, 550)),
    "text chunk": (Shape(50, 0, 0), Shape(550, 0, 0)),
}
_COUNTS = "counted"
_PATIENCE = 30.0
"""Seconds that callgrind may take to write its counts."""


def per_chunk(group: Group, workloads: list[str], variants: list[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Workload → kind of chunk → variant → instructions, of the whole replay. Empty where there is no valgrind."""
    if shutil.which("valgrind") is None:
        return {}
    python = environment(group.name, list(group.packages))
    found: dict[str, dict[str, dict[str, float]]] = {name: {kind: {} for kind in KINDS} for name in workloads}
    for name, variant in group.members:
        if variant not in variants:
            continue
        print(f"  instructions: {variant}", flush=True)
        for workload, counts in _counted(python, name, variant, workloads).items():
            for kind, count in counts.items():
                found[workload][kind][variant] = count
    return found


def _counted(python: Path, name: str, variant: str, workloads: list[str]) -> dict[str, dict[str, float]]:
    settings = {**os.environ, "ANTHROPIC_OPEN_TELEMETRY": "false", **contestant(name).VARIANTS[variant]}
    with tempfile.TemporaryDirectory() as folder:
        under = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/{_COUNTS}"]
        command = [*under, str(python), "-m", "benchmarks.instructions", folder, name, variant, *workloads]
        done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=True)
    counts: dict[str, dict[str, float]] = json.loads(done.stdout)
    return counts


def main(folder: str, name: str, variant: str, *workloads: str) -> None:
    """Count in this process."""
    child = Child()
    for workload in workloads:
        for shapes in KINDS.values():
            for shape in shapes:
                child.prepare(workload, shape)
    child.become(name, variant, {})
    child.begin()
    _tell("--instr=on")
    found: dict[str, Any] = {workload: {} for workload in workloads}
    for workload in workloads:
        for kind, (short, long) in KINDS.items():
            chunks = [child.chunks(workload, shape) for shape in (short, long)]
            # What is made once is made before anything is counted.
            counts = [_count(child, workload, shape, Path(folder)) for shape in (short, long, short, long)][2:]
            found[workload][kind] = (counts[1] - counts[0]) / (chunks[1] - chunks[0])
    print(json.dumps(found), flush=True)
    os._exit(0)  # contestants' threads and exit hooks are not measured


def _count(child: Child, workload: str, shape: Shape, folder: Path) -> int:
    before = set(folder.iterdir())
    _tell("--zero")
    child.time(workload, shape, 1, replay=True)
    _tell("--dump")
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        for dump in set(folder.iterdir()) - before:
            total = re.search(r"^totals: (\d+)", dump.read_text(errors="replace"), re.MULTILINE)
            if total is not None:
                return int(total[1])
        time.sleep(0.02)
    raise TimeoutError(f"callgrind wrote no counts within {_PATIENCE:g} s")


def _tell(what: str) -> None:
    subprocess.run(["callgrind_control", what, str(os.getpid())], check=True, capture_output=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
