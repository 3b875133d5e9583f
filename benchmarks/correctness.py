"""Whether what a contestant said of a stream holds the calls as they were: id, name and arguments, each whole.

Contestants shape their data as they like, so it is taken apart: attributes, events and bodies, and texts of JSON in
them, down to the single texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.shapes import Expected

__all__ = ["judge"]


def judge(said: Sequence[Mapping[str, Any]], expected: Sequence[Expected]) -> dict[str, Any]:
    """How many of the expected ids, names and arguments are there, in how many spans and records."""
    leaves = set(_leaves(said))
    return {
        "calls": len(expected),
        "ids": sum(call.call_id in leaves for call in expected),
        "names": len({call.name for call in expected if call.name in leaves}),
        "different_names": len({call.name for call in expected}),
        "arguments": sum(_canonical(json.loads(call.arguments)) in leaves for call in expected),
        "said": len(said),
    }


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield _canonical(value)
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, str):
        yield value
        if value[:1] in "{[":
            try:
                yield from _leaves(json.loads(value))
            except ValueError:
                return


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
