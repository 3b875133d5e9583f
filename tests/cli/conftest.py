"""Apps as a user writes them, started by the real command in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from tests.support.loopback import ModelServer, model_server

__all__ = ["model_server"]

COMMAND = (sys.executable, "-m", "otel_toolcalls.cli")

TURN = "".join(
    "data: " + json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", **chunk}) + "\n\n"
    for chunk in (
        {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_order", "arguments": ""}},
        ]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"id": "SECRET"}'}}]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    )
)  # fmt: skip
"""A turn of chat completions that announces one call."""

ASK = """
def ask():
    import openai
    client = openai.OpenAI()
    for chunk in client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], stream=True):
        yield chunk
"""
"""How the apps of these tests ask a model: ``for _ in ask(): pass``."""


@dataclass
class Apps:
    """Writes apps and runs them under the command in an empty folder, against a model server."""

    folder: Path
    environment: dict[str, str]

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(text))
        return path

    def start(self, *arguments: object, app: str | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start ``otel-toolcalls ARGUMENTS``; with ``app``, ``… -- python app.py`` of that text after `ASK`."""
        if app is not None:
            path = self.write("app.py", ASK + textwrap.dedent(app))
            arguments = ("run", *arguments, "--", sys.executable, path)
        environment = {**self.environment, **options.pop("env", {})}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env=environment,
            start_new_session=True,
            **{"cwd": self.folder, **pipes, **options},
        )

    def run(
        self, *arguments: object, app: str | None = None, stdin: bytes = b"", **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        with ended(self.start(*arguments, app=app, **options)) as process:
            out, err = process.communicate(stdin, timeout=180)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def python(self, script: Path) -> subprocess.CompletedProcess[bytes]:
        """Run a script by itself, not under the command."""
        return subprocess.run(
            [sys.executable, script],
            check=False,
            capture_output=True,
            env=self.environment,
            cwd=self.folder,
            timeout=180,
        )

    def spans(self, output: str = "otel-toolcalls.jsonl") -> list[dict[str, Any]]:
        """The spans in the file, every line of which must be whole."""
        lines = [json.loads(line) for line in (self.folder / output).read_text().splitlines()]
        return [
            span
            for line in lines
            for resource in line.get("resourceSpans", ())
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def names(self, output: str = "otel-toolcalls.jsonl") -> list[str]:
        return sorted(span["name"] for span in self.spans(output))


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Make sure that the process and all that it started are gone afterwards."""
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the apps of a session keep what Python compiled, wherever the installed packages are read-only."""
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture
def apps(tmp_path: Path, model_server: ModelServer, bytecode: Path) -> Apps:
    """Apps that find a model server which announces one call in every turn."""
    model_server.reply(TURN, path="/chat/completions")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return Apps(
        tmp_path,
        {
            **inherited,
            "OPENAI_BASE_URL": f"{model_server.url}/v1",
            "OPENAI_API_KEY": "none",
            "NO_PROXY": "127.0.0.1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(bytecode),
        },
    )


class Collector(TraceServiceServicer):  # type: ignore[misc]
    """A real gRPC server that takes traces."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        add_TraceServiceServicer_to_server(self, self._server)
        self.url = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(self, request: ExportTraceServiceRequest, context: object) -> ExportTraceServiceResponse:  # noqa: N802
        self.requests.append(request)
        return ExportTraceServiceResponse()

    def names(self) -> list[str]:
        return span_names(self.requests)

    def stop(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def grpc_collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.stop()


def span_names(requests: Iterable[ExportTraceServiceRequest]) -> list[str]:
    """The names of all spans in these requests, sorted."""
    return sorted(
        span.name
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )


@pytest.fixture
def read_line() -> Callable[[subprocess.Popen[bytes]], str]:
    """Give a function that waits for the next line of a process's output."""

    def read(process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().decode().strip()

    return read
