"""One server, one set of real clients and, for each test, its own telemetry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.cases.observed", "tests.cases.playing")

from tests.cases.observed import Observed  # noqa: E402 - only now are its assertions rewritten
from tests.cases.replay import ReplayServer, Sdks  # noqa: E402
from tests.support.loopback import ModelServer  # noqa: E402


@pytest.fixture(scope="session")
def server() -> Iterator[ReplayServer]:
    with ModelServer() as server:
        yield ReplayServer(server)


@pytest.fixture(scope="session")
def sdks(server: ReplayServer) -> Iterator[Sdks]:
    sdks = Sdks(server)
    yield sdks
    sdks.close()


@pytest.fixture
def observed(server: ReplayServer) -> Iterator[Observed]:
    observed = Observed()
    yield observed
    server.clear()
    observed.close()
