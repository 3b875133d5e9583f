"""Playing a recorded stream, with and without the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.cases.expectations import Call, expected_calls, shown_calls
from tests.cases.observed import Observed
from tests.cases.replay import Reading, Sdks, family, script_of

CAPTURE: Mapping[str, Any] = {"capture_content": "span_only", "content_limit": 1_000_000}


def play(sdks: Sdks, stream: Mapping[str, Any], reader: str, **how: Any) -> Reading:
    return sdks.read(str(family(stream["provider"])), script_of(stream, **how), reader)


def assert_same_for_the_app(bare: Reading, seen: Reading) -> None:
    """With the package the app saw the same events, and the same exception, as without."""
    assert seen.failure == bare.failure
    assert [type(event) for event in seen.events] == [type(event) for event in bare.events]
    assert seen.events == bare.events


def expected_of_helper(sdks: Sdks, stream: Mapping[str, Any], bare: Reading, *, broken: bool = False) -> list[Call]:
    """What is announced where the SDK's helper raises on a body of its own accord.

    The package sees the events up to the one that the helper stumbles over. The shortest beginning of the body on
    which the helper raises the same shows which one that is; a plain reader that stops there and leaves must give
    the same calls.
    """
    kind, script = str(family(stream["provider"])), script_of(stream, broken=broken)
    whole = script.pieces
    low, high = 0, len(whole)
    while low < high:
        middle = (low + high) // 2
        if sdks.read(kind, replace(script, pieces=whole[:middle]), "helper").failure == bare.failure:
            high = middle
        else:
            low = middle + 1
    seen_by_helper = len(sdks.read(kind, replace(script, pieces=whole[:low]), "create").events)
    plain = Observed()
    try:
        with plain.instrumented(**CAPTURE), sdks.create(kind, script) as reply:
            for _ in range(seen_by_helper):
                next(reply)
        return shown_calls(plain.calls, expected_calls(stream))
    finally:
        plain.close()
