"""Write every generated file: the Prometheus rules, the Grafana dashboards, the reference of the metrics.

``python -m dashboards.build`` writes them; with ``--check`` it writes nothing and exits with 1 if one differs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from .source import boards, reference, rules

HERE = Path(__file__).resolve().parent


class _Dumper(yaml.SafeDumper):
    """YAML as a person would write it: block text for queries of several lines, no aliases, no folding."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _yaml(content: dict[str, Any]) -> str:
    body = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=10_000)
    return f"# Written by dashboards/build.py from dashboards/source/rules.py: edit that.\n{body}"


def generated() -> dict[Path, str]:
    """Every generated file with its content."""
    return {
        HERE / "prometheus" / "rules.yaml": _yaml(rules.rules()),
        HERE.parent / "docs" / "metrics.md": reference.rendered(),
        **{HERE / "grafana" / f"{name}.json": boards.rendered(name) for name in boards.BOARDS},
    }


def main() -> int:
    """Write or check; the exit status says whether the files are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    check = parser.parse_args().check
    stale = [path for path, text in generated().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(
            f"{path.relative_to(HERE.parent)} {'is out of date: run python -m dashboards.build' if check else 'written'}"
        )
        if not check:
            path.write_text(generated()[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
