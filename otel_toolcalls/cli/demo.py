"""``otel-toolcalls demo``: an app that loses a tool call, run against prepared replies on loopback."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import click

from otel_toolcalls.cli import launch
from otel_toolcalls.cli.destination import PROTOCOLS
from otel_toolcalls.cli.model_server import ModelServer, Reply, Request
from otel_toolcalls.cli.run import checked_destination, run_to_its_end

__all__ = ["command"]

_HERE = Path(__file__).parent
_EXAMPLES = (_HERE / "examples", _HERE.parent.parent / "examples")
"""Where the example apps are: in an installed package, in a source checkout."""

_STREAMS = _HERE / "streams"
_OUTPUT = "otel-toolcalls-demo.jsonl"
_SERVICE = "otel-toolcalls-demo"
_PACE_SECONDS = 0.006
"""Between two events of a stream: enough to give the spans a length."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")

_BY_NAME = """
The app keeps its buffers by tool name: the second search_orders took the place
of the first, and nothing that the app printed says so. With buffers by index
both run: {command}"""
_BY_INDEX = """
The app keeps its buffers by index: no completed call was left undispatched.
1 truncated and 1 abandoned call are shown as errors: the replies broke off."""

_RESULT_KINDS = {"tool_result", "tool", "function_call_output"}


@dataclass(frozen=True, slots=True)
class _Scene:
    """A question of the app, and the replies to it by how many results of tools the request carries."""

    path: str
    question: str
    replies: Mapping[int, str]
    breaks_off: bool = False


_SCENES = (
    _Scene("/messages", "order 4821", {0: "parallel", 2: "parallel_answer"}),
    _Scene("/messages", "refunded orders", {0: "same_tool", 1: "same_tool_half", 2: "same_tool_whole"}),
    _Scene("/chat/completions", "Luis Moreno", {0: "interleaved", 2: "interleaved_answer"}),
    _Scene("/messages", "open a return", {0: "truncated"}),
    _Scene("/responses", "Ask the carrier", {0: "cut"}, breaks_off=True),
)


@click.command()
@click.option("--otlp", metavar="URL", help="Send everything to this OTLP endpoint too [OTEL_EXPORTER_OTLP_ENDPOINT].")
@click.option("--protocol", type=click.Choice(PROTOCOLS), help="OTLP protocol, as for run.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    default=_OUTPUT,
    show_default=True,
    help="Append OTLP JSON lines to this file.",
)
@click.option("--by-index", is_flag=True, help="Run the app that keeps its buffers by index.")
def command(otlp: str | None, protocol: str | None, output: str, by_index: bool) -> NoReturn:
    """Run an example app that loses a tool call, and see the loss.

    The app is examples/support_by_name.py, without a line of tracing. It talks through the real anthropic and openai
    SDKs to a small server on loopback, which plays prepared replies: no key and no network are needed.
    """
    for sdk in ("anthropic", "openai"):
        if importlib.util.find_spec(sdk) is None:
            raise click.UsageError(f"{sdk} is not installed; try: pip install 'otel-toolcalls[cli,anthropic,openai]'")
    app = example("support_by_index.py" if by_index else "support_by_name.py")
    destination = checked_destination(_SERVICE, output, otlp, protocol)
    mask = launch.hold_signals()  # before the server's threads start, which inherit it
    with ModelServer() as server:
        server.reply(_reply, path="")
        print(f"$ otel-toolcalls run -- python {app.name}", flush=True)
        status = run_to_its_end([sys.executable, str(app)], destination, _variables(server.url), mask)
    print(_BY_INDEX if by_index else _BY_NAME.format(command=_typed("--by-index")), file=sys.stderr)
    if destination.endpoint is not None:
        host = urlsplit(destination.endpoint).hostname or "localhost"
        print(
            f"sent to {destination.endpoint} as service {_SERVICE}; if that is a Jaeger, its\n"
            f"page is usually http://{host}:16686/search?service={_SERVICE}",
            file=sys.stderr,
        )
    launch.end_like(status)


def example(name: str) -> Path:
    """Find an example app. Raises `click.UsageError`."""
    for folder in _EXAMPLES:
        if (folder / name).exists():
            return folder / name
    raise click.UsageError(f"the example {name} is not where it was installed: {_EXAMPLES[0]}")


def _typed(option: str) -> str:
    """This command with one more option, as it can be typed where it was typed."""
    program, *arguments = sys.argv
    words = [program]
    if Path(program).name == "__main__.py":  # python -m
        words = sys.orig_argv[: len(sys.orig_argv) - len(arguments)]
    elif shutil.which(Path(program).name) == program:
        words = [Path(program).name]
    return shlex.join([*words, *arguments, option])


def _variables(url: str) -> dict[str, str]:
    """What points the SDKs at the server, and keeps every proxy out of it."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none-needed",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "none-needed",
        **dict.fromkeys(_PROXIES, ""),
    }


def _reply(request: Request) -> Reply:
    asked, results = request.body.decode(), _count_results(request.json)
    for scene in _SCENES:
        if request.path.endswith(scene.path) and scene.question in asked and results in scene.replies:
            body = (_STREAMS / f"{scene.replies[results]}.sse").read_bytes()
            return Reply(body, pace=_PACE_SECONDS, cut=len(body) if scene.breaks_off else None)
    error = {"error": {"type": "invalid_request_error", "message": "the demo has no reply to this"}}
    return Reply(json.dumps(error).encode(), "application/json", 400)


def _count_results(body: dict[str, Any]) -> int:
    entries = body.get("messages") or body.get("input") or []
    blocks = [block for entry in entries if isinstance(entry.get("content"), list) for block in entry["content"]]
    return sum((entry.get("type") or entry.get("role")) in _RESULT_KINDS for entry in [*entries, *blocks])
