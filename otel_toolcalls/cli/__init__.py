"""The command ``otel-toolcalls``; it needs the ``cli`` extra."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; an absent extra is one line on standard error and status 1."""
    try:
        from otel_toolcalls.cli.commands import run_command_line  # noqa: PLC0415  (needs the extra)

        status = run_command_line()
    except ModuleNotFoundError as missing:
        sys.exit(f"otel-toolcalls: {missing.name} is not installed; try: pip install 'otel-toolcalls[cli]'")
    sys.exit(status)
