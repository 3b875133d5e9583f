"""The accumulator: one per stream, keyed by position, strict.

Its three rules are the whole of its correctness. Fragments are *owned*: the key is the position that the event
carries, never a property of the call. They are *ordered*: the only operation is append. They are *opaque*: nothing
looks inside one before its call is closed; then the arguments are joined and parsed, once.

Nothing is made up on first access. A position that is not open is evidence that an event was lost or repeated, and is
raised as a :class:`ProtocolError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from otel_toolcalls.conventions import Violation

__all__ = [
    "Accumulator",
    "Arguments",
    "Assemble",
    "CallBuffer",
    "ProtocolError",
    "freeform_text",
    "json_text",
    "whole_value",
]


class ProtocolError(Exception):
    """An event contradicts what came before it on its stream.

    ``kind`` says how, ``position`` where, ``state`` what the position was in when the event came: ``unknown``,
    ``open``, ``closed`` or ``given up``.
    """

    def __init__(self, kind: Violation, position: Hashable, state: str) -> None:
        super().__init__(f"{kind.value.replace('_', ' ')} at position {position!r}, which is {state}")
        self.kind = kind
        self.position = position
        self.state = state


@dataclass(frozen=True, slots=True)
class Arguments:
    """A closed call's arguments: the text as it was sent, and what one parse of it said."""

    text: str
    valid: bool
    """They may be handed to the tool: one JSON document, nothing at all, or a text that was never meant to be JSON."""
    values: int = 1
    """How many whole JSON values stand one after another in the text, counted up to 100; more than one where calls were
    merged."""

    @property
    def whole(self) -> bool:
        """Nothing can be missing: they are valid, and not nothing at all."""
        return self.valid and bool(self.text) and not self.text.isspace()

    @property
    def size(self) -> int:
        """Length in bytes of UTF-8."""
        return len(self.text) if self.text.isascii() else len(self.text.encode("utf-8", "surrogatepass"))


Assemble = Callable[[Sequence[Any]], Arguments]
"""Makes the arguments of the fragments of one call, in order of arrival, when the call is closed."""

# Numbers are checked, not converted: the interpreter refuses to convert integers of more than some thousand digits.
_decoder = json.JSONDecoder(parse_int=str, parse_float=str)


def json_text(fragments: Sequence[str]) -> Arguments:
    """Fragments of the text of one JSON document. No text at all is a call without arguments, and valid."""
    text = "".join(fragments)
    if not text or text.isspace():
        return Arguments(text, valid=True, values=0)
    try:
        _decoder.decode(text)
    except (ValueError, RecursionError):
        return Arguments(text, valid=False, values=_count_values(text))
    return Arguments(text, valid=True)


def freeform_text(fragments: Sequence[str]) -> Arguments:
    """Fragments of a text that is no JSON, such as a custom tool's input or a program."""
    return Arguments("".join(fragments), valid=True)


def whole_value(fragments: Sequence[Any]) -> Arguments:
    """The one fragment is the value itself, as providers send that do not stream arguments."""
    text = json.dumps(fragments[0], default=str, ensure_ascii=False) if fragments else ""
    return Arguments(text, valid=True)


_blank = re.compile(r"[ \t\n\r]*")
_MOST_VALUES = 100
"""Counting goes on in the app's flow: a megabyte of tiny values would take seconds."""


def _count_values(text: str) -> int:
    count = at = 0
    try:
        while count < _MOST_VALUES:
            _, at = _decoder.raw_decode(text, cast("re.Match[str]", _blank.match(text, at)).end())
            count += 1
    except (ValueError, RecursionError):
        pass
    return count


@dataclass(slots=True)
class CallBuffer:
    """One announced call on its way: what its announcement bound, and the fragments so far."""

    position: Hashable
    call_id: str | None
    name: str | None
    assemble: Assemble
    fragments: list[Any] = field(default_factory=list)


class Accumulator:
    """The open calls of one stream, by position."""

    __slots__ = ("announced", "closed", "given_up", "open")

    def __init__(self) -> None:
        self.open: dict[Hashable, CallBuffer] = {}
        self.announced = 0
        self.closed: set[Hashable] = set()
        self.given_up: set[Hashable] = set()

    def announce(
        self,
        position: Hashable,
        call_id: str | None = None,
        name: str | None = None,
        assemble: Assemble = json_text,
    ) -> CallBuffer:
        """Bind ``position`` to a call. Raises ProtocolError where a call is open there."""
        if position in self.open:
            raise ProtocolError(Violation.DUPLICATE_ANNOUNCEMENT, position, self.state(position))
        buffer = self.open[position] = CallBuffer(position, call_id, name, assemble)
        self.announced += 1
        return buffer

    def append(self, position: Hashable, fragment: object) -> None:
        """Add the next fragment of the call at ``position``. Raises ProtocolError where none is open."""
        try:
            self.open[position].fragments.append(fragment)
        except KeyError:
            raise ProtocolError(Violation.FRAGMENT_UNANNOUNCED, position, self.state(position)) from None

    def close(self, position: Hashable) -> Arguments:
        """End the call at ``position``: join and parse its arguments. Raises ProtocolError where none is open."""
        buffer = self.open.pop(position, None)
        if buffer is None:
            raise ProtocolError(Violation.CLOSE_UNANNOUNCED, position, self.state(position))
        self.closed.add(position)
        return buffer.assemble(buffer.fragments)

    def give_up(self, position: Hashable) -> CallBuffer:
        """End the call at ``position`` without completing it. Raises ProtocolError where none is open."""
        buffer = self.open.pop(position, None)
        if buffer is None:
            raise ProtocolError(Violation.CLOSE_UNANNOUNCED, position, self.state(position))
        self.given_up.add(position)
        return buffer

    def finish(self) -> list[CallBuffer]:
        """End the stream: give up each call still open, and return them in the order of their announcement."""
        return [self.give_up(position) for position in list(self.open)]

    def state(self, position: Hashable) -> str:
        """``open``, ``closed``, ``given up`` or ``unknown``."""
        for name, positions in (("open", self.open), ("closed", self.closed), ("given up", self.given_up)):
            if position in positions:
                return name
        return "unknown"
