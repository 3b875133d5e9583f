"""The commands by name, each loaded when it is called, and how their errors reach a person: one line, one status."""

from __future__ import annotations

import importlib
import sys

import click

from otel_toolcalls._version import __version__
from otel_toolcalls.cli.launch import CommandError

__all__ = ["run_command_line"]

COMMANDS = {
    "run": "otel_toolcalls.cli.run",
    "demo": "otel_toolcalls.cli.demo",
    "doctor": "otel_toolcalls.cli.doctor",
    "sweep": "otel_toolcalls.cli.sweep",
    "pending": "otel_toolcalls.cli.pending",
}
"""Name of a command → the module that defines it under the name ``command``."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click gives it)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  (likewise)
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="otel-toolcalls", message="%(prog)s %(version)s")
def _otel_toolcalls() -> None:
    """OpenTelemetry spans for every tool call a language model announces, and what became of each."""


def run_command_line() -> int:
    """Run the command that ``sys.argv`` names and give the status to exit with."""
    try:
        return _otel_toolcalls.main(prog_name="otel-toolcalls", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        print(f"otel-toolcalls: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    except CommandError as error:
        print(f"otel-toolcalls: {error}", file=sys.stderr)
        return error.status
    except click.Abort:
        return 130
