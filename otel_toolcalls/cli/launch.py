"""Start a command as if nobody stood in front of it: its status, signals, input and output are its own.

With nothing to do afterwards, `replace` turns this process into the command. Otherwise `supervise` waits for it:
signals that a process sent to us go on to the command; those of the terminal (Ctrl-C) have reached it already, since
it is in our process group.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

__all__ = ["CommandError", "end_like", "replace", "supervise"]

_FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH")
)
_WATCHED = (*_FORWARDED, signal.SIGCHLD)
_CHANGED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the interpreter ignores from its start; a command expects their default."""


class CommandError(Exception):
    """The command cannot be started; ``status`` is what a shell would exit with."""

    def __init__(self, command: str, error: OSError) -> None:
        found = not isinstance(error, FileNotFoundError)
        super().__init__(f"{command}: {error.strerror}" if found else f"{command}: command not found")
        self.status = 126 if found else 127


def replace(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Become the command. Raises `CommandError`."""
    for number in _CHANGED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606  (the user's own command)
    except OSError as error:
        raise CommandError(command[0], error) from None


def hold_signals() -> set[signal.Signals | int]:
    """Block what `supervise` waits for, and give the mask of before, which is the command's.

    They stay blocked after the command's end, so that the report on it is not interrupted half-way by a signal that
    was meant for it. A thread that starts earlier would get them instead: call this before.
    """
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED))


def supervise(command: Sequence[str], environment: Mapping[str, str], mask: Iterable[int]) -> int:
    """Run the command to its end, with the mask that `hold_signals` gave, and give its wait status.

    Raises `CommandError`.
    """
    try:
        child = os.posix_spawnp(command[0], list(command), environment, setsigmask=mask, setsigdef=_CHANGED_BY_PYTHON)
    except OSError as error:
        raise CommandError(command[0], error) from None
    return _wait(child)


def end_like(status: int) -> NoReturn:
    """End this process as the one with that wait status ended: by the same exit status, or by the same signal."""
    if not os.WIFSIGNALED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    sys.stdout.flush()
    os.kill(os.getpid(), number)
    sys.exit(128 + number)  # where that signal does not end a process


def _wait(child: int) -> int:
    while True:
        number, from_terminal = _next_signal()
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif not from_terminal:
            os.kill(child, number)


def _next_signal() -> tuple[int, bool]:
    """Wait for a signal; tell its number, and whether the terminal sent it."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(_WATCHED)
        return info.si_signo, info.si_code > 0  # a process that sends one leaves a code of 0 or less
    number = signal.sigwait(_WATCHED)
    keyboard = number in (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
    return number, keyboard and os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
