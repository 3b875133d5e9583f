"""Knowing that a call runs: around the app's own code, and from other libraries' spans.

``with dispatch(call_id):`` makes the execution's span and settles the call; ``acknowledge(call_id)`` settles one that
runs elsewhere. :class:`ExecutionAdopter` takes any ``execute_tool`` span with a call id for a dispatch.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span

from otel_toolcalls import conventions as c
from otel_toolcalls.decorating import decorated
from otel_toolcalls.guard import guarded, mishap
from otel_toolcalls.ledger import Claim, Entry, Settlement
from otel_toolcalls.ledger.book import Ledger
from otel_toolcalls.telemetry import Telemetry
from otel_toolcalls.turn import qualified_name
from otel_toolcalls.wire.reading import clean

__all__ = ["Dispatch", "Execution", "ExecutionAdopter", "acknowledge", "activate", "adopt_from", "dispatch"]

P = ParamSpec("P")
R = TypeVar("R")

_ID_PARAMETERS = ("call_id", "tool_call_id", "tool_use_id")

_active: list[tuple[Ledger, Telemetry]] = []
_entered: contextvars.ContextVar[object] = contextvars.ContextVar("otel_toolcalls_entered")
"""Tells where a block is left: its token is good only in the context in which the block was entered."""
_UNKNOWN = "unknown"
"""Stands for what was to be a word and is no text."""
_KEPT = 4096
_adopted: dict[int, None] = {}
"""Spans of other libraries, by id, that were taken for a dispatch; bounded, as some end where nobody tells us."""


def activate(ledger: Ledger | None, telemetry: Telemetry | None) -> None:
    """Dispatches are accounted for here from now on; None for nowhere."""
    _active[:] = [(ledger, telemetry)] if ledger is not None and telemetry is not None else []


class Execution:
    """One run of a tool's body, as its code sees it."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def result(self, value: object) -> None:
        """What the tool returned. Recorded only where capture of content is on."""
        guarded("dispatch.result", self._run.result, value)

    def fail(self, error_type: str) -> None:
        """The tool failed without an exception, for ``error_type`` (a short word, of few different ones)."""
        self._run.error_type = clean(error_type) or _UNKNOWN


class _Run:
    """One run of a tool's body: its span, and what the ledger says of it."""

    def __init__(self, call_id: str | None, name: str | None, tool_type: str) -> None:
        self.error_type: str | None = None
        self._call_id = call_id
        self._name = name
        self._tool_type = tool_type
        self._span: Span | None = None
        self._telemetry: Telemetry | None = None
        self._started = time.monotonic()
        self._seconds = 0.0
        self._end_ns = 0
        self._missing = ["the ledger's word", "the end of the body"]
        """They may come in either order, on different threads; the last of them ends the span."""

    def begin(self) -> Context | None:
        """Settle the call, and return the context for the body; None where nothing is accounted for."""
        if not _active:
            return None
        ledger, telemetry = _active[0]
        current = trace.get_current_span()
        if self._call_id is not None and _execution_of(current) == self._call_id and current.is_recording():
            if not _is_ours(current):
                _adopt(ledger, telemetry, current, self._call_id, linkable=True)
            return None  # that span stands for this run
        at = time.time()
        trace_id = current.get_span_context().trace_id
        claim = Claim(c.SettledBy.DISPATCH, at, self._call_id, self._name, trace_id)
        hint: Entry | None = guarded("dispatch.hint", ledger.hint, claim)
        span: Span | None = guarded(
            "dispatch.span", telemetry.execution, hint, self._call_id, self._name, self._tool_type
        )
        self._span, self._telemetry = span, telemetry

        def met(settlement: Settlement | None) -> None:
            guarded("dispatched", _dispatched, telemetry, span, settlement, at, hint)
            self._one_less_missing()

        try:
            ledger.claim(claim, met)
        except Exception as error:
            mishap("dispatch.claim", error)
            met(None)
        return trace.set_span_in_context(span) if span is not None else None

    def result(self, value: object) -> None:
        if self._span is not None and self._telemetry is not None:
            self._telemetry.result(self._span, self._name or "", value)

    def finish(self, error: BaseException | None) -> None:
        if error is not None and self.error_type is None:
            self.error_type = qualified_name(error)
        self._end_ns = time.time_ns()
        self._seconds = time.monotonic() - self._started
        self._one_less_missing()

    def _one_less_missing(self) -> None:
        if self._missing:
            self._missing.pop()
        if not self._missing and self._span is not None and self._telemetry is not None:
            guarded("executed", self._telemetry.executed, self._span, self._seconds, self.error_type, self._end_ns)


def _dispatched(
    telemetry: Telemetry, span: Span | None, settlement: Settlement | None, at: float, hint: Entry | None
) -> None:
    linked = hint is not None and settlement is not None and hint.key == settlement.entry.key
    telemetry.dispatched(span, settlement, at, linked=linked)


@dataclass(slots=True)
class _Entered:
    """A block that is under way, and what was attached for it."""

    run: _Run
    context: Context | None = None
    mark: contextvars.Token[object] | None = None
    token: contextvars.Token[Context] | None = None

    def left_where_entered(self) -> bool:
        """It is left in the thread or task that entered it: only there can its mark be taken back."""
        try:
            if self.mark is not None:
                _entered.reset(self.mark)
        except (ValueError, RuntimeError):
            return False
        return True


class Dispatch:
    """What :func:`dispatch` returns: a context manager, sync and async, and a decorator."""

    def __init__(self, call_id: str | None, name: str | None, tool_type: str, parameter: str | None) -> None:
        self._call_id = clean(call_id)
        self._name = clean(name)
        self._tool_type = tool_type
        self._parameter = parameter
        self._under_way: list[_Entered] = []
        """Several where one object is entered again before it is left."""

    def __enter__(self) -> Execution:
        run = _Run(self._call_id, self._name, self._tool_type)
        context: Context | None = guarded("dispatch", run.begin)
        if context is None:
            self._under_way.append(_Entered(run))
        else:
            self._under_way.append(_Entered(run, context, _entered.set(self), otel_context.attach(context)))
        return Execution(run)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._under_way:
            return
        current = otel_context.get_current()
        # By identity: contexts hold values of the app, which may raise when they are compared.
        here = [
            at for at, entered in enumerate(self._under_way) if entered.context is None or entered.context is current
        ]
        entered = self._under_way.pop(here[-1] if here else -1)
        # Left in another task or thread than it was entered in, or with something of the app's on top, it stays attached.
        if entered.token is not None and entered.left_where_entered() and current is entered.context:
            otel_context.detach(entered.token)
        guarded("dispatch", entered.run.finish, error)

    async def __aenter__(self) -> Execution:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def steps(self) -> _Steps:
        """In place of entering it: the same for a body that yields."""
        return _Steps(_Run(self._call_id, self._name, self._tool_type))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        parameters = (self._parameter,) if self._parameter is not None else _ID_PARAMETERS
        return decorated(function, parameters, self._of)  # type: ignore[no-any-return]

    def _of(self, call_id: Any, function: str) -> Dispatch:
        return Dispatch(call_id, self._name or function, self._tool_type, None)


class _Steps:
    """A run whose body yields: its context is attached while it takes a step, and never in between."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._begun = False
        self._context: Context | None = None
        """As the body left it at its last step."""
        self._token: contextvars.Token[Context] | None = None

    def __enter__(self) -> None:
        if not self._begun:
            self._begun = True
            self._context = guarded("dispatch", self._run.begin)
        if self._context is not None:
            self._token = otel_context.attach(self._context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._context = otel_context.get_current()
            otel_context.detach(token)

    def over(self, error: BaseException | None) -> None:
        guarded("dispatch", self._run.finish, error)


@overload
def dispatch(call_id: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def dispatch(
    call_id: str | None = None, *, name: str | None = None, tool_type: str = "function", parameter: str | None = None
) -> Dispatch: ...
def dispatch(
    call_id: Any = None, *, name: str | None = None, tool_type: str = "function", parameter: str | None = None
) -> Any:
    """Goes around a tool's body: a context manager, sync and async, or a decorator.

    ``with dispatch(call_id, name=...) as execution:`` makes the ``execute_tool`` span, linked to the announced call,
    and settles that call. Where ids are missing, the call is found by name and order. An exception marks the span and
    goes on its way.

    As a decorator, ``@dispatch`` or ``@dispatch(name=..., parameter=...)``, of a function that receives the call id: in
    ``parameter``, else in ``call_id``, ``tool_call_id`` or ``tool_use_id``. It may be a coroutine function, a generator
    function, sync or async (it runs from its first step to its last; its pieces are not recorded as its result), a
    partial, a callable object, a class or static method. For anything else it raises TypeError.

    It works from any thread or task. While nothing is instrumented it does nothing.
    """
    if callable(call_id) or hasattr(type(call_id), "__get__"):  # a class method cannot be called itself
        return Dispatch(None, name, tool_type, parameter)(call_id)
    return Dispatch(call_id, name, tool_type, parameter)


def acknowledge(call_id: str | None, *, by: str, name: str | None = None) -> None:
    """An announced call runs elsewhere (a browser, another service): follow it no longer.

    ``by`` says where, in few words; it is recorded (what is no text, as ``unknown``). Without an id the call is found by
    ``name`` and order.
    """
    if _active:
        guarded("acknowledge", _acknowledge, *_active[0], call_id, by, name)


def _acknowledge(ledger: Ledger, telemetry: Telemetry, call_id: str | None, by: str, name: str | None) -> None:
    call_id, by, name = clean(call_id), clean(by) or _UNKNOWN, clean(name)
    current, at_ns = otel_context.get_current(), time.time_ns()
    trace_id = trace.get_current_span(current).get_span_context().trace_id

    def met(settlement: Settlement | None) -> None:
        entry = settlement.entry if settlement is not None else None
        guarded("acknowledged", telemetry.acknowledged, entry, call_id, name, by, current, at_ns)

    ledger.claim(Claim(c.SettledBy.ACKNOWLEDGE, at_ns / 1e9, call_id, name, trace_id), met)


_adopters: weakref.WeakKeyDictionary[Any, ExecutionAdopter] = weakref.WeakKeyDictionary()
"""By provider: one does not let go of a processor, so the one that it has is put to use again."""


def adopt_from(provider: Any, ledger: Ledger, telemetry: Telemetry) -> ExecutionAdopter | None:
    """Take the executions among a provider's spans for dispatches; None where it takes no processor."""
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        return None
    adopter: ExecutionAdopter | None = None
    with contextlib.suppress(TypeError):  # a class of its own may have neither hash nor weak references
        adopter = _adopters.get(provider)
    if adopter is None:
        adopter = ExecutionAdopter()
        add(adopter)
        with contextlib.suppress(TypeError):
            _adopters[provider] = adopter
    adopter.employ(ledger, telemetry)
    return adopter


class ExecutionAdopter:
    """A span processor: takes any ``execute_tool`` span with a call id, of whichever library, for a dispatch.

    The call is linked where its id is there from the start. Where a library sets it later, the call is settled when the
    span ends, or as soon as a ``dispatch()`` inside asks; a span that has ended takes no link, so one of ours says it.
    """

    def __init__(self) -> None:
        self._use: tuple[Ledger, Telemetry] | None = None

    def employ(self, ledger: Ledger, telemetry: Telemetry) -> None:
        """Account for executions here from now on."""
        self._use = (ledger, telemetry)

    def retire(self) -> None:
        """Do nothing from now on."""
        self._use = None

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:  # noqa: ARG002  # the interface's
        guarded("adopt", self._meet, span, True)

    def on_end(self, span: Any) -> None:
        guarded("adopt", self._meet, span, False)
        _adopted.pop(span.get_span_context().span_id, None)

    def _on_ending(self, span: Any) -> None:
        """Part of the interface since it was made; nothing to do."""

    def shutdown(self) -> None:
        """Part of the interface; nothing is held."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002  # the interface's
        """Part of the interface; nothing is held."""
        return True

    def _meet(self, span: Any, starting: bool) -> None:
        call_id = _execution_of(span)
        if self._use is not None and call_id is not None and not _is_ours(span):
            _adopt(*self._use, span, call_id, linkable=starting)


def _adopt(ledger: Ledger, telemetry: Telemetry, span: Any, call_id: str, *, linkable: bool) -> None:
    """Take another library's span for a dispatch of the call, once."""
    context = span.get_span_context()
    if context.span_id in _adopted:
        return
    while len(_adopted) >= _KEPT:
        _adopted.pop(next(iter(_adopted)), None)
    _adopted[context.span_id] = None
    name = clean(span.attributes.get(c.TOOL_NAME))
    at_ns = span.start_time or time.time_ns()
    claim = Claim(c.SettledBy.SPAN, at_ns / 1e9, call_id, name, context.trace_id)

    def met(settlement: Settlement | None) -> None:
        _dispatched(telemetry, span if linkable else None, settlement, claim.at, None)
        if settlement is not None and not linkable:
            inside = trace.set_span_in_context(NonRecordingSpan(context), Context())
            telemetry.acknowledged(settlement.entry, call_id, claim.name, c.EXECUTED, inside, time.time_ns())

    ledger.claim(claim, met)


def _execution_of(span: Any) -> str | None:
    """The id of the call that a span executes, as far as its attributes say so by now."""
    attributes = getattr(span, "attributes", None) or {}
    call_id = attributes.get(c.TOOL_CALL_ID) if attributes.get(c.OPERATION_NAME) == c.OP_EXECUTE else None
    return clean(call_id)


def _is_ours(span: Any) -> bool:
    return getattr(getattr(span, "instrumentation_scope", None), "name", None) == c.SCOPE
