"""How tables and trees reach the terminal: lines without blanks at their ends, broken between phrases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

__all__ = ["ROW_WIDTH", "Phrases", "print_trimmed"]

ROW_WIDTH = 240
"""Columns of a table whose rows stay whole, so that an id can be copied and a line be searched; a terminal wraps them."""


@dataclass(frozen=True, slots=True)
class Phrases:
    """A line of phrases, none of which is broken where the next line has room for it, indented by ``hang``."""

    phrases: Sequence[Text]
    hang: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        line = Text()
        for phrase in self.phrases:
            if line.cell_len + 1 + phrase.cell_len > options.max_width and line.plain.strip():
                yield line
                line = Text(" " * self.hang)
            elif line.plain:
                line.append(" ")
            line.append_text(phrase)
        yield line


def print_trimmed(console: Console, renderable: RenderableType) -> None:
    """Print it without the blanks by which rich fills up lines."""
    for line in console.render_lines(renderable, pad=False):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        console.print(text, soft_wrap=True)
