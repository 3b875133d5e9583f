"""One module per SDK; each names its workloads in ``WORKLOADS``. Adding an SDK is adding one file."""

from __future__ import annotations

import importlib
import pkgutil

from benchmarks.stainless import Workload

__all__ = ["find", "names"]


def _modules() -> dict[str, tuple[type[Workload], ...]]:
    found = (info.name for info in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").WORKLOADS for name in sorted(found)}


def names() -> list[str]:
    """Of all workloads; no SDK is imported for this."""
    return [workload.name for workloads in _modules().values() for workload in workloads]


def find(name: str) -> type[Workload]:
    return next(workload for workloads in _modules().values() for workload in workloads if workload.name == name)
