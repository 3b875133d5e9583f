"""Patches: identical after undoing, once however often, each on its own, and switched on in each way there is."""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.metadata
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wrapt
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

import otel_toolcalls
from otel_toolcalls.config import Settings
from otel_toolcalls.hooks.patching import Fact, Hook, Patches, Target
from otel_toolcalls.hooks.stainless import HOOKS
from otel_toolcalls.instrumentor import report
from otel_toolcalls.runtime import Runtime
from otel_toolcalls.telemetry import Telemetry
from otel_toolcalls.worker import Worker
from tests.hooks.apis import APIS, Api
from tests.hooks.observed import Observed
from tests.hooks.server import ModelServer
from tests.hooks.test_endings import COMPLETED, every_api

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).with_name("apps")


def attributes() -> dict[str, Any]:
    """Every target of every SDK that is imported, as it stands on its class."""
    found = {}
    for hook in HOOKS:
        for target in hook.targets:
            module = sys.modules.get(target.module)
            *parents, name = target.path.split(".")
            owner = functools.reduce(getattr, parents, module) if module is not None else None
            if owner is not None and name in vars(owner):
                found[f"{target.module}.{target.path}"] = vars(owner)[name]
    return found


def read(api: Api, server: ModelServer) -> None:
    server.stream(api.events)
    with api.client(server.url) as client:
        for _ in api.create(client):
            pass


def test_undoing_puts_back_the_identical_objects(observed: Observed) -> None:
    for hook in HOOKS:
        pytest.importorskip(f"{hook.sdk}._base_client") if hook.sdk in sys.modules else None
    before, callbacks = attributes(), list(gc.callbacks)
    if not before:
        pytest.skip("no SDK is imported here")
    with observed.instrumented():
        during = attributes()
        assert all(during[name] is not before[name] for name in before)
    after = attributes()
    assert all(after[name] is before[name] for name in before)
    assert gc.callbacks == callbacks


@every_api
def test_instrumenting_twice_is_one_instrumentation(api: Api, server: ModelServer, observed: Observed) -> None:
    with observed.instrumented():
        during = attributes()
        otel_toolcalls.instrument(tracer_provider=observed.tracer_provider)
        assert all(attributes()[name] is during[name] for name in during)
        read(api, server)
        assert observed.outcomes == [COMPLETED, COMPLETED]


@every_api
def test_a_stream_finishes_with_the_provider_that_it_began_with(api: Api, server: ModelServer) -> None:
    first, second = Observed(), Observed()
    with api.client(server.url) as client:
        with first.instrumented():
            server.stream(api.events)
            stream = api.create(client)
            next(stream)
        for _ in stream:
            pass
        with second.instrumented():
            read(api, server)
    assert first.outcomes == [COMPLETED, COMPLETED]
    assert second.outcomes == [COMPLETED, COMPLETED]
    first.check()
    second.check()


@every_api
def test_a_client_made_before_is_observed_and_not_any_more_after(
    api: Api, server: ModelServer, observed: Observed
) -> None:
    with api.client(server.url) as client:
        for _ in range(3):
            server.stream(api.events)
        list(api.create(client))
        with observed.instrumented():
            list(api.create(client))
        list(api.create(client))
    assert len(observed.turns) == 1


def streaming_class(api: Api) -> Any:
    return importlib.import_module(f"{api.sdk}._streaming").Stream


def by_function(seen: list[str]) -> Any:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def stream(self: Any) -> Any:
            for event in original(self):
                seen.append("event")
                yield event

        return stream

    return wrap


def by_wrapt(seen: list[str]) -> Any:
    def stream(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        for event in wrapped(*args, **kwargs):
            seen.append("event")
            yield event

    return lambda original: wrapt.FunctionWrapper(original, stream)


@every_api
@pytest.mark.parametrize("kind", [by_function, by_wrapt], ids=["function", "wrapt"])
@pytest.mark.parametrize("order", ["before us", "after us"])
def test_somebody_elses_wrapper_works_beside_ours(
    api: Api, kind: Any, order: str, server: ModelServer, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    stream = streaming_class(api)
    wrapped = kind(seen)
    if order == "before us":
        monkeypatch.setattr(stream, "__stream__", wrapped(vars(stream)["__stream__"]))
    original = vars(stream)["__stream__"]
    with observed.instrumented():
        theirs = wrapped(stream.__stream__) if order == "after us" else None
        if theirs is not None:
            stream.__stream__ = theirs
        read(api, server)
        assert observed.outcomes == [COMPLETED, COMPLETED]
        assert len(seen) == len(api.events)
    assert vars(stream)["__stream__"] is (theirs if theirs is not None else original)
    read(api, server)
    assert len(seen) == 2 * len(api.events), "theirs goes on, ours is silent"
    assert len(observed.turns) == 1
    if theirs is not None:
        with observed.instrumented():
            read(api, server)
        assert len(observed.turns) == 2
        stream.__stream__ = original


def runtime() -> Runtime:
    settings = Settings(ledger="none")
    return Runtime(settings, Telemetry(settings), None, Worker(lambda: None), lambda: None)


def test_a_missing_target_is_told_in_one_warning_and_the_others_work(caplog: pytest.LogCaptureFixture) -> None:
    touched: list[str] = []

    def note(_: Runtime) -> Any:
        def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            touched.append("seen")
            return wrapped(*args, **kwargs)

        return wrapper

    def broken(_: Runtime) -> Any:
        raise RuntimeError("a wrapper that cannot be made")

    targets = [
        Target("email.message", "Message.gone", note),
        Target("email.message", "Gone.as_string", note),
        Target("email.message", "Message.never_was", note, optional=True),
        Target("email.message", "Message.is_multipart", broken),
        Target("email.message", "Message.as_string", note),
        Target("email.no_such_module", "Message.as_string", note),
        Target("email.no_such_package.module", "Message.as_string", note),
        Target("email.never_was", "Message.as_string", note, optional=True),
    ]
    email = importlib.import_module("email.message")
    patches = Patches([Hook("email", "pytest", targets)], runtime())
    with caplog.at_level(logging.WARNING, "otel_toolcalls"):
        patches.apply()
    try:
        warnings = [record.getMessage() for record in caplog.records if "any more" in record.getMessage()]
        assert len(warnings) == 5
        assert f"email {importlib.metadata.version('pytest')} has no email.message.Message.gone any more" in warnings[0]
        states = {fact.target.removeprefix("email."): fact.state for fact in patches.report()}
        assert states == {
            "message.Message.gone": "moved",
            "message.Gone.as_string": "moved",
            "message.Message.never_was": "absent",
            "message.Message.is_multipart": "moved",
            "message.Message.as_string": "patched",
            "no_such_module.Message.as_string": "moved",
            "no_such_package.module.Message.as_string": "moved",
            "never_was.Message.as_string": "absent",
        }
        email.Message().as_string()
        assert touched == ["seen"]
    finally:
        patches.undo()
    email.Message().as_string()
    assert touched == ["seen"]


@pytest.fixture
def future(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An SDK of which a module is gone, another is broken, and a third is imported on use only."""
    package = tmp_path / "future_sdk"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_broken.py").write_text("raise RuntimeError\n")
    (package / "_late.py").write_text("class Stream:\n    def read(self): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "future_sdk"]:
        del sys.modules[name]


@pytest.mark.parametrize("imported", ["before", "after"])
def test_a_module_that_is_gone_is_told_when_its_sdk_is_there(
    imported: str, future: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def keep(_: Runtime) -> Any:
        return lambda wrapped, instance, args, kwargs: wrapped(*args, **kwargs)

    targets = [Target(f"future_sdk.{module}", "Stream.read", keep) for module in ("_gone", "_broken", "_late")]
    patches = Patches([Hook("future_sdk", "pytest", targets)], runtime())

    def states() -> list[str]:
        return [fact.state for fact in patches.report()]

    if imported == "before":
        importlib.import_module("future_sdk")
    with caplog.at_level(logging.WARNING, "otel_toolcalls"):
        patches.apply()
        if imported == "after":
            assert states() == ["waiting", "waiting", "waiting"]
            assert caplog.records == []
            importlib.import_module("future_sdk")
    try:
        (told,) = [record.getMessage() for record in caplog.records]
        assert "has no future_sdk._gone.Stream.read any more" in told
        assert states() == ["moved", "waiting", "waiting"]
        importlib.import_module("future_sdk._late")
        assert states() == ["moved", "waiting", "patched"]
    finally:
        patches.undo()


def test_the_report_names_each_target_of_each_sdk(observed: Observed) -> None:
    with observed.instrumented():
        facts = report()
    assert {fact.target for fact in facts} == {f"{t.module}.{t.path}" for hook in HOOKS for t in hook.targets}
    for api in APIS:
        states = {fact.state for fact in facts if fact.sdk == api.sdk}
        optional = {f"{t.module}.{t.path}" for hook in HOOKS for t in hook.targets if t.optional}
        assert states <= {"patched", "absent", "waiting"}
        assert {fact.target for fact in facts if fact.sdk == api.sdk and fact.state != "patched"} <= optional
        assert {fact.version for fact in facts if fact.sdk == api.sdk} == {importlib.metadata.version(api.sdk)}
    assert report() == []
    assert Fact("sdk", None, "target", "not installed").detail == ""


# ---- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"turn_spam": "auto"}, r"turn_spam: no such setting; did you mean turn_span\? Accepted: capture_content, "),
        ({"turn_span": "sometimes"}, r"turn_span: expected one of auto, always, never; got 'sometimes'"),
        ({"content_limit": 0}, r"content_limit: expected a whole number of bytes, 1 or more; got 0"),
        ({"content_limit": "many"}, r"content_limit: expected a whole number of bytes, 1 or more; got 'many'"),
        ({"dispatch_deadline": float("nan")}, r"dispatch_deadline: expected seconds, more than 0; got nan"),
        ({"dispatch_deadline": True}, r"dispatch_deadline: expected seconds, more than 0; got True"),
        ({"redact": "no function"}, r"redact: expected a function"),
        ({"exempt_tools": 3}, r"exempt_tools: expected names or patterns"),
        ({"ledger": "mysql://"}, r"ledger: expected "),
        ({"dispatch_deadlines": "{"}, r"dispatch_deadlines: expected seconds by pattern"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_setting_is_named_and_nothing_is_switched_on(settings: dict[str, object], message: str) -> None:
    before = attributes()
    with pytest.raises(otel_toolcalls.SettingsError, match=message):
        otel_toolcalls.instrument(**settings)
    assert all(attributes()[name] is before[name] for name in before)
    assert not BaseInstrumentor.is_instrumented_by_opentelemetry.fget(otel_toolcalls.ToolCallsInstrumentor())


def test_a_wrong_setting_given_to_the_instrumentor_itself_is_raised_too() -> None:
    with pytest.raises(otel_toolcalls.SettingsError, match=r"turn_span: expected one of auto, always, never"):
        otel_toolcalls.ToolCallsInstrumentor().instrument(turn_span="sometimes")


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TOOLCALLS_TURN_SPAM", "auto")
    with pytest.raises(otel_toolcalls.SettingsError, match=r"OTEL_TOOLCALLS_TURN_SPAM: no such variable; did you mean"):
        otel_toolcalls.instrument()


# ---- other ways to switch it on -------------------------------------------------------------------------------------

OTHERS = {entry.name for entry in importlib.metadata.entry_points(group="opentelemetry_instrumentor")} - {
    "otel_toolcalls"
}


def run_instrumented(server: ModelServer, **variables: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": ",".join(sorted(OTHERS)),
        **variables,
    }
    for api in APIS:
        server.stream(api.events)
    return subprocess.run(
        [command, sys.executable, APPS / "plain.py", server.url],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )


def printed_calls(output: str) -> list[dict[str, Any]]:
    """The attributes of the announced calls among the spans that the console exporter printed."""
    decoder, calls, at = json.JSONDecoder(), [], 0
    while (at := output.find("{", at)) >= 0:
        span, at = decoder.raw_decode(output, at)
        if span["name"].startswith("announce_tool"):
            calls.append(span["attributes"])
    return calls


needs_distro = pytest.mark.skipif(
    not importlib.metadata.entry_points(group="opentelemetry_configurator"),
    reason="opentelemetry-distro, which makes the providers, is not installed",
)


@pytest.mark.slow
@needs_distro
def test_opentelemetry_instrument_needs_no_code(server: ModelServer) -> None:
    answer = run_instrumented(server)
    assert answer.returncode == 0, answer.stderr
    calls = printed_calls(answer.stdout)
    assert [call["gen_ai.tool.call.id"] for call in calls] == ["call_1", "call_2"] * len(APIS)
    assert {call["otel_toolcalls.call.outcome"] for call in calls} == {"completed"}
    assert all("gen_ai.tool.call.arguments" not in call for call in calls)


def installed(folder: Path, name: str, instrumentor: str) -> Path:
    """A folder for PYTHONPATH that has a distribution with this instrumentor, before any that is found later there."""
    metadata = folder / f"{name}-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[opentelemetry_instrumentor]\n{name} = {instrumentor}\n")
    return folder


@pytest.mark.slow
def test_a_wrong_variable_is_one_line_and_keeps_no_other_instrumentation_off(
    server: ModelServer, tmp_path: Path
) -> None:
    ours = installed(tmp_path / "first", "otel_toolcalls", "otel_toolcalls.instrumentor:ToolCallsInstrumentor")
    other = installed(tmp_path / "then", "other", "other:OtherInstrumentor")
    (other / "other.py").write_text(
        """
import sys
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

class OtherInstrumentor(BaseInstrumentor):
    def instrumentation_dependencies(self):
        return ()
    def _instrument(self, **kwargs):
        print("the other is on", file=sys.stderr)
    def _uninstrument(self, **kwargs):
        pass
"""
    )
    answer = run_instrumented(
        server,
        OTEL_TOOLCALLS_TURN_SPAN="sometimes",
        PYTHONPATH=os.pathsep.join(map(str, (ours, other, ROOT))),
    )
    assert answer.stderr.splitlines() == [
        "otel-toolcalls: stays off: OTEL_TOOLCALLS_TURN_SPAN: expected one of auto, always, never; got 'sometimes'",
        "the other is on",
    ]
    assert (answer.returncode, printed_calls(answer.stdout)) == (0, [])


@pytest.mark.slow
@needs_distro
def test_declarative_configuration_switches_it_on_with_its_settings(server: ModelServer, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.configuration")
    file = tmp_path / "otel.yaml"
    file.write_text(
        """
file_format: "1.0"
tracer_provider:
  processors:
    - simple: {exporter: {console: {}}}
instrumentation/development:
  python:
    otel_toolcalls:
      capture_content: span_only
      content_limit: 8
      exempt_tools: ["search_*"]
"""
    )
    answer = run_instrumented(
        server,
        OTEL_CONFIG_FILE=str(file),
        OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=",".join(sorted({*OTHERS, "otel_toolcalls"})),
    )
    assert answer.returncode == 0, answer.stderr
    calls = printed_calls(answer.stdout)
    assert len(calls) == 2 * len(APIS)
    assert {call["gen_ai.tool.call.arguments"] for call in calls} == {'{"status'}
    assert {call["otel_toolcalls.call.exempt"] for call in calls} == {True}


@pytest.mark.slow
@needs_distro
def test_a_wrong_setting_in_the_declarative_configuration_is_named_by_its_loader_which_goes_on(
    server: ModelServer, tmp_path: Path
) -> None:
    pytest.importorskip("opentelemetry.configuration")
    file = tmp_path / "otel.yaml"
    file.write_text(
        """
file_format: "1.0"
instrumentation/development: {python: {otel_toolcalls: {turn_span: sometimes}}}
"""
    )
    answer = run_instrumented(
        server,
        OTEL_CONFIG_FILE=str(file),
        OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=",".join(sorted({*OTHERS, "otel_toolcalls"})),
    )
    assert "turn_span: expected one of auto, always, never; got 'sometimes'" in answer.stderr
    assert answer.returncode == 0
