"""openai's tool runner: each function that it runs is a dispatch of the call.

An answer in the next request would settle most calls; but where the function raises, or the app stops the runner after
it, there is none, and the call ran all the same.
"""

from __future__ import annotations

from typing import Any, Final

from otel_toolcalls.dispatch import dispatch
from otel_toolcalls.hooks.patching import Target, Wrapper
from otel_toolcalls.runtime import Runtime
from otel_toolcalls.wire.reading import clean, field

__all__ = ["TARGETS"]


def _wrap_execution(_: Runtime) -> Wrapper:
    """``ResponsesToolRunner._execute_function(run, item)``."""

    def execute(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call_id, name = _call(args, kwargs)
        with dispatch(call_id, name=name) as execution:
            output = wrapped(*args, **kwargs)
            execution.result(field(output, "output"))
            return output

    return execute


def _wrap_async_execution(_: Runtime) -> Wrapper:
    """``AsyncResponsesToolRunner._execute_function(run, item)``."""

    def execute(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _execute_async(wrapped, args, kwargs)

    return execute


async def _execute_async(wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    call_id, name = _call(args, kwargs)
    with dispatch(call_id, name=name) as execution:
        output = await wrapped(*args, **kwargs)
        execution.result(field(output, "output"))
        return output


def _call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str | None, str | None]:
    item = next((given for given in (*args, *kwargs.values()) if field(given, "type") == "function_call"), None)
    return clean(field(item, "call_id")), clean(field(item, "name"))


_MODULE: Final = "openai.lib.responses_tool_runner"
TARGETS: Final = (
    Target(_MODULE, "ResponsesToolRunner._execute_function", _wrap_execution, optional=True),
    Target(_MODULE, "AsyncResponsesToolRunner._execute_function", _wrap_async_execution, optional=True),
)
