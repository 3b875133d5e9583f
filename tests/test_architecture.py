"""What the package may not do by being imported: the rules that import-linter and ruff cannot see at run time."""

from __future__ import annotations

import subprocess
import sys

SDKS = ("anthropic", "openai", "groq", "together", "cerebras", "botocore", "boto3", "httpx", "httpx2", "redis")

IMPORT_EVERY_MODULE = f"""
import importlib, importlib.metadata, pkgutil, sys
import otel_toolcalls
modules = [m.name for m in pkgutil.walk_packages(otel_toolcalls.__path__, "otel_toolcalls.") if "__main__" not in m.name]
try:
    importlib.metadata.version("opentelemetry-exporter-otlp-json-file")
except importlib.metadata.PackageNotFoundError:  # without the extra `cli` the commands cannot be imported
    modules = [name for name in modules if not name.startswith("otel_toolcalls.cli")]
for name in modules:
    importlib.import_module(name)
print(len(modules), *[sdk for sdk in {SDKS!r} if sdk in sys.modules])
"""


def test_importing_every_module_imports_no_sdk() -> None:
    answer = subprocess.run([sys.executable, "-c", IMPORT_EVERY_MODULE], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    imported, *sdks = answer.stdout.split()
    assert int(imported) > 0
    assert sdks == []


SWITCH_ON = """
import sys
before = set(sys.modules)  # a test run that measures coverage has loaded some of them already
import otel_toolcalls
otel_toolcalls.instrument()
print(*sorted({"sqlite3", "redis", "difflib", "otel_toolcalls.ledger.sqlite"} & set(sys.modules) - before))
"""


def test_switching_it_on_loads_no_library_of_a_store_that_was_not_chosen() -> None:
    answer = subprocess.run([sys.executable, "-c", SWITCH_ON], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == []
