"""Which store the setting ``ledger`` means."""

from __future__ import annotations

from otel_toolcalls.ledger.redis import RedisStore
from otel_toolcalls.ledger.shared import SharedStore
from otel_toolcalls.ledger.sqlite import SqliteStore

__all__ = ["open_store"]

_SQLITE = "sqlite:///"


def open_store(ledger: str) -> SharedStore | None:
    """The shared store of this URL, not asked for anything yet; None for ``memory``, which is no store to share.

    ``sqlite:///file`` is a path from the working directory, ``sqlite:////var/lib/file`` one from the root. Raises
    SettingsError for a URL that cannot be one of a store, and where the package that it needs is absent.
    """
    if ledger == "memory":
        return None
    if ledger.startswith(_SQLITE):
        return SqliteStore(ledger.removeprefix(_SQLITE))
    return RedisStore(ledger)
