"""A model server on loopback for every test that lets a real SDK talk to something.

`model_server` is a fixture; import it in a conftest, or name this module in the root one's ``pytest_plugins``.
See `otel_toolcalls.cli.model_server.ModelServer` for what a reply can do.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_toolcalls.cli.model_server import ModelServer, Reply, Request

__all__ = ["ModelServer", "Reply", "Request", "model_server"]


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """Serve on a free port of 127.0.0.1 for the length of the test."""
    with ModelServer() as server:
        yield server
