"""One server for the session; telemetry and patches of its own for each test."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.hooks.apis import APIS
from tests.hooks.observed import Observed
from tests.hooks.server import ModelServer


@pytest.fixture(scope="session")
def _server() -> Iterator[ModelServer]:
    server = ModelServer()
    for api in APIS:
        api.client(server.url).close()
    gc.freeze()  # the SDKs' thousands of classes: each test collects, and need not walk through them
    yield server
    server.stop()


@pytest.fixture
def server(_server: ModelServer) -> Iterator[ModelServer]:
    yield _server
    _server.reset()


@pytest.fixture
def observed() -> Iterator[Observed]:
    """Telemetry in memory; the test instruments itself."""
    observed = Observed()
    yield observed
    observed.tracer_provider.shutdown()
    observed.meter_provider.shutdown()


@pytest.fixture
def on(observed: Observed) -> Iterator[Observed]:
    """The package is on; at the end each span has ended, once, and nobody has complained."""
    with observed.instrumented():
        yield observed
        observed.check()
