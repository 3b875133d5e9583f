"""Spans back into an account: conversations of turns, the calls that each turn announced, and what became of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from otel_toolcalls import conventions as names
from otel_toolcalls.cli.otlp_lines import Span

__all__ = ["Call", "Conversation", "Fate", "Turn", "conversations"]


class Fate(Enum):
    """What became of an announced call, as far as the spans tell."""

    RAN = "ran"
    ANSWERED = "answered"
    ACKNOWLEDGED = "acknowledged"
    EXEMPT = "exempt"
    PROVIDER = "run by the provider"
    OPEN = "no run and no answer seen"
    TRUNCATED = "truncated"
    INVALID = "invalid"
    ABANDONED = "abandoned"
    LOST = "never ran"


@dataclass(slots=True)
class Call:
    """An announced call and the spans that refer to it."""

    span: Span
    executions: list[Span] = field(default_factory=list)
    acknowledgements: list[Span] = field(default_factory=list)
    waits: list[Span] = field(default_factory=list)
    answers: list[Span] = field(default_factory=list)
    sibling_answered: bool = False

    @property
    def fate(self) -> Fate:
        outcome = self.span.attributes.get(names.CALL_OUTCOME)
        if outcome != names.Outcome.COMPLETED:
            return _GIVEN_UP.get(str(outcome), Fate.INVALID)
        return next(fate for fate, shown in _FATES if shown(self))


_GIVEN_UP = {
    names.Outcome.TRUNCATED.value: Fate.TRUNCATED,
    names.Outcome.INVALID.value: Fate.INVALID,
    names.Outcome.ABANDONED.value: Fate.ABANDONED,
}

_FATES: tuple[tuple[Fate, Callable[[Call], object]], ...] = (
    (Fate.RAN, lambda call: call.executions),
    (Fate.ANSWERED, lambda call: call.answers),
    (Fate.ACKNOWLEDGED, lambda call: call.acknowledgements),
    (Fate.LOST, lambda call: call.waits),
    (Fate.EXEMPT, lambda call: call.span.attributes.get(names.CALL_EXEMPT)),
    (Fate.PROVIDER, lambda call: call.span.attributes.get(names.CALL_KIND) == names.Kind.SERVER),
    (Fate.LOST, lambda call: call.sibling_answered),
    (Fate.OPEN, lambda call: call.span),
)
"""What shows each fate of a completed call; the first that is shown holds."""


@dataclass(slots=True)
class Turn:
    """One response: its span, ``None`` where another library traced it elsewhere, and its calls as announced."""

    span: Span | None
    calls: list[Call] = field(default_factory=list)

    @property
    def first(self) -> Span:
        """The earliest span that is there."""
        return self.span or self.calls[0].span


@dataclass(slots=True)
class Conversation:
    """Turns that share a trace or answer each other's calls, in order of time."""

    turns: list[Turn]


def conversations(spans: Iterable[Span]) -> list[Conversation]:
    """Put the account together, in order of time."""
    in_order = sorted(spans, key=lambda span: (span.start, span.attributes.get(names.CALL_ORDINAL) or 0))
    calls = {span.span_id: Call(span) for span in in_order if _operation(span) == names.OP_ANNOUNCE}
    others = [span for span in in_order if span.span_id not in calls]
    turns = {span.span_id: Turn(span) for span in others if _operation(span) not in _REFERENCES}
    for call in calls.values():
        turns.setdefault(call.span.parent_id, Turn(None)).calls.append(call)
    for span in others:
        collect = _REFERENCES.get(_operation(span), _answers)
        for span_id in (span.parent_id, *(link.span_id for link in span.links)):
            if span_id in calls:
                collect(calls[span_id]).append(span)
    for turn in turns.values():
        answered = any(call.answers for call in turn.calls)
        for call in turn.calls:
            call.sibling_answered = answered
    return _grouped(turns, calls)


def _operation(span: Span) -> str:
    return str(span.attributes.get(names.OPERATION_NAME))


def _answers(call: Call) -> list[Span]:
    return call.answers


_REFERENCES: Mapping[str, Callable[[Call], list[Span]]] = {
    names.OP_EXECUTE: lambda call: call.executions,
    names.OP_ACKNOWLEDGE: lambda call: call.acknowledgements,
    names.OP_AWAIT: lambda call: call.waits,
}
"""Operation → where a span of it is kept on the call that is its parent or that it links to; any other is a turn."""


def _grouped(turns: Mapping[str, Turn], calls: Mapping[str, Call]) -> list[Conversation]:
    group_of: dict[str, str] = {}

    def root(key: str) -> str:
        while group_of.setdefault(key, key) != key:
            key = group_of[key]
        return key

    for turn in turns.values():
        if turn.span is not None:
            for link in turn.span.links:
                if link.span_id in calls:
                    group_of[root(turn.span.trace_id)] = root(calls[link.span_id].span.trace_id)
    grouped: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in sorted(turns.values(), key=lambda turn: turn.first.start):
        grouped[root(turn.first.trace_id)].append(turn)
    return [Conversation(group) for group in grouped.values()]
