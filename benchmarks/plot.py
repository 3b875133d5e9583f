"""docs/performance.svg: CPU added per chunk of tool-call arguments, one bar per contestant and workload.

``python -m benchmarks.plot RESULTS SVG``; runs in an environment of its own, with matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "otel-toolcalls"
import matplotlib.pyplot as plt  # noqa: E402 - the backend is chosen first

WORKLOADS = ("openai chat", "openai responses", "anthropic raw")
COLOURS = {"openai chat": "#4c78a8", "openai responses": "#72b7b2", "anthropic raw": "#f58518"}
FLOOR = 1e-3
"""µs below which a bar would be noise."""


def main() -> None:
    results: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    rows: list[tuple[str, dict[str, float]]] = []
    for found in results["groups"].values():
        names: dict[str, dict[str, float]] = {}
        for workload in WORKLOADS:
            for name, figure in found["workloads"].get(workload, {}).get("tool chunk, sync", {}).items():
                if name != "bare":
                    names.setdefault(name, {})[workload] = figure["median"] * 1e6
        rows += names.items()
    figure, axes = plt.subplots(figsize=(9, 0.5 * len(rows) + 1.2))
    for at, (_, values) in enumerate(rows):
        for offset, workload in enumerate(WORKLOADS):
            if workload in values:
                value = max(values[workload], FLOOR)
                axes.barh(at + (offset - 1) * 0.27, value, height=0.25, color=COLOURS[workload])
                axes.text(value * 1.06, at + (offset - 1) * 0.27, f"{value:.2f}", va="center", fontsize=6)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("µs of CPU added per chunk (replay, sync; logarithmic)")
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[workload]) for workload in WORKLOADS]
    axes.legend(handles, WORKLOADS, loc="lower right", fontsize=8)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
