"""Which recorded streams are played, and by what."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.cases.replay import SHARED, family, load, pieces

STREAMS: Mapping[str, Mapping[str, Any]] = {stream["id"]: stream for stream in load("streams.jsonl")}
CUT: Mapping[str, Mapping[str, Any]] = {stream["id"]: stream for stream in load("streams-cut.jsonl")}

EVERYTHING = os.environ.get("TOOLCALLS_TESTS") == "all"
"""The exhaustive tests take every stream and every place in it, not a sample: minutes instead of seconds.

Not ``OTEL_TOOLCALLS_…``: a variable of that prefix is a setting, and an unknown one is an error.
"""

LATER = {
    "bedrock_converse": "read by botocore's own client, not by an SDK that is hooked",
    "cohere": "read by the cohere SDK, not hooked",
    "dashscope": "DashScope's own protocol, no SDK hooked",
    "gemini": "read by google-genai, not hooked",
    "gemini_interactions": "read by google-genai, not hooked",
    "mistral": "read by the mistralai SDK, not hooked",
    "ollama": "read by the ollama SDK, not hooked",
}
"""Providers whose SDK is not hooked, and so are not played."""

_NOVA = "Amazon Nova's shape (bedrock_converse) over invoke: AnthropicBedrock reads Anthropic's events only"
_GPT_OSS = "OpenAI's chat shape over invoke: AnthropicBedrock reads Anthropic's events only"
NOT_ANTHROPIC_BEDROCK = {
    "otel-java-inst-bedrock_invoke-33ffed6": _NOVA,
    "otel-java-inst-bedrock_invoke-70415d7": _NOVA,
    "reqllm-bedrock_invoke-53ac8fd": _GPT_OSS,
    "reqllm-bedrock_invoke-82d15bd": _GPT_OSS,
    "cut-reqllm-bedrock_invoke-53ac8fd": _GPT_OSS,
}
"""Streams of the invoke operation that do not fit AnthropicBedrock, one by one."""

NOTHING_FOR_THE_APP = {
    "ai-anthropic-20d9056": "its events have no SSE event names, and the anthropic SDK hands on named events only",
}
"""Streams that the SDK reads without giving the app one event: there is nothing to announce."""


def playable(stream: Mapping[str, Any]) -> bool:
    return family(stream["provider"]) is not None and stream["id"] not in NOT_ANTHROPIC_BEDROCK


PLAYED = [name for name, stream in STREAMS.items() if playable(stream)]

needs_streams = pytest.mark.skipif(
    not STREAMS, reason=f"682 recorded streams skipped: {SHARED.parent.name}/{SHARED.name} is absent"
)
needs_cut_streams = pytest.mark.skipif(
    not CUT, reason=f"30 cut streams skipped: {SHARED.parent.name}/{SHARED.name} is absent"
)


def sample(longest: int) -> Sequence[str]:
    """Streams of at most ``longest`` events, shortest first, until each provider and each feature of each was seen."""
    seen: set[tuple[str, ...]] = set()
    taken = []
    for name in sorted(PLAYED, key=lambda name: (STREAMS[name]["n_events"], name)):
        stream = STREAMS[name]
        kind = str(family(stream["provider"]))
        features = {(kind, stream["framing"], feature) for feature in stream["features"]} | {(stream["provider"],)}
        if len(pieces(stream)) <= longest and not features <= seen:
            taken.append(name)
            seen |= features
    return taken
