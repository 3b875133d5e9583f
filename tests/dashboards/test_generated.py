"""The generated files are what their generators write."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboards import build


@pytest.mark.parametrize("path", sorted(build.generated()), ids=lambda path: path.name)
def test_a_generated_file_is_what_its_generator_writes(path: Path) -> None:
    assert path.read_text() == build.generated()[path]
