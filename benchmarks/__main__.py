"""``python -m benchmarks run [GROUP ...]`` measures everything (or some groups again) and writes docs/performance.md;
``check`` is the short form that fails where a ratio got out of hand; ``report`` writes the document again.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import check, report
from benchmarks.environments import ROOT, FailedError, contestant, environment, processor
from benchmarks.figures import FULL, PEERS, Group, groups, measure_group, parts, pending
from benchmarks.instructions import per_chunk

RESULTS = Path(__file__).with_name("results.json")
DOCUMENT = ROOT / "docs" / "performance.md"
COUNTED = ["bare", "pass-through", "floor", "ours"]


def run(only: Sequence[str]) -> None:
    """Groups that are not named keep what an earlier run found."""
    machine = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }
    for group in (group for group in groups() if not only or group.name in only):
        load = round(os.getloadavg()[0], 1)
        print(f"{group.name} (load {load})", flush=True)
        home = group.name == "ours"
        for measured in measure_group(group, FULL if home else PEERS):
            _keep({"machine": machine, "groups": {group.name: {**measured, "load": load}}})
        _keep({"starts": _starts(group)})
        if home:
            _keep({"pending": pending(group, FULL), "parts": parts(group, FULL)})
            _keep({"instructions": per_chunk(group, ["openai chat", "openai responses", "anthropic raw"], COUNTED)})
    write()


def _keep(found: dict[str, Any]) -> None:
    """Beside what other groups found."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, value in found.items():
        results[name] = {**results.get(name, {}), **value} if name in {"groups", "starts"} else value
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def write() -> None:
    """The document and its plot, out of what is in the results."""
    DOCUMENT.write_text(report.render(json.loads(RESULTS.read_text())))
    plotter = environment("plot", ["matplotlib"])
    command = [str(plotter), "-m", "benchmarks.plot", str(RESULTS), str(DOCUMENT.with_suffix(".svg"))]
    subprocess.run(command, check=True, cwd=ROOT)


def _starts(group: Group) -> dict[str, Any]:
    """Import and switching on, the best of a few fresh processes; the first variant of each contestant stands for it."""
    python = environment(group.name, list(group.packages))
    found = {}
    for name in dict.fromkeys(name for name, _ in group.members if name not in {"bare", "floor"}):
        variant, environ = next(iter(contestant(name).VARIANTS.items()))
        command = [str(python), "-m", "benchmarks.starting", name, variant]
        settings = {**os.environ, "ANTHROPIC_OPEN_TELEMETRY": "false", **environ}

        def once(*more: str, command: list[str] = command, settings: dict[str, str] = settings) -> dict[str, Any]:
            done = subprocess.run(
                [*command, *more], cwd=ROOT, env=settings, capture_output=True, text=True, check=True, timeout=120
            )
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer

        try:
            after = [once() for _ in range(4)][1:]  # the first one compiles
            alone = once("--alone")
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"  no start of {name}: {error}")
            continue
        found[variant] = {**min(after, key=lambda one: float(one["cpu"])), "sdks": alone["sdks"]}
    return found


def main() -> int:
    match sys.argv[1:]:
        case ["run", *only]:
            run(only)
        case ["report"]:
            write()
        case ["check"]:
            return check.main()
        case _:
            print(str(__doc__).strip(), file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FailedError as failed:
        sys.exit(f"benchmarks: {failed}")
