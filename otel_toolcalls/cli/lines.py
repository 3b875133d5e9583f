"""A text stream that appends whole lines to a file which several processes write at once."""

from __future__ import annotations

import io
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on this platform: its small appends are whole anyway
    fcntl = None  # type: ignore[assignment]

__all__ = ["AppendedLines"]


class AppendedLines(io.TextIOBase):
    """Each ``write`` opens the file, locks it, appends and closes it again.

    So nothing is torn where a worker, a forked child and their parent write to one file, and no descriptor is open
    in the app between two writes: it may fork, close every descriptor it finds, or change its directory.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).resolve()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with self._path.open("ab", buffering=0) as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            rest = memoryview(text.encode())
            while rest:
                rest = rest[file.write(rest) :]
        return len(text)
