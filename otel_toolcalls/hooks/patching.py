"""Patches: a table of targets, each guarded on its own, each undone to the identical object.

A target in a module that the app has not imported is patched when it does. A target that an SDK no longer has is
reported, by :func:`Patches.report` and one warning, and harms nothing else; so is one whose module is gone.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import wrapt

from otel_toolcalls.guard import mishap
from otel_toolcalls.runtime import Runtime

__all__ = ["Fact", "Hook", "Patches", "Target"]

_logger = logging.getLogger("otel_toolcalls")

Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""``(wrapped, instance, args, kwargs) -> result``, as wrapt calls it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One attribute of one class (or module) of an SDK, and what wraps it."""

    module: str
    path: str
    """``Class.method``, or ``function``."""
    wrap: Callable[[Runtime], Wrapper]
    optional: bool = False
    """Some supported versions of the SDK never had it."""


@dataclass(frozen=True, slots=True)
class Hook:
    """What is patched of one SDK."""

    sdk: str
    """Its import name."""
    distribution: str
    targets: Sequence[Target]


@dataclass(frozen=True, slots=True)
class Fact:
    """The state of one target, as ``doctor`` shows it."""

    sdk: str
    version: str | None
    """None where the SDK is not installed."""
    target: str
    state: str
    """``patched``, ``waiting`` (the app has not imported it), ``moved``, ``absent`` (optional), ``not installed``."""
    detail: str = ""
    optional: bool = False
    """Some supported versions of the SDK never had it."""


class Patches:
    """The patches of one ``instrument()``."""

    def __init__(self, hooks: Sequence[Hook], runtime: Runtime) -> None:
        self._hooks = hooks
        self._runtime = runtime
        self._undo: list[Callable[[], None]] = []
        self._facts: dict[tuple[str, str], tuple[str, str]] = {}
        self._active = True

    def apply(self) -> None:
        """Patch what is imported, and the rest when the app imports it."""
        for hook in self._hooks:
            for module in dict.fromkeys((*(target.module for target in hook.targets), hook.sdk)):
                _when_imported(module, self, hook)

    def imported(self, hook: Hook, module: Any) -> None:
        """A module of an SDK is there."""
        if not self._active:
            return
        for target in hook.targets:
            if target.module == module.__name__:
                self._patch(hook, target, module)
            elif module.__name__ == hook.sdk and not _exists(target.module):
                self._settle(hook, target, ("absent", "") if target.optional else ("moved", "its module is gone"))

    def undo(self) -> None:
        """Put every target back, to the identical object."""
        self._active = False
        while self._undo:
            self._undo.pop()()

    def report(self) -> list[Fact]:
        """The state of each target."""
        return [
            Fact(
                hook.sdk,
                version,
                f"{target.module}.{target.path}",
                *self._state(hook, target, version),
                target.optional,
            )
            for hook in self._hooks
            for version in [_version(hook.distribution)]
            for target in hook.targets
        ]

    def _state(self, hook: Hook, target: Target, version: str | None) -> tuple[str, str]:
        if version is None:
            return "not installed", ""
        return self._facts.get((target.module, target.path), ("waiting", ""))

    def _patch(self, hook: Hook, target: Target, module: Any) -> None:
        try:
            self._settle(hook, target, self._wrap(target, module))
        except Exception as error:
            mishap(f"patch {target.module}.{target.path}", error)
            self._settle(hook, target, ("moved", f"{type(error).__name__}: {error}"))

    def _settle(self, hook: Hook, target: Target, state: tuple[str, str]) -> None:
        self._facts[target.module, target.path] = state
        if state[0] == "moved":
            _logger.warning(
                "otel-toolcalls: %s %s has no %s.%s any more; what is read there is not observed "
                "(see `otel-toolcalls doctor`)",
                hook.sdk,
                _version(hook.distribution),
                target.module,
                target.path,
            )

    def _wrap(self, target: Target, module: Any) -> tuple[str, str]:
        owner: Any = module
        *parents, name = target.path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        # As it stands on its owner, not as access binds it: undoing puts this very object back.
        original = vars(owner).get(name) if owner is not None else None
        if original is None:
            return ("absent", "") if target.optional else ("moved", "")
        wrapper = wrapt.FunctionWrapper(original, self._guard(target.wrap(self._runtime)))
        setattr(owner, name, wrapper)

        def undo() -> None:
            if vars(owner).get(name) is wrapper:
                setattr(owner, name, original)
            # else somebody wrapped it after us, and ours stays below, inactive

        self._undo.append(undo)
        return ("patched", "")

    def _guard(self, wrapper: Wrapper) -> Wrapper:
        def call(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not self._active:
                return wrapped(*args, **kwargs)
            return wrapper(wrapped, instance, args, kwargs)

        return call


_waiting: dict[str, list[tuple[Patches, Hook]]] = {}


def _when_imported(module: str, patches: Patches, hook: Hook) -> None:
    present = sys.modules.get(module)
    if present is not None and not getattr(getattr(present, "__spec__", None), "_initializing", False):
        patches.imported(hook, present)
        return
    if module not in _waiting:
        wrapt.register_post_import_hook(_imported, module)
    _waiting.setdefault(module, [])[:] = [*_still_active(module), (patches, hook)]


def _still_active(module: str) -> list[tuple[Patches, Hook]]:
    return [entry for entry in _waiting.get(module, ()) if entry[0]._active]


def _imported(module: Any) -> None:
    entries = _still_active(module.__name__)
    _waiting.pop(module.__name__, None)  # this was called for once: who waits for it again is registered again
    for patches, hook in entries:
        patches.imported(hook, module)


def _exists(module: str) -> bool:
    """Asked once the SDK is there. False only where it certainly has no such module."""
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:
        return not module.startswith(str(error.name))
    except Exception:
        return True


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
