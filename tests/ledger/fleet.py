"""Processes of a fleet (see member.py), driven over their standard input."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Member:
    """One process, and the thread that tells it what to do, one command after the other."""

    def __init__(self, ledger: str, report: Path, log: Path, deadline: float) -> None:
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ledger.member", ledger, str(report), str(deadline)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._commands: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def tell(self, command: str, call_ids: Sequence[str] = ()) -> None:
        """Have that done after all that was told before; does not wait for it."""
        self._commands.put(" ".join((command, *call_ids)))

    def done(self) -> None:
        """Wait until all is done, and is written to the ledger."""
        self.tell("flush")
        self._commands.join()
        assert self.process.poll() is None, "the process has died"

    @property
    def busy(self) -> int:
        """How many commands are not done yet."""
        return self._commands.unfinished_tasks

    def _tell(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        while True:
            command = self._commands.get()
            if command is None:
                return
            with contextlib.suppress(OSError):
                self.process.stdin.write(f"{command}\n")
                self.process.stdin.flush()
                self.process.stdout.readline()
            self._commands.task_done()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """An orderly end, where it still runs."""
        self._commands.put(None)
        self._thread.join(60)
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._log.close()


@contextlib.contextmanager
def fleet(size: int, ledger: str, folder: Path, deadline: float) -> Iterator[list[Member]]:
    members = [Member(ledger, folder / "report", folder / "log", deadline) for _ in range(size)]
    try:
        yield members
    finally:
        for member in members:
            if sys.exc_info()[0] is not None:
                member.kill()
            member.end()


def reported(folder: Path) -> Counter[tuple[str, str, str]]:
    """How often each call was reported: id, reason, whether in its own trace."""
    report = folder / "report"
    lines = report.read_text().splitlines() if report.exists() else []
    return Counter((call_id, reason, home) for call_id, reason, home in map(str.split, lines))
