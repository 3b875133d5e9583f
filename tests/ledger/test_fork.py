"""A forked child, as a preloading server makes its workers, is a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.backends import eventually
from tests.ledger.fleet import fleet, reported


@pytest.mark.slow
@pytest.mark.parametrize("where", ["sqlite", "redis"])
def test_a_killed_child_is_reported_by_its_parent_which_keeps_its_own_calls(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if where == "sqlite":
        ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    else:
        ledger = f"{request.getfixturevalue('redis_server').url}?lost_after=11"
    expected = {("the-child-s", "process_lost", "True"): 1}
    with fleet(1, ledger, tmp_path, 300) as [member]:
        member.tell("announce", ["the-parent-s"])
        member.tell("fork", ["the-child-s"])
        member.done()
        eventually(lambda: reported(tmp_path) == expected, seconds=60, what="the child's call is reported")
        member.tell("run", ["the-parent-s"])
        member.done()
    assert reported(tmp_path) == expected
