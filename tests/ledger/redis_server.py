"""A real redis-server on a free port of 127.0.0.1, whose data survives a restart."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.backends import eventually, free_ports


class RedisServer:
    """Started with ``start``; ``stop`` keeps what it holds in its folder, as a service that is restarted does."""

    def __init__(self, folder: Path, *options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("no redis-server on PATH (Debian: redis-server)")
        self._redis = pytest.importorskip("redis")
        [self.port] = free_ports(1)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._command = [
            *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)),
            *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec", *options),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(self._ready, what=f"redis-server is ready, see {self._folder / 'log'}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=20)
            self._process = None

    def client(self) -> Any:
        return self._redis.Redis(port=self.port, decode_responses=True)

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()

    def _ready(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except self._redis.ConnectionError:
            return False
