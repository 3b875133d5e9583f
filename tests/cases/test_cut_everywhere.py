"""A reply may stop after any event, and any function of ours may fail at any event: the app does not notice.

``TOOLCALLS_TESTS=all`` takes every recorded stream; otherwise a sample of short ones that has each provider and
each feature of the recordings.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import otel_toolcalls
from tests.cases.corpus import EVERYTHING, PLAYED, STREAMS, needs_streams, sample
from tests.cases.observed import Observed
from tests.cases.playing import assert_same_for_the_app
from tests.cases.replay import READERS, Reading, Script, Sdks, endpoint, family, pieces, script_of
from tests.cases.wires import announced, bare_chunk, whole

pytestmark = [needs_streams, pytest.mark.slow]

ENDINGS = {"bytes stop": False, "connection drops": True}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", PLAYED if EVERYTHING else sample(longest=60))
def test_reply_cut_after_any_event_is_the_same_for_the_app_and_ends_each_span(
    name: str, ending: str, sdks: Sdks, observed: Observed
) -> None:
    stream = STREAMS[name]
    kind, whole, broken = str(family(stream["provider"])), pieces(stream), ENDINGS[ending]
    scripts = [Script(whole[:cut], script_of(stream).content_type, broken=broken) for cut in range(len(whole) + 1)]
    bare = [sdks.read(kind, script, "create") for script in scripts]
    announced = 0
    for cut, script in enumerate(scripts):
        before = len(observed.calls)
        with observed.instrumented():
            seen = sdks.read(kind, script, "create")
        assert_same_for_the_app(bare[cut], seen)
        shown = len(observed.calls) - before
        assert shown >= announced, "a longer reply announces no fewer calls"
        announced = shown
        assert shown == _announced_by(stream, b"".join(whole[:cut])) or not _has_distinct_ids(stream)
        sdks.server.clear()
    assert announced == len(stream["expected"])
    observed.check()


def _has_distinct_ids(stream: Mapping[str, Any]) -> bool:
    ids = [call["id"] for call in stream["expected"]]
    return all(ids) and len(set(ids)) == len(ids) and stream["framing"] != "eventstream"


def _announced_by(stream: Mapping[str, Any], body: bytes) -> int:
    """How many calls a beginning of the body announces: an id is first seen in its announcement."""
    return sum(f'"{call["id"]}"'.encode() in body for call in stream["expected"])


# ---- every function of ours fails -----------------------------------------------------------------------------------

PACKAGE = str(Path(otel_toolcalls.__file__).parent)
GUARD = str(Path(PACKAGE) / "guard.py")


GUARDS = {"observe_reply"}
"""Guards its parts itself and is called bare: a protocol error passes it where the settings say so."""


class OurError(Exception):
    """What a function of the package raises in these tests."""


def _may_fail(code: CodeType) -> bool:
    """A function whose failure has to be caught by its caller.

    Not one that the app's or the SDK's own call passes through (it has that call as ``wrapped`` or ``original``): its
    parts may fail, it is what guards them. Not a finaliser, which has no caller, for the same reason. Generators and
    coroutines neither: their frames are entered again and again by whoever reads them.
    """
    passages = {"wrapped", "original"} & {*code.co_varnames[: code.co_argcount], *code.co_freevars}
    resumable = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if code.co_flags & resumable or code.co_name in GUARDS | {"__del__"}:
        return False
    return not passages and code.co_filename != GUARD


_known: dict[CodeType, bool] = {}


@contextmanager
def failing(at: int | None) -> Iterator[list[str]]:
    """The ``at``-th call of a function of the package by another function of it raises; None only counts.

    Gives the places that were called, in order. The module that notes what was caught is left alone.
    """
    places: list[str] = []
    before = sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        code, caller = frame.f_code, frame.f_back
        if code not in _known:
            _known[code] = code.co_filename.startswith(PACKAGE) and _may_fail(code)
        if not _known[code] or caller is None or not caller.f_code.co_filename.startswith(PACKAGE):
            return
        places.append(f"{Path(code.co_filename).name}:{code.co_name}")
        if len(places) - 1 == at:
            sys.settrace(before)
            raise OurError(places[-1])

    sys.settrace(trace)
    try:
        yield places
    finally:
        sys.settrace(before)


FAULTED = {
    "anthropic-sdk-python-anthropic-8f0ba4e": READERS,
    "magentic-oai_chat-61849a0": ("create",),
    "openllmetry-oai_chat-bd2ed2b": ("create_async",),
    "reqllm-oai_chat-ecdd5f3": ("helper",),
    "ai-oai_responses-44df766": ("create", "create_async"),
}
"""Short streams of each wire, some of them odd, and how they are read."""

FAULTS = [
    (name, reader)
    for name, readers in (dict.fromkeys(sample(longest=40), READERS) if EVERYTHING else FAULTED).items()
    for reader in readers
]


@pytest.mark.parametrize(("name", "reader"), FAULTS)
def test_app_does_not_notice_a_failure_of_ours_at_any_place(
    name: str, reader: str, sdks: Sdks, observed: Observed
) -> None:
    stream = STREAMS[name]
    kind, script = str(family(stream["provider"])), script_of(stream)
    _fail_at_every_place(lambda: sdks.read(kind, script, reader), observed)


WHOLE = {
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "answering-model",
        "content": [{"type": "tool_use", "id": "tc_a", "name": "look_up", "input": {"q": 1}}],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "chat": {
        **bare_chunk(
            [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {"role": "assistant", "tool_calls": [announced(0, "tc_a", "look_up", "{}")]},
                }
            ]
        ),
        "object": "chat.completion",
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "answering-model",
        "status": "completed",
        "output": [{"type": "function_call", "id": "fc_1", "call_id": "tc_a", "name": "look_up", "arguments": "{}"}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
}


@pytest.mark.parametrize("kind", WHOLE)
def test_app_does_not_notice_a_failure_of_ours_in_a_reply_that_is_not_streamed(
    kind: str, sdks: Sdks, observed: Observed
) -> None:
    script = whole(WHOLE[kind])

    def ask() -> Reading:
        try:
            return Reading([endpoint(sdks.client(kind), kind).create(**sdks.arguments(kind, script))])
        except Exception as error:  # noqa: BLE001 - whatever the app would see
            return Reading(error=error)

    _fail_at_every_place(ask, observed)


def _fail_at_every_place(read: Callable[[], Reading], observed: Observed) -> None:
    """The app sees the same, and each announced call that has a span has it ended, wherever a function of ours fails."""
    bare = read()
    assert bare.events
    with observed.instrumented():
        with failing(None) as places:
            read()
        assert observed.calls
        noticed, not_ended = set(), set()
        for at, place in enumerate(places):
            observed.forget()
            with failing(at):
                seen = read()
            if seen.failure != bare.failure or seen.events != bare.events:
                noticed.add((place, str(seen.failure)))
            if observed.open("announce_tool"):
                gc.collect()
                otel_toolcalls.shutdown()
                not_ended |= {place} if observed.open("announce_tool") else set()
        otel_toolcalls.shutdown()  # nothing is left for the exit of the test run
    assert len(places) > 20
    assert noticed == set()
    assert not_ended == set()
