"""``otel-toolcalls run``: start an app instrumented, and show what became of the tool calls that its models announced."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click

from otel_toolcalls.cli import exporters, launch, ledgers
from otel_toolcalls.cli.destination import ENVIRONMENT, PROTOCOLS, Destination, choose
from otel_toolcalls.cli.tree import print_tree
from otel_toolcalls.config import SettingsError, resolve

__all__ = ["checked_destination", "command", "run_to_its_end"]

_DEFAULT_OUTPUT = "otel-toolcalls.jsonl"
_BOOTSTRAP = str(Path(__file__).parent / "_bootstrap")


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--otlp", metavar="URL", help="Send everything to this OTLP endpoint [OTEL_EXPORTER_OTLP_ENDPOINT].")
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    help="OTLP protocol [OTEL_EXPORTER_OTLP_PROTOCOL, else grpc for port 4317 and http/protobuf for any other].",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help=f"Append OTLP JSON lines to this file and print the tree [{_DEFAULT_OUTPUT}, where there is no endpoint].",
)
@click.option("--service", metavar="NAME", help="service.name of the app [OTEL_SERVICE_NAME, else the app's own name].")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    otlp: str | None, protocol: str | None, output: str | None, service: str | None, command: tuple[str, ...]
) -> NoReturn:
    """Run COMMAND with every Python process under it instrumented.

    COMMAND is whatever starts the app: "python app.py", "python -m package", "uvicorn app:app". Its exit status,
    signals, input and output pass through; the tree of turns and calls goes to standard error when it has ended.
    """
    if not command:
        raise click.UsageError("no command given; try: otel-toolcalls run -- python app.py")
    if command[0] == "-m":
        command = (sys.executable, *command)
    destination = checked_destination(
        service or _service_in_environment() or _app_name(command), output, otlp, protocol
    )
    if destination.output is None and destination.endpoint is None:
        destination = replace(destination, output=str(Path(_DEFAULT_OUTPUT).resolve()))
    if destination.output is None:
        launch.replace(command, _environment(destination))
    launch.end_like(run_to_its_end(command, destination, {}, launch.hold_signals()))


def checked_destination(service: str, output: str | None, otlp: str | None, protocol: str | None) -> Destination:
    """Decide on the destination, and find out here what would keep the app's processes from using it.

    Raises `click.UsageError`.
    """
    try:
        ledgers.check(resolve({}))
        destination = choose(service, output, otlp, protocol)
    except (SettingsError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    package = exporters.missing(destination)
    if package is not None:
        raise click.UsageError(f"{package} is not installed; try: pip install 'otel-toolcalls[cli]'")
    return destination


def run_to_its_end(
    command: Sequence[str], destination: Destination, extra: Mapping[str, str], mask: Iterable[int]
) -> int:
    """Run the command, print the tree of what it wrote to the destination's file, and give its wait status.

    ``extra`` are variables for its environment, ``mask`` is what `launch.hold_signals` gave. Raises
    `launch.CommandError`.
    """
    start = _size(destination.output) if destination.output is not None else 0
    with tempfile.TemporaryDirectory(prefix="otel-toolcalls-") as folder:
        roll = Path(folder) / "roll"
        status = launch.supervise(command, {**_environment(replace(destination, roll=str(roll))), **extra}, mask)
        instrumented = roll.exists()
    if not instrumented:
        print(
            f"otel-toolcalls: no Python process of {command[0]!r} was instrumented; "
            "Python's options -I, -E and -S keep it out, and so does a cleared environment",
            file=sys.stderr,
        )
    elif destination.output is not None:
        print_tree(destination.output, start)
    return status


def _size(output: str) -> int:
    """Create the file where it is absent, and tell where this run's lines will begin."""
    try:
        with Path(output).open("ab") as file:
            return file.tell()
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {error.strerror}") from None


def _environment(destination: Destination) -> dict[str, str]:
    paths = [_BOOTSTRAP, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, ENVIRONMENT: str(destination), "PYTHONPATH": os.pathsep.join(paths)}


def _service_in_environment() -> str | None:
    attributes = dict(
        pair.split("=", 1) for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",") if "=" in pair
    )
    return os.environ.get("OTEL_SERVICE_NAME") or attributes.get("service.name")


def _app_name(command: Sequence[str]) -> str:
    """``python [options] app.py`` is app, ``python -m pkg`` is pkg, anything else its own name."""
    name = Path(command[0]).name
    if not name.startswith("python"):
        return name
    arguments = iter(command[1:])
    for argument in arguments:
        if argument == "-m":
            return next(arguments, name)
        if argument == "-c":
            return name
        if argument in ("-W", "-X"):
            next(arguments, None)
        elif not argument.startswith("-"):
            return Path(argument).stem
    return name
