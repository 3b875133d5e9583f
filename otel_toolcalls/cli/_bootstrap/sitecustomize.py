"""What Python imports first in every process under ``otel-toolcalls run``.

The folder of this file is the first entry of PYTHONPATH there. It starts the instrumentation, takes the folder off
``sys.path`` again, and gives way to the ``sitecustomize`` that Python would have found without it. PYTHONPATH itself
stays as it is: the Python processes that the app starts are to be instrumented too.
"""
# ruff: noqa: INP001  (a folder for PYTHONPATH, no package)

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


def _start() -> None:
    try:
        from otel_toolcalls.cli.child import start  # noqa: PLC0415  (what may fail is guarded)

        start()
    except Exception as error:  # the app comes first, whatever is wrong with us
        problem = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            problem = f"{error.name} is not installed for {sys.executable}; try: pip install 'otel-toolcalls[cli]'"
        print(f"otel-toolcalls: not tracing process {os.getpid()}: {problem}", file=sys.stderr)


def _give_way() -> None:
    here = Path(__file__).parent.resolve()
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start()
_give_way()
