"""What happens to an exception of ours: it is counted, logged once per place, and goes no further.

The app comes first. Every piece of code that runs inside the app's flow is guarded by its caller with ``except
Exception`` and a call to :func:`mishap`, never around anything of the app's or the SDK's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

__all__ = ["guarded", "listen", "mishap"]

_logger = logging.getLogger("otel_toolcalls")
_logged: set[str] = set()
_listeners: list[Callable[[str], None]] = []


def listen(listener: Callable[[str], None] | None) -> None:
    """Have ``listener`` told the place of each internal error from now on; None for nobody."""
    _listeners[:] = [listener] if listener is not None else []


def mishap(where: str, error: BaseException) -> None:
    """Take note of an exception of ours that was caught at ``where``. Raises nothing."""
    try:
        for listener in _listeners:
            listener(where)
        if where not in _logged:
            _logged.add(where)
            _logger.warning(
                "otel-toolcalls: internal error in %s; the app goes on, what it would have recorded is lost "
                "(later ones there are counted, not logged)",
                where,
                exc_info=error,
            )
    except Exception:  # even the report failed: there is nobody left to tell
        return


def guarded(where: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function``; where it raises, note that and return None."""
    try:
        return function(*args)
    except Exception as error:
        mishap(where, error)
        return None
