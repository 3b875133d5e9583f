"""The generated files are what their generators write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("grafana-foundation-sdk needs Python 3.11", allow_module_level=True)

from dashboards import build


@pytest.mark.parametrize("path", sorted(build.generated()), ids=lambda path: path.name)
def test_a_generated_file_is_what_its_generator_writes(path: Path) -> None:
    assert path.read_text() == build.generated()[path]
