"""Fixtures of the end-to-end tests: each real program is started once per session, when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.backends import Jaeger
from tools import gobuild


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def jaeger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """The real Jaeger; built first where that was not done yet, which takes minutes and says so."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            binary = gobuild.build("jaeger")
    except gobuild.GoMissingError as missing:
        pytest.skip(f"no Jaeger to test against: {missing}")
    with Jaeger.started(binary, tmp_path_factory.mktemp("jaeger") / "log") as running:
        yield running
