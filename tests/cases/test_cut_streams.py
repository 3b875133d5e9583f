"""Recorded replies that were cut while a call was open: the call is abandoned, what the stream closed is not."""

from __future__ import annotations

import pytest

from tests.cases.corpus import CUT, needs_cut_streams, playable
from tests.cases.expectations import expected_calls, shown_calls
from tests.cases.observed import Observed
from tests.cases.playing import CAPTURE, assert_same_for_the_app, expected_of_helper, play
from tests.cases.replay import READERS, Reading, Sdks

CUT_AND_PLAYED = [name for name, stream in CUT.items() if playable(stream)]

pytestmark = [needs_cut_streams, pytest.mark.slow]


def error_type(reading: Reading) -> str:
    """What an open call is given up for: the SDK's exception, or that the bytes stopped without one."""
    if reading.error is None:
        return "stream_ended"
    kind = type(reading.error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


@pytest.mark.parametrize("broken", [False, True], ids=["bytes stop", "connection drops"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", CUT_AND_PLAYED)
def test_open_call_of_a_cut_stream_is_abandoned(
    name: str, reader: str, broken: bool, sdks: Sdks, observed: Observed
) -> None:
    stream = CUT[name]
    bare = play(sdks, stream, reader, broken=broken)
    plain = play(sdks, stream, "create", broken=broken)

    with observed.instrumented(**CAPTURE):
        seen = play(sdks, stream, reader, broken=broken)

    assert_same_for_the_app(bare, seen)
    wanted = expected_calls(stream, ending=error_type(plain))
    if reader == "helper" and bare.failure != plain.failure:
        wanted = expected_of_helper(sdks, stream, bare, broken=broken)
    assert shown_calls(observed.calls, wanted) == wanted
    assert len(observed.turns) == 1
    observed.check()


def test_each_cut_stream_is_played_or_named_as_one_that_is_not() -> None:
    assert len(CUT) == 30
    assert {CUT[name]["provider"] for name in CUT.keys() - set(CUT_AND_PLAYED)} == {
        "bedrock_converse",
        "bedrock_invoke",
        "cohere",
    }
