"""The test matrix: oldest, middle and newest SDKs on the oldest and the newest Python that is present.

``make test-matrix`` runs it all; ``nox --list`` shows the sessions; ``nox -s 'tests(oldest, python3.10)'`` runs one.
The newest sessions take what the package index has today, on purpose: ``make test`` runs on the lock, so what only
fails here was broken by a release.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">= 2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "no"  # what an earlier run installed would stay; `nox -r` is quicker
nox.options.error_on_missing_interpreters = True

PROJECT = nox.project.load_toml("pyproject.toml")
PYTEST_GROUP = nox.project.dependency_groups(PROJECT, "pytest")
OLDEST_SUPPORTED = tuple(int(part) for part in PROJECT["project"]["requires-python"].removeprefix(">=").split("."))

# What meets an SDK; the ledger's stores, the commands, the dashboards and the recorded replies are for `make test`.
MEETS_SDKS = ("tests/hooks", "tests/wire", "tests/apps", *sorted(map(str, Path("tests").glob("test_*.py"))))
FAST = ("-m", "not slow and not e2e", "-n", "auto")

# Name → what pip installs, one list after the other. `oldest` is every lower bound that pyproject.toml declares for
# users: OpenTelemetry's and all SDKs'. Those SDKs pass `proxies=` to httpx, which 0.28 removed; before 0.27 httpx
# needs modules that Python 3.13 removed.
SDKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "oldest": (
        PYTEST_GROUP,
        ("--resolution", "lowest-direct", "-e", ".[otlp,redis,instruments-any]", "httpx == 0.27.2"),
    ),
    "middle": ((*PYTEST_GROUP, "-e", ".[cli,redis]", "anthropic == 0.60.0", "openai == 2.0.0"),),
    "newest": ((*PYTEST_GROUP, "-e", ".[cli,redis]", "anthropic[bedrock,vertex]", "openai[realtime]"),),
    "compatible": ((*PYTEST_GROUP, "-e", ".[cli,redis]", "groq", "together", "cerebras-cloud-sdk"),),
}


def candidates() -> list[Path]:
    """Executables that may be a Python: this one, those on PATH, and pyenv's, whose shims run only the selected one."""
    found = [Path(sys.executable)]
    for minor in range(OLDEST_SUPPORTED[1], OLDEST_SUPPORTED[1] + 10):
        on_path = shutil.which(f"python{OLDEST_SUPPORTED[0]}.{minor}")
        found += [Path(on_path)] if on_path else []
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()
        found += sorted(Path(root, "versions").glob("*/bin/python"))
    return found


def present_pythons() -> dict[tuple[int, int], str]:
    """Version → executable of each supported Python that runs here."""
    query = "import sys; print(*sys.version_info[:2]); print(sys.base_prefix == sys.prefix)"
    pythons: dict[tuple[int, int], str] = {}
    for executable in candidates():
        answer = subprocess.run([executable, "-c", query], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            major, minor, is_base = answer.stdout.split()
            version = (int(major), int(minor))
            if version >= OLDEST_SUPPORTED and (version not in pythons or is_base == "True"):
                pythons[version] = str(executable)
    return pythons


def oldest_and_newest() -> list[nox.param]:
    """The edges of what is present, as parameters of a session; one where there is only one."""
    present = present_pythons()
    if min(present) != OLDEST_SUPPORTED:
        supported, oldest = (".".join(map(str, version)) for version in (OLDEST_SUPPORTED, min(present)))
        print(f"Python {supported}, the oldest supported, is not here: testing on {oldest} instead", file=sys.stderr)
    edges = sorted({min(present), max(present)})
    return [nox.param(present[version], id="python{}.{}".format(*version)) for version in edges]


EDGES = oldest_and_newest()
# Each edge of Python with each edge of the SDKs, and what lies between once.
PAIRS = [(python, sdks) for sdks in ("oldest", "newest") for python in EDGES]
PAIRS += [(EDGES[0], "middle"), (EDGES[-1], "compatible")]


@nox.session
@nox.parametrize(
    ("python", "sdks"),
    [nox.param(python.args[0], sdks, id=f"{sdks}, {python.id}") for python, sdks in PAIRS],
)
def tests(session: nox.Session, sdks: str) -> None:
    """Run the fast tests with one set of SDKs; what needs another package skips itself."""
    for requirements in SDKS[sdks]:
        session.install("--upgrade", *requirements)
    session.run("python", "-m", "pytest", *MEETS_SDKS, *FAST, *session.posargs)


@nox.session
def frameworks(session: nox.Session) -> None:
    """Run real agent frameworks, whole and with a tool removed."""
    session.install("--upgrade", *PYTEST_GROUP, *nox.project.dependency_groups(PROJECT, "frameworks"), "-e", ".[cli]")
    session.run("python", "-m", "pytest", "tests/apps/test_frameworks.py", *session.posargs)
