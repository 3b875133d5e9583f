"""The option ``--ledger`` of the commands that look into a shared ledger."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from otel_toolcalls.config import Settings, SettingsError, resolve
from otel_toolcalls.ledger import Entry
from otel_toolcalls.ledger.opening import open_store
from otel_toolcalls.ledger.shared import SharedStore, StoreError
from otel_toolcalls.ledger.sqlite import SqliteStore

__all__ = ["OutOfReachError", "check", "errors_in_one_line", "ledger_option", "opened", "trace_id", "word"]

Command = TypeVar("Command", bound=Callable[..., Any])

ledger_option: Callable[[Command], Command] = click.option(
    "--ledger",
    metavar="URL",
    envvar="OTEL_TOOLCALLS_LEDGER",
    required=True,
    help="sqlite:///FILE or redis://HOST:PORT/0, as the apps have it [OTEL_TOOLCALLS_LEDGER].",
)


class OutOfReachError(click.ClickException):
    """The ledger cannot be read."""

    exit_code = 2


def opened(url: str) -> tuple[SharedStore, Settings]:
    """The store at a URL, not asked for anything yet, and all settings. Raises `click.UsageError`."""
    try:
        settings = resolve({"ledger": url})
        store = None if settings.ledger == "none" else open_store(settings.ledger)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    if store is None:
        raise click.UsageError(f"{settings.ledger} is no ledger that processes share: sqlite:///FILE or redis://HOST/0")
    return store, settings


def check(settings: Settings) -> None:
    """Find out what would keep an app from its ledger, however long it tried. Raises SettingsError."""
    store = None if settings.ledger == "none" else open_store(settings.ledger)
    if not isinstance(store, SqliteStore):
        return
    if store.path.is_dir():
        raise SettingsError(f"ledger: expected a file; got the directory {store.path}; name a file in it")
    if not store.path.parent.is_dir():
        raise SettingsError(
            f"ledger: expected a file in a directory that exists; got {store.path}; try: mkdir -p {store.path.parent}"
        )


@contextlib.contextmanager
def errors_in_one_line() -> Iterator[None]:
    """A store that is out of reach is told in one line."""
    try:
        yield
    except StoreError as error:
        raise OutOfReachError(str(error)) from None


def trace_id(entry: Entry) -> str | None:
    """The trace of the announcement; None where it has none, as in an app without an OpenTelemetry SDK."""
    return f"{entry.trace.trace_id:032x}" if entry.trace.trace_id else None


def word(text: str | None) -> str:
    """A text that a model or an app chose, as one word of a line."""
    if text is None:
        return "-"
    plain = text.isprintable() and not any(character in ' "=' for character in text) and text
    return text if plain else json.dumps(text)
