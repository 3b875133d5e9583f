"""What any test may use: a model server on loopback, and an account that must close."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.account import account
from tests.support.loopback import model_server

__all__ = ["account", "model_server"]


@pytest.fixture(autouse=True)
def _no_trace_of_openinference() -> Iterator[None]:
    """Its uninstrument leaves a copy of ``request`` on openai's clients, which hides that of their base from us."""
    yield
    openai = sys.modules.get("openai")
    for name in ("OpenAI", "AsyncOpenAI"):
        client = getattr(openai, name, None)
        if client is not None and "request" in vars(client):
            del client.request
