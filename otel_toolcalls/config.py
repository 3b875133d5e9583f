"""Settings: by keyword, by ``OTEL_TOOLCALLS_*`` variables, by OpenTelemetry's declarative configuration.

A keyword wins over a variable, a variable over the default. An unknown or malformed one raises :class:`SettingsError`,
which names it, what came and what is accepted.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, Final

__all__ = ["CAPTURE_VARIABLE", "PREFIX", "Configuration", "Redact", "Settings", "SettingsError", "masked", "resolve"]

PREFIX: Final = "OTEL_TOOLCALLS_"
CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

Redact = Callable[[str, str], str]
"""``(tool name, arguments or result as JSON text) -> what of it may leave``, as text too."""

_logger = logging.getLogger("otel_toolcalls")


class SettingsError(ValueError):
    """A setting is unknown or malformed. The message names it, what came, and what is accepted."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, resolved."""

    turn_span: str = "auto"
    """Emit a span of ours for each response: ``auto`` where nobody else does, ``always``, ``never``."""
    on_violation: str = "record"
    """``record`` what contradicts the protocol, or ``raise`` it into the app (for test environments)."""
    capture_content: str = "no_content"
    """Where arguments and results go: ``no_content``, ``span_only``, ``event_only``, ``span_and_event``.

    The one log event of this package carries none of them, so ``event_only`` captures nothing here.
    """
    content_limit: int = 8192
    """Captured content is cut at this many bytes of UTF-8."""
    redact: Redact | None = None
    """What captured arguments and results pass through first; where it raises, nothing leaves."""
    ledger: str = field(default="memory", repr=False)
    """Where completed calls wait: ``memory``, ``sqlite:///file``, ``redis://host/0``; ``none`` follows no call."""
    ledger_capacity: int = 10_000
    """How many calls may wait in memory, where the oldest beyond that is reported and let go; with a shared ledger,
    how many may be held back while it is out of reach."""
    dispatch_deadline: float = 300.0
    """Seconds after which a completed call that nobody ran or answered is judged lost."""
    dispatch_deadlines: Mapping[str, float] = field(default_factory=dict)
    """Deadlines by pattern of tool name (``fnmatch``), before the general one."""
    sibling_grace: float = 2.0
    """Seconds that a call may stay behind its answered siblings of the same turn."""
    exempt_tools: tuple[str, ...] = ()
    """Patterns of tool names (``fnmatch``) that nobody here will run."""

    @property
    def captures_on_spans(self) -> bool:
        return self.capture_content in ("span_only", "span_and_event")

    def exempt(self, tool: str | None) -> bool:
        """Nobody here will run this tool."""
        return any(fnmatch.fnmatchcase(tool or "", pattern) for pattern in self.exempt_tools)

    def deadline(self, tool: str | None) -> float:
        """Seconds that a call of this tool may wait."""
        for pattern, seconds in self.dispatch_deadlines.items():
            if fnmatch.fnmatchcase(tool or "", pattern):
                return seconds
        return self.dispatch_deadline


def _one_of(*accepted: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        text = str(value).lower()
        if text not in accepted:
            raise ValueError(f"one of {', '.join(accepted)}")
        return text

    return parse


def _content(value: object) -> str:
    if str(value).lower() == "true":
        _logger.warning("otel-toolcalls: capture of content %r is taken as SPAN_ONLY", value)
        return "span_only"
    if str(value).lower() in ("false", ""):
        return "no_content"
    return _one_of("no_content", "span_only", "event_only", "span_and_event")(value)


def _number(kind: Callable[[Any], Any], least: float, accepted: str) -> Callable[[object], Any]:
    def parse(value: object) -> Any:
        try:
            number = kind(value)
        except (TypeError, ValueError, OverflowError):
            number = least - 1
        if isinstance(value, bool) or not least <= number < float("inf"):
            raise ValueError(accepted)
        return number

    return parse


_LEDGERS: Final = re.compile(r"memory|none|sqlite:///.+|unix://.+|rediss?://[^/?]*(/\d*/?)?(\?.*)?")
"""A database that is no number is taken for the first one by redis-py, in silence."""


def _ledger(value: object) -> str:
    text = str(value)
    if _LEDGERS.fullmatch(text):
        return text
    raise ValueError("memory, none, sqlite:///FILE or redis://HOST:PORT/0")


def _patterns(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, (list, tuple, set, frozenset)) and all(isinstance(part, str) for part in parts):
        return tuple(part.strip() for part in parts if part.strip())
    raise ValueError("names or patterns, as a list or separated by commas")


def _deadlines(value: object) -> dict[str, float]:
    accepted = 'seconds by pattern, as a mapping or as JSON such as {"slow_*": 900}'
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(accepted) from None
    if not isinstance(value, Mapping):
        raise ValueError(accepted)
    seconds = _number(float, 0.001, accepted)
    return {str(pattern): seconds(limit) for pattern, limit in value.items()}


def _callable(value: object) -> Redact:
    if callable(value):
        return value
    raise ValueError("a function (tool_name, arguments) -> arguments")


_PARSERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "turn_span": _one_of("auto", "always", "never"),
    "on_violation": _one_of("record", "raise"),
    "capture_content": _content,
    "content_limit": _number(int, 1, "a whole number of bytes, 1 or more"),
    "redact": _callable,
    "ledger": _ledger,
    "ledger_capacity": _number(int, 1, "a whole number of calls, 1 or more"),
    "dispatch_deadline": _number(float, 0.001, "seconds, more than 0"),
    "dispatch_deadlines": _deadlines,
    "sibling_grace": _number(float, 0, "seconds, 0 or more"),
    "exempt_tools": _patterns,
}
_KEYWORD_ONLY: Final = frozenset({"redact"})

Configuration: Any = make_dataclass(
    "Configuration",
    [(entry.name, object, field(default=None)) for entry in fields(Settings) if entry.name not in _KEYWORD_ONLY],
    namespace={"__doc__": "The settings as OpenTelemetry's declarative configuration reads them; None is not given."},
)


def resolve(given: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from keywords and variables. Raises SettingsError."""
    values: dict[str, Any] = {}
    if environ.get(CAPTURE_VARIABLE):
        values["capture_content"] = _parse("capture_content", environ[CAPTURE_VARIABLE], CAPTURE_VARIABLE)
    variables = {PREFIX + name.upper(): name for name in _PARSERS if name not in _KEYWORD_ONLY}
    for variable in sorted(environ):
        if variable.startswith(PREFIX):
            if variable not in variables:
                raise _unknown(variable, "variable", variables)
            if environ[variable] != "":
                values[variables[variable]] = _parse(variables[variable], environ[variable], variable)
    for name, value in given.items():
        if name not in _PARSERS:
            raise _unknown(name, "setting", _PARSERS)
        if value is not None:
            values[name] = _parse(name, value, name)
    return Settings(**values)


def masked(url: object) -> str:
    """A URL as it may be shown: without user, password and query."""
    return re.sub(r"^([a-z+]*:/*)?.*@", r"\1***@", str(url)).partition("?")[0]


def _parse(name: str, value: object, shown: str) -> Any:
    try:
        return _PARSERS[name](value)
    except ValueError as error:
        got = masked(value) if name == "ledger" else repr(value)
        raise SettingsError(f"{shown}: expected {error}; got {got}") from None


def _unknown(name: str, what: str, known: Mapping[str, object]) -> SettingsError:
    import difflib  # noqa: PLC0415  # for this one line only

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return SettingsError(f"{name}: no such {what}; {hint}Accepted: {', '.join(sorted(known))}")
