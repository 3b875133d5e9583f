"""The built wheel in an empty environment: an app without a line of tracing, and spans come out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from otel_toolcalls.cli.model_server import ModelServer
from tests.support.loopback import model_server as model_server  # noqa: PLC0414  # a fixture
from tests.support.replies import Announced, anthropic_reply

ROOT = Path(__file__).parents[2]
APP = """
import anthropic
for event in anthropic.Anthropic().messages.create(
    model="claude", max_tokens=9, messages=[{"role": "user", "content": "q"}], stream=True
):
    pass
print("done")
"""


LINK = re.compile(r"\]\((?!https?://)([^)#]+)")
"""A link to a file beside the README."""


@pytest.fixture(scope="module")
def uv() -> str:
    """The program that builds the distributions."""
    found = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if found is None:
        pytest.skip("uv builds the distributions, and is not here")
    return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, uv: str) -> Path:
    """A fresh environment with the wheel, its commands and one SDK."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], check=True, timeout=300)
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    python = folder / "venv/bin/python"
    what = (f"{wheel}[cli]", "anthropic", "opentelemetry-distro")
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *what], check=True, timeout=300)
    return folder / "venv/bin"


def started(environment: Path, tmp_path: Path, server: ModelServer, *command: str, **env: str) -> str:
    server.reply(anthropic_reply([Announced("toolu_1", "search", "{}"), Announced("toolu_2", "search", "{}")]))
    (tmp_path / "app.py").write_text(APP)
    done = subprocess.run(
        [environment / command[0], *command[1:]],
        cwd=tmp_path,
        env={"PATH": str(environment), "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "test", **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "done" in done.stdout
    return done.stdout


def test_run_writes_a_span_for_each_announced_call(
    environment: Path, tmp_path: Path, model_server: ModelServer
) -> None:
    started(environment, tmp_path, model_server, "otel-toolcalls", "run", "--", "python", "app.py")
    lines = [json.loads(line) for line in (tmp_path / "otel-toolcalls.jsonl").read_text().splitlines()]
    names = [
        span["name"]
        for line in lines
        for resource in line.get("resourceSpans", ())
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    assert names.count("announce_tool search") == 2


def test_opentelemetry_instrument_finds_the_package_by_itself(
    environment: Path, tmp_path: Path, model_server: ModelServer
) -> None:
    exporters = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    printed = started(environment, tmp_path, model_server, "opentelemetry-instrument", "python", "app.py", **exporters)
    assert printed.count('"name": "announce_tool search"') == 2


def test_the_source_distribution_holds_every_file_that_the_readme_names(uv: str, tmp_path: Path) -> None:
    subprocess.run([uv, "build", "--quiet", "--sdist", "--out-dir", tmp_path, ROOT], check=True, timeout=300)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        held = [PurePosixPath(*PurePosixPath(name).parts[1:]) for name in tar.getnames()]
        described = tar.extractfile(f"{archive.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert described is not None
        shown_in_the_index = described.read().decode()
    named = {PurePosixPath(link) for link in LINK.findall((ROOT / "README.md").read_text())}
    assert PurePosixPath("docs/coverage.md") in named
    assert {one for one in named if not any(file.is_relative_to(one) for file in held)} == set()
    assert "`docs/coverage.md`" in shown_in_the_index
    assert LINK.findall(shown_in_the_index) == [], "they lead nowhere there"
