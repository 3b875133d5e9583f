"""docs/performance.svg: CPU added per chunk of tool-call arguments, one bar per contestant and workload.

The floor and ours come first. A bar is pale where the calls that came out are wrong, or none: that is no race won.

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

from benchmarks import report  # noqa: E402

WORKLOADS = ("openai chat", "openai responses", "anthropic raw")
COLOURS = {"openai chat": "#4c78a8", "openai responses": "#72b7b2", "anthropic raw": "#f58518"}
NOISE = 0.02
"""µs below which a bar would show nothing but noise."""


def main() -> None:
    results: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    rows = report.variants(results)
    figure, axes = plt.subplots(figsize=(9, 0.5 * len(rows) + 1.2))
    for at, (group, name) in enumerate(rows):
        for offset, workload in enumerate(WORKLOADS):
            added = results["groups"][group]["workloads"].get(workload, {}).get("tool chunk, sync", {}).get(name)
            if added is None:
                continue
            micros, place = added["median"] * 1e6, at + (offset - 1) * 0.27
            value, said = (micros, f"{micros:.2f}") if micros > NOISE else (NOISE, f"below {NOISE:g}")
            pale = report.right(results, group, name, workload) is False
            axes.barh(place, value, height=0.25, color=COLOURS[workload], alpha=0.25 if pale else 1.0)
            axes.text(value * 1.06, place, said, va="center", fontsize=6)
    axes.set_yticks(range(len(rows)), [name for _, name in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("µs of CPU added per chunk (replay, sync; logarithmic); pale: no calls, or wrong ones")
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[workload]) for workload in WORKLOADS]
    axes.legend(handles, WORKLOADS, loc="lower right", fontsize=8, framealpha=1)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
