"""Build a Go program that a module under ``tools/`` pins, once, and print where the binary is.

    python tools/gobuild.py jaeger            build when it is not there yet
    python tools/gobuild.py --cached jaeger   only look: exit 1 when it is not there yet

The binary lives outside the tree, in ``${XDG_CACHE_HOME:-~/.cache}/otel-toolcalls/``, under a name made of the pinned
version and a hash of ``go.mod`` and ``go.sum``: other pins are another file, and a clean clone finds what was built.
Needs Go on PATH, in $GOROOT or at Go's own default place, and the Go module proxy when it builds.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOOLS = Path(__file__).parent


class BuildError(Exception):
    """The program cannot be built here; the text says why and what to do."""


class GoMissingError(BuildError):
    """There is no Go here."""


def find_go() -> str:
    """The path of the ``go`` command."""
    places = [os.environ.get("PATH", ""), str(Path(os.environ.get("GOROOT", "/usr/local/go"), "bin"))]
    go = shutil.which("go", path=os.pathsep.join(places))
    if go is None:
        raise GoMissingError(
            "Go is not installed (looked on PATH and in /usr/local/go): see https://go.dev/doc/install"
        )
    return go


def pinned(module: Path) -> tuple[str, str]:
    """The package that ``module`` pins as its tool, and the version of it."""
    text = (module / "go.mod").read_text()
    package = re.search(r"^tool (\S+)$", text, re.MULTILINE)
    if package is None:
        raise BuildError(f"{module / 'go.mod'} names no tool: expected a line `tool PACKAGE`")
    required = re.findall(r"^\s*(?:require )?(\S+) (v\S+)", text, re.MULTILINE)
    owners = {path: version for path, version in required if f"{package[1]}/".startswith(f"{path}/")}
    if not owners:
        raise BuildError(f"{module / 'go.mod'} requires no module that holds {package[1]}")
    return package[1], owners[max(owners, key=len)]


def binary_path(name: str) -> Path:
    """Where the binary of ``tools/<name>`` is, or will be once it is built."""
    module = TOOLS / name
    _, version = pinned(module)
    digest = hashlib.sha256((module / "go.mod").read_bytes() + (module / "go.sum").read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "otel-toolcalls" / f"{name}-{version}-{digest}"


def build(name: str) -> Path:
    """Build ``tools/<name>`` unless it is there already; concurrent builders wait for the first."""
    target = binary_path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            compile_to(target, TOOLS / name)
    return target


def compile_to(target: Path, module: Path) -> None:
    """Have Go compile the tool of ``module``; ``target`` appears whole or not at all."""
    go = find_go()
    package, version = pinned(module)
    print(f"building {package} {version}: some minutes, once", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        built = Path(folder, target.name)
        command = [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(built), package]
        if subprocess.run(command, cwd=module, stdout=sys.stderr, check=False).returncode != 0:
            raise BuildError(f"`{' '.join(command[:2])}` of {package} failed in {module}; Go's own words are above")
        built.replace(target)


def main() -> int:
    """Print the path of the binary; exit 1 with a line of explanation where there is none."""
    parser = argparse.ArgumentParser(description="Build a pinned Go program into the user's cache; print its path.")
    parser.add_argument("name", choices=sorted(path.parent.name for path in TOOLS.glob("*/go.mod")))
    parser.add_argument("--cached", action="store_true", help="do not build: exit 1 when it is not there yet")
    options = parser.parse_args()
    try:
        path = binary_path(options.name) if options.cached else build(options.name)
    except BuildError as error:
        print(f"gobuild: {error}", file=sys.stderr)
        return 1
    if not path.exists():
        print(f"gobuild: {options.name} is not built yet: make {options.name}-build", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
