"""The tree on the terminal: each conversation, its turns, the calls that they announced, and what became of each call."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from otel_toolcalls import conventions as names
from otel_toolcalls.cli.account import Call, Conversation, Fate, Turn, conversations
from otel_toolcalls.cli.otlp_lines import Span, read_spans

__all__ = ["print_tree", "render"]

_SHOWN_CONVERSATIONS = 40
"""More than these do not fit a person's patience: then only those with a loss are shown."""

_SHOWN_LOST = 10
_ID_WIDTH = 16
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
        console.print(render(conversations(read_spans(output, start)), ascii_only=console.options.ascii_only))
        console.print(Text(f"spans: {_relative(output)}", "dim"))
    except BrokenPipeError:
        sys.stderr = None


def render(found: Sequence[Conversation], *, ascii_only: bool = False) -> RenderableType:
    """Give the tree of these conversations with its totals."""
    calls = [call for conversation in found for turn in conversation.turns for call in turn.calls]
    if not found:
        return Text("otel-toolcalls: no model was called", "dim")
    shown = found
    if len(found) > _SHOWN_CONVERSATIONS:
        lossy = [conversation for conversation in found if _has_loss(conversation)]
        shown = lossy[-_SHOWN_CONVERSATIONS:]
    layout = _Layout(calls, ascii_only)
    parts: list[RenderableType] = [layout.headings()] if calls else []
    for conversation in shown:
        parts += [layout.conversation(conversation), Text()]
    if len(shown) < len(found):
        parts.append(Text(f"{len(found) - len(shown)} more conversations are in the file", "dim"))
    return Group(Text(), *parts, _totals(calls, sum(len(conversation.turns) for conversation in found)))


class _Layout:
    """Columns that line up over all turns."""

    def __init__(self, calls: Iterable[Call], ascii_only: bool) -> None:
        calls = list(calls)
        self._ascii_only = ascii_only
        self._name = max((len(_tool(call)) for call in calls), default=0)
        self._id = min(max((len(_call_id(call)) for call in calls), default=0), _ID_WIDTH)

    def headings(self) -> RenderableType:
        """What the columns are, in the place where the calls stand."""
        columns = ("", "#", "tool", "call id", "announced", "took", "what became of it")
        cells = [Text(column, "dim", justify="right" if column == "took" else "left") for column in columns]
        return Padding(self._row(*cells), (0, 0, 0, 4), expand=False)

    def conversation(self, conversation: Conversation) -> Tree:
        first, *rest = conversation.turns
        tree = self._turn(first)
        for turn in rest:
            tree.add(self._turn(turn))
        return tree

    def _row(self, *cells: Text) -> Table:
        row = Table.grid(padding=(0, 1))
        for width in (1, 2, self._name, self._id, 9, 8):
            row.add_column(min_width=width, no_wrap=True)
        row.add_column()
        row.add_row(*cells)
        return row

    def _turn(self, turn: Turn) -> Tree:
        tree = Tree(_heading(turn), guide_style="dim")
        for call in turn.calls:
            tree.add(self._call(call, turn.first.start))
        return tree

    def _call(self, call: Call, turn_start: int) -> RenderableType:
        fancy, plain, style = _MARKS[call.fate]
        index = call.span.attributes.get(names.CALL_INDEX)
        row = self._row(
            Text(plain if self._ascii_only else fancy, style),
            Text("" if index is None else _clean(index), "dim", justify="right"),
            Text(_tool(call), style if call.fate in _LOSSES else "bold"),
            Text(_shortened(_call_id(call), self._ascii_only), "cyan"),
            Text(f"+{_duration(call.span.start - turn_start)}", "dim", justify="right"),
            Text(_duration(call.span.end - call.span.start), "dim", justify="right"),
            Text(_fate(call), f"{style} reverse" if call.fate is Fate.LOST else style),
        )
        notes = [
            Padding(Text(note, note_style), (0, 0, 0, 5), expand=False) for note, note_style in _notes(call, style)
        ]
        return Group(row, *notes) if notes else row


def _heading(turn: Turn) -> Text:
    span = turn.first
    clock = datetime.fromtimestamp(span.start / 1e9, timezone.utc).astimezone().strftime("%H:%M:%S.%f")[:-3]
    if turn.span is None:
        model = span.attributes.get(names.REQUEST_MODEL) or span.attributes.get(names.RESPONSE_MODEL) or ""
        return Text.assemble(
            (clock, "dim"), " ", (_clean(f"a turn of {model}") if model else "a turn", "bold"), " traced elsewhere"
        )
    facts = [_clean(span.attributes.get(names.PROVIDER_NAME, "")), _finish(span), _duration(span.end - span.start)]
    answered = len({link.span_id for link in span.links})
    if answered:
        facts.insert(-1, f"answers {answered}")
    joined = " · ".join(filter(None, facts))
    return Text.assemble(
        (clock, "dim"), " ", (_clean(span.name), "bold red" if span.failed else "bold"), " ", (joined, "dim")
    )


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
    line = Text(head, "bold")
    for number, fate in enumerate(fate for fate in Fate if count[fate]):
        words = fate.value.upper() if fate is Fate.LOST else fate.value
        line.append(", " if number else ": ", "default").append(f"{count[fate]} {words}", _MARKS[fate][2])
    lost = [call for call in calls if call.fate is Fate.LOST]
    lines = [
        Text.assemble(("never ran: ", "bold red"), (_tool(call), "bold"), " ", (_call_id(call), "cyan"))
        for call in lost[:_SHOWN_LOST]
    ]
    return Group(line, *lines)


def _has_loss(conversation: Conversation) -> bool:
    return any(call.fate in _LOSSES for turn in conversation.turns for call in turn.calls)


def _clean(text: object) -> str:
    """Names, ids and reasons are the model's and the provider's to choose: none of them may steer the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in str(text))


def _tool(call: Call) -> str:
    return _clean(call.span.attributes.get(names.TOOL_NAME, "(no name)"))


def _call_id(call: Call) -> str:
    return _clean(call.span.attributes.get(names.TOOL_CALL_ID, "(no id)"))


def _shortened(call_id: str, ascii_only: bool) -> str:
    dots = "..." if ascii_only else "…"
    return call_id if len(call_id) <= _ID_WIDTH else call_id[: _ID_WIDTH - len(dots)] + dots


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
