"""Build the OpenTelemetry Collector of ``tools/collector/manifest.yaml`` with the official builder, once.

    python -m tools.collectorbuild            build when it is not there yet, and print where the binary is
    python -m tools.collectorbuild --cached   only look: exit 1 when it is not there yet

Like the programs of ``gobuild.py``, the binary lives outside the tree, under a name made of a hash: of the manifest and
of the builder's pins.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import gobuild

MANIFEST = Path(__file__).parent / "collector" / "manifest.yaml"
NAME = "otelcol-toolcalls"


def binary_path() -> Path:
    """Where the collector is, or will be once it is built."""
    builder = gobuild.binary_path("builder")
    digest = hashlib.sha256(MANIFEST.read_bytes() + builder.name.encode()).hexdigest()[:12]
    return builder.with_name(f"{NAME}-{digest}")


def build() -> Path:
    """Build the collector unless it is there already; concurrent builders wait for the first."""
    target = binary_path()
    builder = gobuild.build("builder")
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            compile_to(target, builder)
    return target


def compile_to(target: Path, builder: Path) -> None:
    """Run the builder; ``target`` appears whole or not at all."""
    print(f"building {NAME}: some minutes, once", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [str(builder), "--config", str(MANIFEST), "--skip-strict-versioning=false"]
        # The builder looks for go on PATH alone.
        path = os.pathsep.join([str(Path(gobuild.find_go()).parent), os.environ.get("PATH", "")])
        env = {**os.environ, "CGO_ENABLED": "0", "PATH": path}
        if subprocess.run(command, cwd=folder, env=env, stdout=sys.stderr, check=False).returncode != 0:
            raise gobuild.BuildError(f"the builder failed on {MANIFEST}; its own words are above")
        Path(folder, "build", NAME).replace(target)


def main() -> int:
    """Print the path of the binary; exit 1 with a line of explanation where there is none."""
    parser = argparse.ArgumentParser(description="Build the collector of the manifest into the user's cache.")
    parser.add_argument("--cached", action="store_true", help="do not build: exit 1 when it is not there yet")
    try:
        path = binary_path() if parser.parse_args().cached else build()
    except gobuild.BuildError as error:
        print(f"collectorbuild: {error}", file=sys.stderr)
        return 1
    if not path.exists():
        print("collectorbuild: the collector is not built yet: make collector-build", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
