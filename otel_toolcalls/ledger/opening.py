"""Which store the setting ``ledger`` means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_toolcalls.ledger.shared import SharedStore

__all__ = ["open_store"]

_SQLITE = "sqlite:///"


def open_store(ledger: str) -> SharedStore | None:
    """The shared store of this URL, not asked for anything yet; None for ``memory``, which is no store to share.

    ``sqlite:///file`` is a path from the working directory, ``sqlite:////var/lib/file`` one from the root. Raises
    SettingsError for a URL that cannot be one of a store, and where the package that it needs is absent.
    """
    if ledger == "memory":
        return None
    # A store, and the library that it needs, costs the start of the apps that have chosen it, and of no other.
    if ledger.startswith(_SQLITE):
        from otel_toolcalls.ledger.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(ledger.removeprefix(_SQLITE))
    from otel_toolcalls.ledger.redis import RedisStore  # noqa: PLC0415

    return RedisStore(ledger)
