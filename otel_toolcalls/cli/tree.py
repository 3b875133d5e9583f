"""The tree on the terminal: each conversation, its turns, the calls that they announced, and what became of each call."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from otel_toolcalls import conventions as names
from otel_toolcalls.cli.account import Call, Conversation, Fate, Turn, conversations
from otel_toolcalls.cli.otlp_lines import Span, read_spans
from otel_toolcalls.cli.printing import Phrases, print_trimmed

__all__ = ["print_tree", "render"]

_SHOWN_CONVERSATIONS = 40
"""More than these do not fit a person's patience: then only those with a loss are shown."""

_SHOWN_LOST = 10
_ID_WIDTH = 16
_LEAST_NAME = 12
_FATE_WIDTH = 30
"""Columns that the fate of a call has on one line, before the others go."""
_DISPENSABLE = ("took", "announced", "call id", "#")
"""Columns that a narrow terminal does without, in this order."""
_INDENT = 4
_WHOLE_MILLISECONDS = 9.95
_MILLISECONDS = 999.5

_PLAIN_WIDTH = 140
"""Columns where standard error is no terminal."""

_LOSSES = (Fate.LOST, Fate.ABANDONED, Fate.TRUNCATED, Fate.INVALID)

_MARKS = {
    Fate.RAN: ("✔", "+", "green"),
    Fate.ANSWERED: ("✔", "+", "green"),
    Fate.ACKNOWLEDGED: ("✔", "+", "green"),
    Fate.EXEMPT: ("○", "o", "dim"),
    Fate.PROVIDER: ("✔", "+", "green"),
    Fate.OPEN: ("?", "?", "yellow"),
    Fate.TRUNCATED: ("✂", "!", "yellow"),
    Fate.INVALID: ("✘", "x", "red"),
    Fate.ABANDONED: ("✘", "x", "red"),
    Fate.LOST: ("✘", "x", "bold red"),
}
"""Fate → its mark, the mark where the terminal knows ASCII only, and its style."""

_WHY_GIVEN_UP = {
    names.ErrorType.INVALID_ARGUMENTS: "its arguments are not one JSON document",
    names.ErrorType.PROTOCOL_VIOLATION: "the stream contradicts its protocol here",
    names.ErrorType.LENGTH: "the reply reached its token limit in the middle of the call",
    names.ErrorType.CONTENT_FILTER: "the provider's content filter stopped the reply",
    names.ErrorType.REFUSAL: "the model refused in the middle of the call",
    names.ErrorType.RESPONSE_FAILED: "the provider ended the response as failed",
    names.ErrorType.CLOSED_EARLY: "the app left the stream before the call was whole",
    names.ErrorType.CANCELLED: "the app cancelled the task that read the stream",
    names.ErrorType.STREAM_ENDED: "the stream ended without a finish",
    names.ErrorType.GARBAGE_COLLECTED: "the app dropped the stream before the call was whole",
    names.ErrorType.PROCESS_EXIT: "the process ended before the call was whole",
}
"""``error.type`` of an announcement → what happened; any other value names the exception that ended the stream."""

_WHY_LOST = {
    names.LostReason.DEADLINE.value: "nobody ran or answered it before its deadline",
    names.LostReason.SIBLINGS_ANSWERED.value: "the other calls of its turn were answered, this one was not",
    names.LostReason.TURN_ANSWERED_WITHOUT.value: "the next request carries its turn without it",
    names.LostReason.SHUTDOWN.value: "the app ended without running or answering it",
    names.LostReason.PROCESS_LOST.value: "its process died without running or answering it",
}


def print_tree(output: str, start: int = 0) -> None:
    """Print what the file holds from byte ``start`` on to standard error."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PLAIN_WIDTH
    try:
        found = conversations(read_spans(output, start))
        print_trimmed(console, render(found, width=console.width, ascii_only=console.options.ascii_only))
        console.print(Text(f"spans: {_relative(output)}", "dim"), soft_wrap=True)
    except BrokenPipeError:
        sys.stderr = None


def render(found: Sequence[Conversation], *, width: int = _PLAIN_WIDTH, ascii_only: bool = False) -> RenderableType:
    """Give the tree of these conversations with its totals, for a terminal of that width."""
    calls = [call for conversation in found for turn in conversation.turns for call in turn.calls]
    if not found:
        return Text("otel-toolcalls: no model was called", "dim")
    shown = found
    if len(found) > _SHOWN_CONVERSATIONS:
        lossy = [conversation for conversation in found if _has_loss(conversation)]
        shown = lossy[-_SHOWN_CONVERSATIONS:]
    layout = _Layout(shown, width, ascii_only)
    parts: list[RenderableType] = [layout.headings()] if calls else []
    for conversation in shown:
        parts += [layout.conversation(conversation), Text()]
    if len(shown) < len(found):
        parts.append(Text(f"{len(found) - len(shown)} more conversations are in the file", "dim"))
    return Group(Text(), *parts, _totals(calls, sum(len(conversation.turns) for conversation in found)))


class _Layout:
    """Columns that line up over all turns; where the terminal is narrow, fewer."""

    def __init__(self, found: Sequence[Conversation], width: int, ascii_only: bool) -> None:
        calls = [call for conversation in found for turn in conversation.turns for call in turn.calls]
        nested = any(turn.calls for conversation in found for turn in conversation.turns[1:])
        self._ascii_only = ascii_only
        self._widths = {
            "": 1,
            "#": 2,
            "tool": max((len(_tool(call)) for call in calls), default=0),
            "call id": min(max((len(_call_id(call)) for call in calls), default=0), _ID_WIDTH),
            "announced": 9,
            "took": 8,
        }
        fate = min(max((len(_fate(call)) for call in calls), default=0), _FATE_WIDTH)
        room = width - _INDENT * (2 if nested else 1) - fate
        for column in _DISPENSABLE:
            if self._needed() > room:
                del self._widths[column]
        self._widths["tool"] -= min(max(0, self._needed() - room), max(0, self._widths["tool"] - _LEAST_NAME))

    def _needed(self) -> int:
        return sum(width + 1 for width in self._widths.values())

    def headings(self) -> RenderableType:
        """What the columns are, in the place where the calls stand."""
        cells = {name: Text(name, "dim", justify="right" if name == "took" else "left") for name in self._widths}
        return Padding(self._row(cells, Text("what became of it", "dim")), (0, 0, 0, _INDENT), expand=False)

    def conversation(self, conversation: Conversation) -> Tree:
        first, *rest = conversation.turns
        tree = self._turn(first)
        for turn in rest:
            tree.add(self._turn(turn))
        return tree

    def _row(self, cells: Mapping[str, Text], fate: Text) -> Table:
        row = Table.grid(padding=(0, 1))
        for width in self._widths.values():
            row.add_column(min_width=width, no_wrap=True)
        row.add_column()
        row.add_row(*(cells[column] for column in self._widths), fate)
        return row

    def _turn(self, turn: Turn) -> Tree:
        tree = Tree(_heading(turn, self._ascii_only), guide_style="dim")
        for call in turn.calls:
            tree.add(self._call(call, turn.first.start))
        return tree

    def _call(self, call: Call, turn_start: int) -> RenderableType:
        fancy, plain, style = _MARKS[call.fate]
        index = call.span.attributes.get(names.CALL_INDEX)
        name = _shortened(_tool(call), self._widths["tool"], self._ascii_only)
        cells = {
            "": Text(plain if self._ascii_only else fancy, style),
            "#": Text("" if index is None else _clean(index), "dim", justify="right"),
            "tool": Text(name, style if call.fate in _LOSSES else "bold"),
            "call id": Text(_shortened(_call_id(call), _ID_WIDTH, self._ascii_only), "cyan"),
            "announced": Text(f"+{_duration(call.span.start - turn_start)}", "dim", justify="right"),
            "took": Text(_duration(call.span.end - call.span.start), "dim", justify="right"),
        }
        row = self._row(cells, Text(_fate(call), f"{style} reverse" if call.fate is Fate.LOST else style))
        notes = [
            Padding(Text(note, note_style), (0, 0, 0, 5), expand=False) for note, note_style in _notes(call, style)
        ]
        return Group(row, *notes) if notes else row


def _heading(turn: Turn, ascii_only: bool) -> Phrases:
    span = turn.first
    clock = datetime.fromtimestamp(span.start / 1e9, timezone.utc).astimezone().strftime("%H:%M:%S.%f")[:-3]
    if turn.span is None:
        model = span.attributes.get(names.REQUEST_MODEL) or span.attributes.get(names.RESPONSE_MODEL) or ""
        named = Text(_clean(f"a turn of {model}") if model else "a turn", "bold")
        return Phrases([Text(clock, "dim"), named, Text("traced elsewhere")], len(clock) + 1)
    facts = [_clean(span.attributes.get(names.PROVIDER_NAME, "")), _finish(span), _duration(span.end - span.start)]
    answered = len({link.span_id for link in span.links})
    if answered:
        facts.insert(-1, f"answers {answered}")
    *others, last = filter(None, facts)
    dot = "-" if ascii_only else "·"
    name = Text(_clean(span.name), "bold red" if span.failed else "bold")
    phrases = [Text(clock, "dim"), name, *(Text(f"{fact} {dot}", "dim") for fact in others), Text(last, "dim")]
    return Phrases(phrases, len(clock) + 1)


def _finish(span: Span) -> str:
    reasons = span.attributes.get(names.RESPONSE_FINISH_REASONS)
    if isinstance(reasons, list):
        return ", ".join(map(_clean, reasons))
    return str(span.attributes.get(names.ERROR_TYPE, ""))


def _fate(call: Call) -> str:
    ended = call.span.end
    if call.fate is Fate.RAN:
        execution = call.executions[0]
        verb = "ran and failed" if execution.failed else "ran"
        return f"{verb} after {_duration(execution.start - ended)}, for {_duration(execution.end - execution.start)}"
    if call.fate is Fate.ANSWERED:
        return f"answered in {_duration(call.answers[0].start - ended)}"
    if call.fate is Fate.ACKNOWLEDGED:
        by = call.acknowledgements[0].attributes.get(names.ACKNOWLEDGED_BY)
        return f"acknowledged by {_clean(by)}" if by else "acknowledged"
    words = str(call.fate.value)
    return words.upper() if call.fate in _LOSSES else words


def _notes(call: Call, style: str) -> list[tuple[str, str]]:
    """What stands below a call: why it was lost, what was odd about it, and its arguments where they were captured."""
    attributes = call.span.attributes
    notes: list[tuple[str, str]] = []
    if call.fate is Fate.LOST:
        reason = call.waits[0].attributes.get(names.UNDISPATCHED_REASON) if call.waits else None
        notes.append((_WHY_LOST.get(str(reason), _WHY_LOST[names.LostReason.SIBLINGS_ANSWERED.value]), style))
    elif call.fate in _LOSSES:
        error = str(attributes.get(names.ERROR_TYPE, ""))
        size = attributes.get(names.ARGUMENTS_SIZE, 0)
        why = _WHY_GIVEN_UP.get(error, f"the stream ended with {error}")
        notes.append((f"{why}; {size} {_plural(size, 'byte')} had come", style))
    anomalies = attributes.get(names.CALL_ANOMALIES)
    if isinstance(anomalies, list):
        notes.append((f"odd on the wire: {', '.join(map(str, anomalies))}", "dim"))
    arguments = attributes.get(names.TOOL_CALL_ARGUMENTS)
    if arguments is not None:
        notes.append((_clean(arguments), "dim"))
    return notes


def _totals(calls: Sequence[Call], turns: int) -> RenderableType:
    count = Counter(call.fate for call in calls)
    head = f"{len(calls)} {_plural(len(calls), 'call')} announced in {turns} {_plural(turns, 'turn')}"
    fates = [fate for fate in Fate if count[fate]]
    phrases = [Text.assemble((head, "bold"), ":" if fates else "")]
    for fate in fates:
        words = fate.value.upper() if fate is Fate.LOST else fate.value
        phrases.append(Text.assemble((f"{count[fate]} {words}", _MARKS[fate][2]), "" if fate is fates[-1] else ","))
    lost = [call for call in calls if call.fate is Fate.LOST]
    lines = [
        Phrases([Text("never ran:", "bold red"), Text(_tool(call), "bold"), Text(_call_id(call), "cyan")], _INDENT)
        for call in lost[:_SHOWN_LOST]
    ]
    return Group(Phrases(phrases, _INDENT), *lines)


def _has_loss(conversation: Conversation) -> bool:
    return any(call.fate in _LOSSES for turn in conversation.turns for call in turn.calls)


def _clean(text: object) -> str:
    """Names, ids and reasons are the model's and the provider's to choose: none of them may steer the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in str(text))


def _tool(call: Call) -> str:
    return _clean(call.span.attributes.get(names.TOOL_NAME, "(no name)"))


def _call_id(call: Call) -> str:
    return _clean(call.span.attributes.get(names.TOOL_CALL_ID, "(no id)"))


def _shortened(text: str, width: int, ascii_only: bool) -> str:
    dots = "..." if ascii_only else "…"
    return text if len(text) <= width else text[: width - len(dots)] + dots


def _duration(nanoseconds: int) -> str:
    milliseconds = nanoseconds / 1e6
    if milliseconds < _WHOLE_MILLISECONDS:
        return f"{milliseconds:.1f} ms"
    return f"{milliseconds:.0f} ms" if milliseconds < _MILLISECONDS else f"{milliseconds / 1000:.2f} s"


def _plural(count: object, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def _relative(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
