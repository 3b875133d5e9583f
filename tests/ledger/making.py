"""Calls and claims to put into a ledger."""

from __future__ import annotations

import itertools
import time

from otel_toolcalls.conventions import SettledBy
from otel_toolcalls.ledger import Claim, Entry, TraceRef

NOW = float(int(time.time()))
"""A moment from which the tests count; stores that forget by the clock see it as recent."""

_keys = itertools.count()


def entry(
    call_id: str | None = "a",
    name: str | None = "search",
    *,
    key: str | None = None,
    turn: str = "turn",
    trace: int = 1,
    at: float = NOW,
    deadline: float = 300.0,
) -> Entry:
    return Entry(
        key=key or f"key-{next(_keys)}",
        call_id=call_id,
        name=name,
        tool=name or "_OTHER",
        turn=turn,
        ordinal=0,
        provider="anthropic",
        model="a-model",
        response_id="response",
        trace=TraceRef(trace, 0xABC, 1),
        completed_at=at,
        due_at=at + deadline,
    )


def claim(
    call_id: str | None = "a",
    name: str | None = "search",
    by: SettledBy = SettledBy.DISPATCH,
    *,
    trace: int = 0,
    key: str | None = None,
    token: str = "",
) -> Claim:
    return Claim(by, NOW, call_id, name, trace, key, token or f"token-{next(_keys)}")
