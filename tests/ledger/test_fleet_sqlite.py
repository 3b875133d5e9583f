"""Eight processes on one file, two of them killed with SIGKILL."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.backends import eventually
from tests.ledger.fleet import fleet, reported

BATCH, DEADLINE = 25, 40.0
OF_VICTIM, OF_SURVIVOR = 650, 1450  # 10,000 in all
LEFT_OUT_EVERY = 100


@pytest.mark.slow
def test_of_eight_processes_two_are_killed_and_exactly_the_lost_calls_are_reported_each_once(tmp_path: Path) -> None:
    sizes = [OF_SURVIVOR] * 6 + [OF_VICTIM] * 2
    calls = [[f"call-{member}-{number}" for number in range(size)] for member, size in enumerate(sizes)]
    left_out = {ids[number] for ids in calls for number in range(7, len(ids), LEFT_OUT_EVERY)}
    choose = random.Random(8)
    with fleet(8, f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path, DEADLINE) as members:
        survivors, victims = members[:6], members[6:]

        def announce_and_run(batches: range) -> None:
            """Each batch may run anywhere, also before its announcement was written."""
            for start in batches:
                for member, ids in zip(members, calls, strict=True):
                    batch = ids[start : start + BATCH]
                    if batch:
                        member.tell("announce", batch)
                        choose.choice(survivors).tell("run", [one for one in batch if one not in left_out])

        announce_and_run(range(0, OF_VICTIM, BATCH))
        for member in members:
            member.done()
        for victim in victims:
            victim.tell("run", [f"unknown-{number}" for number in range(50_000)])
        announce_and_run(range(OF_VICTIM, OF_SURVIVOR, BATCH))
        for victim in victims:  # in the middle of their writing
            victim.kill()
        for survivor in survivors:
            survivor.done()
        expected = {
            (one, "process_lost" if one in {*calls[6], *calls[7]} else "deadline", "True"): 1 for one in left_out
        }
        eventually(lambda: len(reported(tmp_path)) >= len(expected), seconds=DEADLINE + 60, what="all are reported")
    assert reported(tmp_path) == expected
    assert len(expected) == 104
