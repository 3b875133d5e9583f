"""Each contestant's own environment (made by uv, kept in the user's cache) and its processes."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from benchmarks.shapes import Shape

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ROOT", "FailedError", "Nursery", "Process", "contestant", "environment", "processor"]

ROOT = Path(__file__).resolve().parents[1]
_SDKS = ("openai", "anthropic", "opentelemetry-sdk")
"""In every environment, in the versions that the project's lock pins."""
_QUIET = {
    "ANTHROPIC_OPEN_TELEMETRY": "false",  # the SDK's own tracing would be in every figure
    "OTEL_SDK_DISABLED": "false",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "",
}


class FailedError(Exception):
    """A contestant could not do what it was told to."""


def contestant(name: str) -> ModuleType:
    """What the module of a contestant says of it; nothing of it is imported in this process but that."""
    return importlib.import_module(f"benchmarks.contestants.{name}")


def environment(name: str, packages: list[str]) -> Path:
    """The Python of an environment that has ``packages`` and the SDKs. Made where it is not there yet."""
    wanted = [str(ROOT) if package == "." else package for package in packages]
    pins = [f"{sdk}=={version}" for sdk, version in _locked().items()]
    key = hashlib.sha256(json.dumps([sys.version, wanted, pins]).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "otel-toolcalls" / "benchmarks" / f"{name}-{key}"
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _uv("venv", "--quiet", "--python", sys.executable, str(folder))
        options = [item for package in wanted for item in (("-e", package) if package == str(ROOT) else (package,))]
        _uv("pip", "install", "--quiet", "--python", str(python), *pins, *options)
        (folder / ".complete").touch()
    return python


def _locked() -> dict[str, str]:
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    pinned = dict(line.split(" ")[0].split("==") for line in lines if "==" in line and not line.startswith(" "))
    return {sdk: pinned[sdk] for sdk in _SDKS}


def processor() -> str:
    """Its name, where the system tells."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _uv(*arguments: str) -> None:
    beside = Path(sys.executable).with_name("uv")
    subprocess.run([str(beside) if beside.exists() else "uv", *arguments], check=True)


class Process:
    """A contestant at work."""

    def __init__(self, name: str, connection: Any, pid: int) -> None:
        self.name = name
        self.pid = pid
        self._connection = connection

    def __call__(self, what: str, **asked: Any) -> Any:
        """Have it done, and return the answer. Raises FailedError where it did not work."""
        if isinstance(asked.get("shape"), Shape):
            asked["shape"] = dataclasses.asdict(asked["shape"])
        self.tell(what, **asked)
        try:
            line = self._connection.readline()
        except OSError:
            line = ""
        if not line:
            raise FailedError(f"{self.name}: the process ended")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise FailedError(f"{self.name}: {answer['error']}")
        return answer

    def tell(self, what: str, **asked: Any) -> None:
        try:
            print(json.dumps({"do": what, **asked}), file=self._connection, flush=True)
        except OSError as error:
            raise FailedError(f"{self.name}: the process ended") from error

    def close(self) -> None:
        """It ends by itself when nobody listens any more."""
        with contextlib.suppress(OSError):
            self._connection.close()


class Nursery:
    """The process that contestants' processes are forked from, and its socket."""

    def __init__(self, python: Path) -> None:
        self._folder = tempfile.TemporaryDirectory()
        address = f"{self._folder.name}/socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen()
        self._listener.settimeout(1.0)
        self._running = subprocess.Popen(
            [str(python), "-m", "benchmarks.child", address],
            cwd=ROOT,
            env={**os.environ, **_QUIET},
            stdin=subprocess.DEVNULL,
            stderr=None if os.environ.get("BENCH_DEBUG") else subprocess.DEVNULL,
        )
        self._born: list[Process] = []
        self._mother = self._accept("nursery")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._born):
            process.close()
        try:
            self._running.wait(20)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        self._listener.close()
        self._folder.cleanup()

    def prepare(self, workload: str, shape: Shape) -> None:
        """Have a replay at hand in every process to come."""
        self._mother("prepare", workload=workload, shape=shape)

    def fork(self, name: str, variant: str) -> Process:
        """A process in which the contestant is switched on. Raises FailedError where it cannot be."""
        self._mother.tell("fork")
        process = self._accept(variant)
        module = contestant(name)
        environ = {**module.VARIANTS, **getattr(module, "PARTS", {})}[variant]
        process("become", contestant=name, variant=variant, environ=environ)
        process("begin")
        return process

    def _accept(self, name: str) -> Process:
        connection = self._next_connection(name)
        pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        process = Process(name, connection.makefile("rw"), pid)
        connection.close()  # the file holds it
        self._born.append(process)
        return process

    def _next_connection(self, name: str) -> socket.socket:
        since = time.monotonic()
        while time.monotonic() - since < _PATIENCE:
            with contextlib.suppress(TimeoutError):
                return self._listener.accept()[0]
            if self._running.poll() is not None:
                raise FailedError(f"{name}: the nursery ended with status {self._running.returncode}")
        raise FailedError(f"{name}: no process within {_PATIENCE:.0f} s")


_PATIENCE = 120.0
"""Seconds that a start may take on a busy machine."""
