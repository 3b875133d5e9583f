"""Every recorded reply of the SDKs that are hooked, through the real SDK: exactly the calls it announces, as spans.

And for the app nothing changes: it receives the same events, and the same exception where the SDK raises one, as
without the package.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

import pytest

from tests.cases.corpus import LATER, NOT_ANTHROPIC_BEDROCK, NOTHING_FOR_THE_APP, PLAYED, STREAMS, needs_streams
from tests.cases.expectations import CORRECTIONS, expected_anomalies, expected_calls, shown_calls
from tests.cases.observed import Observed
from tests.cases.playing import CAPTURE, assert_same_for_the_app, expected_of_helper, play
from tests.cases.replay import READERS, Sdks, family, pieces, walk
from tests.cases.wires import anthropic, tool_use

pytestmark = [needs_streams, pytest.mark.slow]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", PLAYED)
def test_announced_calls_are_exactly_those_on_the_wire(name: str, reader: str, sdks: Sdks, observed: Observed) -> None:
    stream = STREAMS[name]
    bare = play(sdks, stream, reader)

    with observed.instrumented(**CAPTURE):
        seen = play(sdks, stream, reader)

    assert_same_for_the_app(bare, seen)
    wanted = [] if name in NOTHING_FOR_THE_APP and not bare.events else expected_calls(stream)
    if reader == "helper" and bare.error is not None:
        wanted = expected_of_helper(sdks, stream, bare)
    assert shown_calls(observed.calls, wanted) == wanted
    for call, sent in zip(observed.calls, sorted(stream["expected"], key=itemgetter("ordinal")), strict=False):
        assert expected_anomalies(sent) <= set(call.attributes.get("otel_toolcalls.call.anomalies", ()))
    assert len(observed.turns) == 1
    assert all(call.parent.span_id == observed.turns[0].context.span_id for call in observed.calls)
    assert observed.total("otel_toolcalls.internal.errors") == 0
    observed.check()


@pytest.fixture(scope="module")
def vocabulary(sdks: Sdks) -> str:
    """What is exported of a call without any content: words that a reply may hold too, by chance."""
    observed = Observed()
    with observed.instrumented():
        sdks.read("anthropic", anthropic(tool_use(0, "id", "name")), "create")
    exported = observed.everything()
    observed.close()
    return exported


@pytest.mark.parametrize("name", PLAYED)
def test_no_content_leaves_unless_asked_for(name: str, vocabulary: str, sdks: Sdks, observed: Observed) -> None:
    stream = STREAMS[name]

    with observed.instrumented():
        play(sdks, stream, "create")

    exported = observed.everything()
    secrets = {secret for secret in _secrets(stream) if secret.strip() not in vocabulary}
    assert [secret for secret in secrets if secret in exported] == []
    observed.check_ends()


_CONTENT = ("arguments", "code", "content", "delta", "diff", "input", "partial_json", "query", "reasoning", "text")


def _secrets(stream: Mapping[str, Any]) -> set[str]:
    """Texts of the reply that are content: arguments, whole and in pieces, what the model wrote, what was asked."""
    public = {stream["model"] or "", *(call[what] or "" for call in stream["expected"] for what in ("id", "name"))}
    found: set[str] = {"What is the weather?"}
    for call in stream["expected"]:
        found.add(call["arguments"])
        found.update(map(str, walk([call.get("input"), call.get("start_input")])))
        with contextlib.suppress(ValueError):
            found.update(text for text in walk(json.loads(call["arguments"] or "null")) if isinstance(text, str))
    for piece in pieces(stream):
        for line in piece.decode(errors="ignore").splitlines():
            payload = line.partition(":")[2].strip()
            if line.startswith("data:") and payload.startswith("{"):
                with contextlib.suppress(ValueError):
                    found.update(_content_of(json.loads(payload)))
    return {text for text in found if len(text.strip()) >= 12 and not any(text.strip() in name for name in public)}


def _content_of(payload: Any) -> Iterator[str]:
    if isinstance(payload, dict):
        for key, value in payload.items():
            if key in _CONTENT and isinstance(value, str):
                yield value
            else:
                yield from _content_of(value)
    elif isinstance(payload, list):
        for value in payload:
            yield from _content_of(value)


def test_each_provider_is_played_or_named_as_one_that_is_not() -> None:
    providers = {stream["provider"] for stream in STREAMS.values()}

    assert {provider for provider in providers if family(provider) is None} == set(LATER)
    left_out = {stream["id"] for stream in STREAMS.values() if stream["provider"] not in LATER} - set(PLAYED)
    assert left_out == {name for name in NOT_ANTHROPIC_BEDROCK if name in STREAMS}
    assert len(STREAMS) == 682


def test_each_correction_says_something_else_than_expected() -> None:
    for (name, ordinal), correction in CORRECTIONS.items():
        (call,) = [call for call in STREAMS[name]["expected"] if call["ordinal"] == ordinal]
        assert len(correction.reason) > 40
        assert any(call.get(field) != value for field, value in correction.fields.items())
