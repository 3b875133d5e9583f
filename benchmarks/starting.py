"""What it takes to import a contestant and to switch it on, in a fresh process: ``python -m benchmarks.starting NAME VARIANT``.

With ``--alone`` no SDK is imported before, and the answer says which were imported by the contestant.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time

from benchmarks.telemetry import Telemetry

SDKS = ("openai", "anthropic")


def main() -> None:
    name, variant = sys.argv[1:3]
    if "--alone" not in sys.argv:
        for sdk in SDKS:
            importlib.import_module(sdk)
    telemetry = Telemetry()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    before = set(sys.modules)
    cpu = time.process_time()
    module = importlib.import_module(f"benchmarks.contestants.{name}")
    module.instrument(telemetry, variant)
    cpu = time.process_time() - cpu
    brought = [sdk for sdk in SDKS if sdk in sys.modules and sdk not in before]
    print(
        json.dumps({"cpu": cpu, "modules": len(set(sys.modules) - before), "sdks": brought}), file=answers, flush=True
    )
    os._exit(0)


if __name__ == "__main__":
    main()
