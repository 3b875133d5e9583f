"""What a reply is made of, whichever SDK carries it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Expected", "Shape"]

TOOLS = ("get_weather", "search_flights")


@dataclass(frozen=True)
class Expected:
    """A call as it must be reported."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Shape:
    """``text`` pieces of text, then ``calls`` calls whose ``fragments`` pieces of arguments come by turns."""

    text: int = 0
    calls: int = 2
    fragments: int = 100
    """Of all calls together."""

    @property
    def numbers(self) -> range:
        return range(self.calls)

    def call_id(self, number: int) -> str:
        return f"call_{number:04d}Zq7xkV3mPwRt"

    def name(self, number: int) -> str:
        return TOOLS[number % len(TOOLS)]

    def pieces(self) -> Iterator[tuple[int, str]]:
        """Fragments in order of arrival, interleaved one by one: whose, and what."""
        rounds = max(2, self.fragments // self.calls) if self.calls else 0
        for turn in range(rounds):
            for number in self.numbers:
                first, last = turn == 0, turn == rounds - 1
                yield number, f'{{"of":{number},"text":"' if first else '"}' if last else f"w{turn % 10} "

    def expected(self) -> list[Expected]:
        texts: dict[int, list[str]] = {}
        for number, piece in self.pieces():
            texts.setdefault(number, []).append(piece)
        return [Expected(self.call_id(n), self.name(n), "".join(texts[n])) for n in self.numbers]
