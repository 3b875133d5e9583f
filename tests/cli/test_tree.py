"""The tree tells, for each announced call, what the spans show of it."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from otel_toolcalls.cli.account import Fate, conversations
from otel_toolcalls.cli.otlp_lines import Link, Span, read_spans
from otel_toolcalls.cli.printing import print_trimmed
from otel_toolcalls.cli.tree import print_tree, render

_ids = count(1)
MS = 1_000_000


def span(operation: str, parent: Span | None = None, *, at: int = 0, links: tuple[Span, ...] = (), **more: Any) -> Span:
    """A span that begins ``at`` milliseconds and lasts ten; ``more`` are attributes with ``__`` for a dot."""
    number = next(_ids)
    attributes = {"gen_ai.operation.name": operation, **{name.replace("__", "."): v for name, v in more.items()}}
    return Span(
        parent.trace_id if parent else f"trace-{number}",
        f"span-{number}",
        parent.span_id if parent else "",
        f"{operation} {attributes.get('gen_ai.tool.name', 'm')}",
        at * MS,
        (at + 10) * MS,
        attributes,
        tuple(Link(link.span_id, {}) for link in links),
        "error.type" in attributes,
    )


def turn(**more: Any) -> Span:
    return span("chat", gen_ai__provider__name="anthropic", **more)


def call(parent: Span, outcome: str = "completed", **more: Any) -> Span:
    named = {"gen_ai__tool__name": "search_orders", "gen_ai__tool__call__id": "toolu_1", **more}
    return span("announce_tool", parent, otel_toolcalls__call__outcome=outcome, **named)


def shown(*spans: Span, ascii_only: bool = False, width: int = 140) -> str:
    console = Console(width=width, color_system=None, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    print_trimmed(console, render(conversations(spans), width=width, ascii_only=ascii_only))
    return console.export_text()


def fate_of(announced: Span, *others: Span) -> Fate:
    calls = [c for group in conversations((announced, *others)) for t in group.turns for c in t.calls]
    return next(c.fate for c in calls if c.span is announced)


# ---- fates ----------------------------------------------------------------------------------------------------------


def test_a_call_with_an_execution_under_it_ran() -> None:
    announced = call(turn())
    assert fate_of(announced, span("execute_tool", announced, at=30)) is Fate.RAN


def test_a_call_that_an_execution_elsewhere_links_to_ran() -> None:
    announced = call(turn())
    assert fate_of(announced, span("execute_tool", links=(announced,))) is Fate.RAN


def test_a_call_that_a_later_turn_links_to_is_answered() -> None:
    announced = call(turn())
    assert fate_of(announced, turn(links=(announced,))) is Fate.ANSWERED


def test_a_call_with_a_judgement_under_it_never_ran() -> None:
    announced = call(turn())
    judged = span("await_dispatch", announced, otel_toolcalls__undispatched__reason="deadline")
    assert fate_of(announced, judged) is Fate.LOST


def test_a_call_that_ran_after_it_was_judged_lost_ran() -> None:
    announced = call(turn())
    judged = span("await_dispatch", announced, otel_toolcalls__undispatched__reason="deadline")
    assert fate_of(announced, judged, span("execute_tool", announced, at=900)) is Fate.RAN


def test_a_call_whose_sibling_alone_was_answered_never_ran() -> None:
    asked = turn()
    lost, answered = call(asked), call(asked)
    assert fate_of(lost, answered, asked, turn(links=(answered,))) is Fate.LOST


def test_a_call_of_which_nothing_more_is_seen_is_left_open() -> None:
    assert fate_of(call(turn())) is Fate.OPEN


@pytest.mark.parametrize(
    ("attributes", "fate"),
    [
        ({"otel_toolcalls__call__exempt": True}, Fate.EXEMPT),
        ({"otel_toolcalls__call__kind": "server"}, Fate.PROVIDER),
        ({"outcome": "truncated", "error__type": "length"}, Fate.TRUNCATED),
        ({"outcome": "invalid", "error__type": "invalid_arguments"}, Fate.INVALID),
        ({"outcome": "abandoned", "error__type": "cancelled"}, Fate.ABANDONED),
    ],
)
def test_the_announcement_itself_may_tell_the_fate(attributes: dict[str, Any], fate: Fate) -> None:
    assert fate_of(call(turn(), **attributes)) is fate


def test_an_acknowledged_call_is_not_lost() -> None:
    announced = call(turn())
    assert fate_of(announced, span("acknowledge_tool", announced)) is Fate.ACKNOWLEDGED


# ---- conversations --------------------------------------------------------------------------------------------------


def test_turns_that_answer_each_others_calls_are_one_conversation_in_order_of_time() -> None:
    first = turn(at=0)
    announced = call(first, at=5)
    second = turn(at=50, links=(announced,))
    other = turn(at=20)
    groups = conversations((second, other, announced, first))
    assert [[t.first for t in group.turns] for group in groups] == [[first, second], [other]]


def test_turns_of_one_trace_are_one_conversation() -> None:
    first = turn()
    second = span("chat", first, at=30)
    assert len(conversations((first, second))) == 1


def test_calls_of_a_turn_that_another_library_traced_stay_together() -> None:
    elsewhere = turn()
    calls = [call(elsewhere), call(elsewhere)]
    (group,) = conversations(calls)
    assert [c.span for c in group.turns[0].calls] == calls
    assert "traced elsewhere" in shown(*calls)


# ---- words ----------------------------------------------------------------------------------------------------------


def test_the_tree_names_position_name_id_and_why_it_was_lost() -> None:
    asked = turn(gen_ai__response__finish_reasons=["tool_use"])
    lost = call(asked, at=3, otel_toolcalls__call__index=2)
    judged = span("await_dispatch", lost, otel_toolcalls__undispatched__reason="siblings_answered")
    lines = shown(asked, lost, judged).splitlines()
    assert any("chat m anthropic · tool_use · 10 ms" in line for line in lines)
    assert any(
        line.split()[1:] == ["✘", "2", "search_orders", "toolu_1", "+3.0", "ms", "10", "ms", "NEVER", "RAN"]
        for line in lines
    )
    assert any("the other calls of its turn were answered, this one was not" in line for line in lines)
    assert lines[-1] == "never ran: search_orders toolu_1"


def test_a_given_up_call_tells_how_much_had_come() -> None:
    asked = turn()
    cut = call(asked, "abandoned", error__type="httpx2.ReadError", otel_toolcalls__call__arguments__size=21)
    assert "the stream ended with httpx2.ReadError; 21 bytes had come" in shown(asked, cut)


def test_what_was_odd_on_the_wire_is_told() -> None:
    asked = turn()
    odd = call(asked, otel_toolcalls__call__anomalies=["index_missing"])
    assert "odd on the wire: index_missing" in shown(asked, odd)


def test_a_failed_execution_is_told_from_a_good_one() -> None:
    announced = call(turn())
    assert "ran and failed after 20 ms, for 10 ms" in shown(
        announced, span("execute_tool", announced, at=30, error__type="KeyError")
    )


def test_names_and_ids_cannot_style_the_terminal() -> None:
    asked = turn()
    assert "[red]x[/red]" in shown(asked, call(asked, gen_ai__tool__name="[red]x[/red]"))


def test_control_characters_of_a_tool_name_do_not_reach_the_terminal() -> None:
    asked = turn()
    text = shown(asked, call(asked, gen_ai__tool__name="a\x1b[2Jb\x07"))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_terminal_that_knows_only_ascii_gets_only_ascii() -> None:
    asked = turn()
    long_id = call(asked, gen_ai__tool__call__id="toolu_01KaXw7QmJ2sVbT9cYhRfLpE")
    marks = shown(asked, long_id, ascii_only=True).replace("└──", "")
    assert marks.isascii()


def test_a_file_without_spans_says_that_no_model_was_called() -> None:
    assert "no model was called" in shown()


def test_of_many_conversations_only_those_with_a_loss_are_shown() -> None:
    spans: list[Span] = []
    for number in range(60):
        asked = turn(at=number * 100)
        outcome = "truncated" if number in (7, 30) else "completed"
        spans += [asked, call(asked, outcome, at=number * 100, gen_ai__tool__call__id=f"id-{number}")]
    text = shown(*spans)
    assert "id-7 " in text
    assert "id-30 " in text
    assert "id-8 " not in text
    assert "58 more conversations are in the file" in text
    assert "60 calls announced in 60 turns" in text


def talk() -> list[Span]:
    """Two turns; the second, which answers a call of the first, announces one that nobody ran."""
    asked = turn(gen_ai__response__finish_reasons=["tool_use"])
    answered = call(asked, otel_toolcalls__call__index=1, gen_ai__tool__call__id="toolu_01KaXw7QmJ2sVbT9cYhRfLpE")
    again = turn(at=900, links=(answered,), gen_ai__response__finish_reasons=["tool_use"])
    lost = call(again, at=905, otel_toolcalls__call__index=1, gen_ai__tool__name="search_the_orders_of_everybody")
    return [asked, answered, again, lost, span("await_dispatch", lost, otel_toolcalls__undispatched__reason="deadline")]


@pytest.mark.parametrize("width", [140, 80, 60, 40])
def test_every_width_shows_what_became_of_each_call_beside_its_name(width: int) -> None:
    text = shown(*talk(), width=width)
    assert all(len(line) <= width for line in text.splitlines())
    assert re.search(r"✔.* search_ord\S+ .*answered in 890 ms$", text, re.MULTILINE)
    assert re.search(r"✘.* search_the\S+ .*NEVER RAN$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (140, "# tool call id announced took what became of it"),
        (80, "# tool call id what became of it"),
        (60, "tool what became of it"),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns_that_still_line_up(width: int, columns: str) -> None:
    _, headings, *lines = shown(*talk(), width=width).splitlines()
    assert " ".join(headings.split()) == columns
    (answered,) = (line for line in lines if "answered in" in line)
    assert answered.index("answered in") == headings.index("what became of it")


def test_the_heading_of_a_turn_breaks_between_its_facts_and_under_its_name() -> None:
    lines = shown(turn(gen_ai__response__finish_reasons=["tool_use"]), width=40).splitlines()
    (at,) = (number for number, line in enumerate(lines) if "chat m" in line)
    assert lines[at + 1] == " " * lines[at].index("chat m") + "tool_use · 10 ms"


@pytest.mark.parametrize("width", [140, 40])
def test_no_line_ends_in_blanks(width: int) -> None:
    text = shown(*talk(), width=width)
    assert not [line for line in text.splitlines() if line != line.rstrip()]


# ---- the file -------------------------------------------------------------------------------------------------------


def test_lines_that_are_no_otlp_and_spans_of_others_are_passed_over(tmp_path: Path) -> None:
    raw = {"traceId": "1", "spanId": "2", "name": "chat m", "startTimeUnixNano": "5", "endTimeUnixNano": "6"}
    scopes = [{"scope": {"name": name}, "spans": [raw]} for name in ("otel_toolcalls", "somebody.else")]
    path = tmp_path / "spans.jsonl"
    path.write_text(
        'half a li\n{"resourceMetrics": []}\n' + json.dumps({"resourceSpans": [{"scopeSpans": scopes}]}) + "\n"
    )
    (found,) = read_spans(str(path))
    assert (found.name, found.start, found.end, found.parent_id) == ("chat m", 5, 6, "")


def test_the_tree_goes_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").touch()
    print_tree(str(tmp_path / "empty.jsonl"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no model was called" in captured.err
