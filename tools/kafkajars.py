"""Get the jars of the Kafka broker that ``tools/kafka/pom.xml`` pins, once, and print the folder that holds them.

    python -m tools.kafkajars

They go outside the tree, like the programs of ``gobuild.py``. Needs Java, Maven and Maven's repository.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

POM = Path(__file__).parent / "kafka" / "pom.xml"


class JarsError(Exception):
    """The jars cannot be had here; the text says why."""


def folder() -> Path:
    """Where the jars are, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "otel-toolcalls" / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def get() -> Path:
    """Fetch the jars unless they are there already; concurrent callers wait for the first."""
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _fetch(target)
    return target


def _fetch(target: Path) -> None:
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if missing:
        raise JarsError(f"{' and '.join(missing)} not installed (Debian: default-jre-headless, maven)")
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise JarsError(f"Maven cannot get Kafka: {done.stdout.strip().splitlines()[0]}")
        Path(work, "jars").replace(target)


def main() -> int:
    """Print the folder; exit 1 with a line of explanation where there is none."""
    try:
        print(get())
    except JarsError as error:
        print(f"kafkajars: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
