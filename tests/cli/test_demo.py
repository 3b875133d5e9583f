"""``otel-toolcalls demo``: within one screen, which call was announced and never ran."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from otel_toolcalls.cli import demo
from tests.cli.conftest import Apps, Collector

pytestmark = pytest.mark.slow

ROW = re.compile(
    r"[├└]── (?P<mark>[✔✘✂?])\s+(?P<index>\d+) (?P<tool>\w+)\s+(?P<id>\w+)…\s+\+\S+ m?s\s+\S+ m?s (?P<fate>.*\S)"
)


def rows(text: str) -> list[tuple[str, str, str, str, str]]:
    """(mark, index, tool, begin of the id, first words of the fate) of each call in a tree."""
    found = (ROW.search(line) for line in text.splitlines())
    return [
        (row["mark"], row["index"], row["tool"], row["id"][:9], re.sub(r" in [\d.]+ m?s", "", row["fate"]))
        for row in found
        if row
    ]


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One run of the demo as it comes."""
    return subprocess.run(
        [sys.executable, "-m", "otel_toolcalls.cli", "demo"],
        cwd=tmp_path_factory.mktemp("demo"),
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_every_announced_call_has_its_row_and_one_of_them_never_ran(
    demonstrated: subprocess.CompletedProcess[str],
) -> None:
    assert rows(demonstrated.stderr) == [
        ("✔", "1", "get_order", "toolu_01F", "answered"),
        ("✔", "2", "get_customer", "toolu_01G", "answered"),
        ("✘", "1", "search_orders", "toolu_01K", "NEVER RAN"),
        ("✔", "2", "search_orders", "toolu_01M", "answered"),
        ("✔", "0", "get_order", "call_8Hs1", "answered"),
        ("✔", "1", "get_customer", "call_9Jt2", "answered"),
        ("✂", "1", "open_return", "toolu_01N", "TRUNCATED"),
        ("✘", "0", "message_carrier", "call_Qw3E", "ABANDONED"),
    ]


def test_it_says_why_and_names_the_lost_call_in_full(demonstrated: subprocess.CompletedProcess[str]) -> None:
    text = demonstrated.stderr
    assert "the other calls of its turn were answered, this one was not" in text
    assert "the reply reached its token limit" in text
    assert "the stream ended with openai.APIConnectionError" in text
    assert "8 calls announced in 8 turns: 5 answered, 1 truncated, 1 abandoned, 1 NEVER RAN" in text
    assert "never ran: search_orders toolu_01KaXw7QmJ2sVbT9cYhRfLpE" in text


def without_times(text: str) -> list[str]:
    """The lines with every clock and duration, which differ from run to run, as one sign."""
    return [re.sub(r"\d\d:\d\d:\d\d\.\d{3}|\s+\+?\d[\d.]* m?s\b", " ~", line) for line in text.strip("\n").splitlines()]


def test_the_readme_shows_what_it_prints(demonstrated: subprocess.CompletedProcess[str]) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (shown,) = (block for block in readme.split("```\n") if "NEVER RAN" in block)
    *lines, typed = without_times(demonstrated.stderr)
    assert without_times(shown) == [*lines, "both run: .venv/bin/otel-toolcalls demo --by-index"]
    assert typed == f"both run: {sys.executable} -m otel_toolcalls.cli demo --by-index"


def test_it_advises_the_command_as_it_was_typed(apps: Apps) -> None:
    scripts = Path(sys.executable).parent
    (apps.folder / "bin").symlink_to(scripts)
    for typed, path in (("bin/otel-toolcalls", "/usr/bin"), ("otel-toolcalls", str(scripts))):
        ran = subprocess.run(
            [typed, "demo", "--output", "a b.jsonl"],
            cwd=apps.folder,
            env={**apps.environment, "PATH": path},
            executable=scripts / "otel-toolcalls" if "/" not in typed else None,
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        )
        assert ran.stderr.splitlines()[-1] == f"both run: {typed} demo --output 'a b.jsonl' --by-index"


def test_the_tree_fits_one_screen(demonstrated: subprocess.CompletedProcess[str]) -> None:
    assert len(demonstrated.stderr.splitlines()) <= 42


def test_the_app_itself_saw_nothing_wrong(demonstrated: subprocess.CompletedProcess[str]) -> None:
    answer = demonstrated.stdout.split("my open ones.\n")[1].split(">")[0]
    assert answer.split("\n")[1:3] == ["    [search_orders]", "  You have two open orders from March: 4790 and 4821."]


def test_no_argument_is_in_the_tree(demonstrated: subprocess.CompletedProcess[str]) -> None:
    assert "refunded" not in demonstrated.stderr


def test_with_buffers_by_index_both_calls_ran(apps: Apps) -> None:
    ran = apps.run("demo", "--by-index", "--output", "fixed.jsonl")
    text = ran.stderr.decode()
    assert ran.returncode == 0
    assert [row[4] for row in rows(text)] == ["answered"] * 6 + ["TRUNCATED", "ABANDONED"]
    assert "no completed call was left undispatched.\n1 truncated and 1 abandoned call are shown as errors" in text
    assert b"One order from March was refunded, 4711, and two are open" in ran.stdout
    assert not [name for name in apps.names("fixed.jsonl") if name.startswith("await_dispatch")]


def test_an_endpoint_gets_the_same_spans_and_a_link_is_shown(apps: Apps, grpc_collector: Collector) -> None:
    ran = apps.run("demo", "--otlp", grpc_collector.url, "--protocol", "grpc")
    assert ran.returncode == 0
    assert grpc_collector.names() == apps.names("otel-toolcalls-demo.jsonl")
    assert b":16686/search?service=otel-toolcalls-demo" in ran.stderr
    assert b"usually" in ran.stderr


def test_it_needs_no_network_and_heeds_no_proxy_and_no_key(apps: Apps) -> None:
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    ran = apps.run("demo", env={**nowhere, "ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": ""})
    assert b"5 answered" in ran.stderr


def test_an_absent_sdk_names_the_command_that_installs_it(apps: Apps) -> None:
    code = """
        import importlib.util, sys
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name == "openai" else find(name, *more)
        sys.argv = ["otel-toolcalls", "demo"]
        from otel_toolcalls.cli import main
        main()
    """
    ran = apps.python(apps.write("command.py", code))
    assert ran.returncode == 2
    (line,) = ran.stderr.decode().splitlines()
    assert "pip install 'otel-toolcalls[cli,anthropic,openai]'" in line


def test_the_example_apps_contain_no_tracing() -> None:
    for name in ("support_by_name.py", "support_by_index.py", "support_tools.py"):
        text = demo.example(name).read_text()
        assert "telemetry" not in text
        assert "otel" not in text
