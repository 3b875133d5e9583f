"""Puts a block around the body of whatever an app calls: functions of every kind, partials, callable objects, methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Protocol

from otel_toolcalls.guard import guarded

__all__ = ["Block", "Steps", "decorated"]


class Steps(Protocol):
    """A block around a body that yields: entered for each step of it, so that nothing is left attached in between."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def over(self, error: BaseException | None) -> None:
        """The body has ended; ``error`` is what it raised."""


class Block(Protocol):
    """What goes around one run of a body."""

    def __enter__(self) -> Any:
        """Returns what is told the body's ``result``."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def steps(self) -> Steps:
        """In place of entering it: the same for a body that yields."""


BlockOf = Callable[[Any, str], Block]
"""``(argument, name of the function) -> block``."""
_Call = Callable[[tuple[Any, ...], dict[str, Any]], Block]


def decorated(function: Any, parameters: Sequence[str], block_of: BlockOf) -> Any:
    """``function`` with a block around each run, made of what it is given as the first of ``parameters`` that it has.

    A function stays of its kind: coroutine function, generator function, async generator function, class or static
    method. Raises TypeError for what is no function and for one without such a parameter.
    """
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(decorated(function.__func__, parameters, block_of))
    named = function
    while isinstance(named, functools.partial):
        named = named.func
    if inspect.isclass(named) or not callable(named):
        got = named if inspect.isclass(named) else type(named)
        raise TypeError(f"dispatch: expected a function that receives the call id; got {got.__qualname__}")
    signature = _signature(function)
    parameter = next((name for name in parameters if name in signature.parameters), None)
    if parameter is None:
        raise TypeError(
            f"dispatch: {_name(named, '__qualname__')} receives no call id: expected a parameter "
            f"{' or '.join(parameters)}; name yours with @dispatch(parameter=...)"
        )
    name = _name(named, "__name__")

    def around(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Block:
        return block_of(guarded("dispatch.bind", _argument, signature, parameter, args, kwargs), name)

    body = named if inspect.isroutine(named) else named.__call__
    run = next(wrap for is_such, wrap in _KINDS if is_such(body))(function, around)
    run.__name__ = name
    return functools.update_wrapper(run, function)


def _signature(function: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # of what is written in C it may not be known
        return inspect.Signature()


def _name(function: object, attribute: str) -> str:
    return str(getattr(function, attribute, None) or getattr(type(function), attribute))


def _argument(signature: inspect.Signature, parameter: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    bound = signature.bind_partial(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments.get(parameter)


# ---- a wrapper of each kind ------------------------------------------------------------------------------------------


def _function(function: Callable[..., Any], around: _Call) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with around(args, kwargs) as block:
            value = function(*args, **kwargs)
            block.result(value)
            return value

    return run


def _coroutine_function(function: Callable[..., Any], around: _Call) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        with around(args, kwargs) as block:
            value = await function(*args, **kwargs)
            block.result(value)
            return value

    return run


def _generator_function(function: Callable[..., Any], around: _Call) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        steps = around(args, kwargs).steps()
        try:
            generator = function(*args, **kwargs)
            step, value = generator.send, None
            while True:
                try:
                    with steps:
                        piece = step(value)
                except StopIteration as end:
                    steps.over(None)
                    return end.value
                try:
                    value = yield piece
                    step = generator.send
                except GeneratorExit:
                    with steps:
                        generator.close()
                    raise
                except BaseException as thrown:
                    step, value = generator.throw, thrown
        except GeneratorExit:  # whoever reads it has had enough: no failure of the tool
            steps.over(None)
            raise
        except BaseException as raised:
            steps.over(raised)
            raise

    return run


def _async_generator_function(function: Callable[..., Any], around: _Call) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        steps = around(args, kwargs).steps()
        try:
            generator = function(*args, **kwargs)
            step, value = generator.asend, None
            while True:
                try:
                    with steps:
                        piece = await step(value)
                except StopAsyncIteration:
                    steps.over(None)
                    return
                try:
                    value = yield piece
                    step = generator.asend
                except GeneratorExit:
                    with steps:
                        await generator.aclose()
                    raise
                except BaseException as thrown:
                    step, value = generator.athrow, thrown
        except GeneratorExit:
            steps.over(None)
            raise
        except BaseException as raised:
            steps.over(raised)
            raise

    return run


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Callable[..., Any], _Call], Callable[..., Any]]], ...] = (
    (inspect.isasyncgenfunction, _async_generator_function),
    (inspect.isgeneratorfunction, _generator_function),
    (inspect.iscoroutinefunction, _coroutine_function),
    (callable, _function),
)
