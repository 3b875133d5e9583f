"""Helpers that are asked in one place and send their request in another: where they were asked.

anthropic's ``messages.stream(...)`` makes a manager, and the request goes out when the app enters it. The span that
another library makes for the response may be current only while the manager is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import Any

from otel_toolcalls.guard import guarded
from otel_toolcalls.hooks.patching import Wrapper
from otel_toolcalls.runtime import Runtime

__all__ = ["asked_in", "wrap_manager"]

_asked: ContextVar[object] = ContextVar("otel_toolcalls_asked", default=None)


def asked_in() -> object:
    """The context in which the helper was asked that sends a request here; None where none does."""
    return _asked.get()


def wrap_manager(runtime: Runtime) -> Wrapper:
    """``MessageStreamManager.__init__``, whose first argument sends the request."""

    def init(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = guarded("manager", _noted, runtime, args, kwargs) or (args, kwargs)
        return wrapped(*args, **kwargs)

    return init


def _noted(runtime: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    context = runtime.here()
    if args:
        return (_sending(args[0], context), *args[1:]), kwargs
    return args, {**kwargs, "api_request": _sending(kwargs["api_request"], context)}


def _sending(request: Any, context: object) -> Any:
    return _Sending(request, context) if hasattr(request, "__await__") else _sending_now(request, context)


def _sending_now(request: Callable[[], Any], context: object) -> Callable[[], Any]:
    def send() -> Any:
        before = _asked.get()
        _asked.set(context)
        try:
            return request()
        finally:
            _asked.set(before)

    return send


class _Sending:
    """The same for what is awaited. No coroutine: one that is never awaited complains."""

    __slots__ = ("_context", "_request")

    def __init__(self, request: Awaitable[Any], context: object) -> None:
        self._request = request
        self._context = context

    def __await__(self) -> Generator[Any, Any, Any]:
        before = _asked.get()
        _asked.set(self._context)
        try:
            return (yield from self._request.__await__())
        finally:
            _asked.set(before)  # not reset(): it may be closed in another context, where that raises
