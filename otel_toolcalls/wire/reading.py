"""Reading fields of events and request bodies, which may be objects or mappings, and may lack or null anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["as_json", "clean", "field", "items", "names", "place", "since_last_reply"]

_ABSENT_IDS = frozenset({"", "null"})


def field(holder: Any, name: str) -> Any:
    """``holder.name`` or ``holder["name"]``; None where there is no such thing."""
    if isinstance(holder, dict):
        return holder.get(name)
    found = getattr(holder, name, None)
    return holder.get(name) if found is None and isinstance(holder, Mapping) else found


def clean(text: object) -> str | None:
    """An id or a name as sent; None for what counts as absent (``""``, the literal ``"null"``, anything but text)."""
    if not isinstance(text, str) or text in _ABSENT_IDS:
        return None
    # Half of a surrogate pair, which JSON can spell, is no text: one in a name would fail the export of a whole batch.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def place(index: Any) -> Any:
    """An index as the key of a position, whatever was sent as one."""
    try:
        hash(index)
    except TypeError:
        return repr(index)
    return index


def items(value: Any) -> Sequence[Any]:
    """The elements of a list or tuple; nothing for anything else, a one-shot iterable above all."""
    return value if isinstance(value, (list, tuple)) else ()


def as_json(value: object) -> str:
    """A whole value as text, with the fields that were sent and no others; text stays as it is, None is none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    dump = getattr(value, "model_dump", None)
    sent = dump(mode="json", by_alias=True, exclude_unset=True) if callable(dump) else value
    return json.dumps(sent, default=str, ensure_ascii=False)


def names(tools: Any) -> frozenset[str]:
    """Names in a request's tool list, in whichever of the shapes in use: a name, a function's name, a bare type."""
    found = set()
    for tool in items(tools):
        name = clean(field(tool, "name"))
        for nested in ("function", "custom"):
            name = name or clean(field(field(tool, nested), "name"))
        name = name or clean(field(tool, "type"))
        if name:
            found.add(name)
    return frozenset(found)


def since_last_reply(messages: Any, is_reply: Any) -> tuple[list[Any], Any]:
    """The messages after the model's last reply, in order, and that reply (None where there is none).

    Read from the end, so that a long history costs nothing.
    """
    tail: list[Any] = []
    for message in reversed(items(messages)):
        if is_reply(message):
            return tail[::-1], message
        tail.append(message)
    return tail[::-1], None
