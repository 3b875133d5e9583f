"""``otel-toolcalls doctor``: a target that an SDK has moved is found before production does."""

from __future__ import annotations

import importlib.metadata

from otel_toolcalls.hooks.stainless import HOOKS
from tests.cli.conftest import Apps

MOVE = """
    import sys
    import openai._streaming as streaming
    {damage}
    sys.argv = ["otel-toolcalls", "doctor"]
    from otel_toolcalls.cli import main
    main()
"""


WITHOUT = """
    import importlib.metadata, sys
    version = importlib.metadata.version
    def without(name):
        if name in {absent}:
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)
    importlib.metadata.version = without
    sys.argv = ["otel-toolcalls", "doctor"]
    from otel_toolcalls.cli import main
    main()
"""


def lines_of(text: bytes) -> dict[str, str]:
    """Target → its line."""
    return {line.split()[3]: line for line in text.decode().splitlines() if "._" in line}


def test_every_target_of_an_installed_sdk_is_patched_and_shows_its_version(apps: Apps) -> None:
    ran = apps.run("doctor")
    assert (ran.returncode, ran.stderr) == (0, b"")
    lines = lines_of(ran.stdout)
    for sdk in ("anthropic", "openai"):
        line = lines[f"{sdk}._streaming.Stream.__stream__"]
        assert line.split()[:3] == ["patched", sdk, importlib.metadata.version(sdk)]


def test_an_attribute_that_has_moved_is_told_by_line_and_status(apps: Apps) -> None:
    script = apps.write("doctor.py", MOVE.format(damage="del streaming.Stream.__stream__"))
    ran = apps.python(script)
    assert ran.returncode == 1
    lines = lines_of(ran.stdout)
    assert lines["openai._streaming.Stream.__stream__"].startswith("moved")
    assert lines["openai._streaming.AsyncStream.__stream__"].startswith("patched")


def test_a_module_that_has_moved_is_told_too(apps: Apps) -> None:
    damage = "del sys.modules['openai._response']; sys.modules['openai._response'] = None"
    ran = apps.python(apps.write("doctor.py", MOVE.format(damage=damage)))
    assert ran.returncode == 1
    assert lines_of(ran.stdout)["openai._response.BaseAPIResponse._parse"].startswith("moved")


def test_an_sdk_that_is_not_installed_is_named_and_no_error(apps: Apps) -> None:
    ran = apps.python(apps.write("doctor.py", WITHOUT.format(absent=["groq", "openai"])))
    assert ran.returncode == 0
    assert not [target for target in lines_of(ran.stdout) if target.startswith(("groq.", "openai."))]
    *_, observed, absent = ran.stdout.decode().splitlines()
    assert observed.startswith(f"observed: anthropic {importlib.metadata.version('anthropic')}")
    assert absent.startswith("not installed: ")
    assert {"groq", "openai"} <= set(absent.removeprefix("not installed: ").split(", "))


def test_where_no_sdk_is_installed_it_says_that_nothing_will_be_seen(apps: Apps) -> None:
    names = sorted({hook.distribution for hook in HOOKS})
    ran = apps.python(apps.write("doctor.py", WITHOUT.format(absent=names)))
    assert ran.returncode == 1
    (line,) = ran.stdout.decode().splitlines()
    assert line.startswith("no SDK that is observed is installed here, so nothing will be seen: ")
    assert {"anthropic", "openai"} <= set(line.rpartition(": ")[2].split(", "))


def test_no_line_ends_in_blanks(apps: Apps) -> None:
    ran = apps.run("doctor")
    assert not [line for line in ran.stdout.decode().splitlines() if line != line.rstrip()]
