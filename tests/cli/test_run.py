"""``otel-toolcalls run``: the app is traced, and nobody could tell from the outside."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.cli.conftest import ASK, COMMAND, Apps, Collector, ended, span_names
from tests.support.loopback import ModelServer

ONE_TURN = ["announce_tool get_order", "await_dispatch get_order", "chat m"]
"""The spans of `ask`, read to its end by an app that does not run the call: judged at the latest when it ends."""
ReadLine = Callable[["subprocess.Popen[bytes]"], str]


# ---- what it is for -------------------------------------------------------------------------------------------------


def test_each_announced_call_is_a_span_in_the_file_and_a_line_of_the_tree(apps: Apps) -> None:
    ran = apps.run(app="for _ in ask(): pass")
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert apps.names() == ONE_TURN
    tree = ran.stderr.decode()
    assert "chat m" in tree
    assert "get_order" in tree
    assert "call_1" in tree
    assert "1 call announced in 1 turn: 1 NEVER RAN" in tree


def test_no_argument_of_a_call_is_in_the_file_or_the_tree(apps: Apps) -> None:
    ran = apps.run(app="for _ in ask(): pass")
    assert "SECRET" not in ran.stderr.decode() + (apps.folder / "otel-toolcalls.jsonl").read_text()


def test_arguments_are_in_both_when_they_are_asked_for(apps: Apps) -> None:
    ran = apps.run(app="for _ in ask(): pass", env={"OTEL_TOOLCALLS_CAPTURE_CONTENT": "span_only"})
    assert "SECRET" in ran.stderr.decode()
    assert "SECRET" in (apps.folder / "otel-toolcalls.jsonl").read_text()


def test_a_module_is_run_as_python_does(apps: Apps) -> None:
    apps.write("package_of_mine.py", ASK + "for _ in ask(): pass")
    assert apps.run("run", "--", "-m", "package_of_mine").returncode == 0
    assert apps.names() == ONE_TURN


def test_any_command_that_starts_python_is_traced(apps: Apps) -> None:
    script = apps.write("serve", f"#!{sys.executable}\n{ASK}\nfor _ in ask(): pass")
    script.chmod(0o755)
    assert apps.run("run", "--output", "here.jsonl", "--", "sh", "-c", "./serve").returncode == 0
    assert apps.names("here.jsonl") == ONE_TURN


def test_a_second_run_appends_and_shows_only_its_own(apps: Apps) -> None:
    for _ in range(2):
        ran = apps.run(app="for _ in ask(): pass")
    assert len(apps.spans()) == 6
    assert b"1 call announced in 1 turn" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ((), {}, "app"),
        (("--service", "shop"), {"OTEL_SERVICE_NAME": "other"}, "shop"),
        ((), {"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop,a=b"}, "shop"),
    ],
)
def test_the_service_is_named_by_option_variable_or_app(
    apps: Apps, arguments: tuple[str, ...], environment: dict[str, str], expected: str
) -> None:
    apps.run(*arguments, app="for _ in ask(): pass", env=environment)
    line = json.loads((apps.folder / "otel-toolcalls.jsonl").read_text().splitlines()[0])
    attributes = line["resourceSpans"][0]["resource"]["attributes"]
    assert [entry["value"] for entry in attributes if entry["key"] == "service.name"] == [{"stringValue": expected}]


def test_an_app_that_calls_no_model_leaves_an_empty_file_and_has_no_thread_of_ours(apps: Apps) -> None:
    ran = apps.run(app="import threading; print(threading.active_count())")
    assert ran.stdout == b"1\n"
    assert (apps.folder / "otel-toolcalls.jsonl").read_text() == ""
    assert b"no model was called" in ran.stderr


# ---- the app's own status, signals, input and output ----------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 3])
def test_the_exit_status_is_the_apps(apps: Apps, status: int) -> None:
    assert apps.run(app=f"import sys; sys.exit({status})").returncode == status


def test_an_exception_ends_the_app_as_ever_and_its_spans_are_in_the_file(apps: Apps) -> None:
    ran = apps.run(app="for _ in ask(): pass\nraise KeyError('gone')")
    assert ran.returncode == 1
    assert b"KeyError: 'gone'" in ran.stderr
    assert apps.names() == ONE_TURN


def test_sys_exit_in_the_middle_of_a_call_ends_it_as_abandoned(apps: Apps) -> None:
    assert apps.run(app="import sys\nfor chunk in ask(): sys.exit(4)").returncode == 4
    (call,) = [span for span in apps.spans() if span["name"] == "announce_tool get_order"]
    assert attribute(call, "otel_toolcalls.call.outcome") == "abandoned"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_death_by_a_signal_is_passed_on_as_such(apps: Apps, number: signal.Signals) -> None:
    ran = apps.run(app=f"import os; os.kill(os.getpid(), {number.value})")
    assert ran.returncode == -number


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGQUIT", "SIGUSR1"])
def test_a_signal_sent_to_the_command_reaches_the_app_once(apps: Apps, read_line: ReadLine, name: str) -> None:
    app = f"""
        import signal, sys, time
        got = []
        signal.signal(signal.{name}, lambda *_: got.append(1))
        signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGALRM}})
        print("ready", flush=True)
        while not got:
            time.sleep(0.01)
        signal.setitimer(signal.ITIMER_REAL, 0.2)   # would a second one come?
        signal.sigwait({{signal.SIGALRM}})
        print(len(got), flush=True)
        sys.exit(7)
    """
    with ended(apps.start(app=app)) as process:
        assert read_line(process) == "ready"
        process.send_signal(getattr(signal, name))
        assert read_line(process) == "1"
        assert process.wait(30) == 7


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_deadly_signal_kills_the_app_by_that_signal_and_its_file_is_whole(
    apps: Apps, read_line: ReadLine, name: str
) -> None:
    app = """
        import time
        for _ in ask(): pass
        stream = ask()
        next(stream)
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
    """
    with ended(apps.start(app=app)) as process:
        assert read_line(process) == "ready"
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=120)
    assert process.returncode == -getattr(signal, name)
    outcomes = [attribute(s, "otel_toolcalls.call.outcome") for s in apps.spans() if s["name"].startswith("announce")]
    assert sorted(outcomes) == ["abandoned", "completed"]
    assert b"ABANDONED" in err


def test_ctrl_c_in_a_terminal_reaches_the_app_once(apps: Apps) -> None:
    app = """
        import signal, sys, time
        got = []
        signal.signal(signal.SIGINT, lambda *_: got.append(1))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        print("ready", flush=True)
        while not got:
            time.sleep(0.01)
        signal.setitimer(signal.ITIMER_REAL, 0.3)   # would a second one come?
        signal.sigwait({signal.SIGALRM})
        print("got", len(got), flush=True)
    """
    in_terminal = """if True:
        import fcntl, os, sys, termios
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.execv(sys.argv[1], sys.argv[1:])
    """
    command = [*COMMAND, "run", "--", sys.executable, apps.write("app.py", app)]
    terminal, inside = pty.openpty()
    with ended(
        subprocess.Popen(
            [sys.executable, "-c", in_terminal, *command],
            cwd=apps.folder,
            env=apps.environment,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
    ) as process:
        os.close(inside)
        read_until(terminal, b"ready")
        os.write(terminal, b"\x03")
        read_until(terminal, b"got ")
        assert read_until(terminal, b"\n").strip() == b"1"
        assert process.wait(30) == 0
    os.close(terminal)


def test_an_interrupted_app_dies_of_its_keyboard_interrupt(apps: Apps, read_line: ReadLine) -> None:
    with ended(apps.start(app="import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)")) as process:
        assert read_line(process) == "ready"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in err


def test_input_and_output_pass_byte_for_byte(apps: Apps) -> None:
    every_byte = bytes(range(256)) * 1000
    ran = apps.run(app="import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", stdin=every_byte)
    assert ran.stdout == every_byte[::-1]


def test_an_inherited_descriptor_stays_open(apps: Apps) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as file:
        ran = apps.run(app=f"import os; os.write({writer}, b'through')", pass_fds=[writer])
        os.close(writer)
        assert (ran.returncode, file.read()) == (0, b"through")


# ---- errors: one line and a status ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("run",), 2, "no command given"),
        (("run", "--nope"), 2, "No such option '--nope'"),
        (("run", "--protocol", "smoke", "--", "python"), 2, "'smoke' is not one of 'grpc', 'http/protobuf'"),
        (("run", "--protocol", "grpc", "--", "python"), 2, "--protocol needs an endpoint"),
        (("run", "--output", "no/such/folder", "--", "python"), 2, "No such file or directory"),
        (("run", "--", "no-such-command-here"), 127, "no-such-command-here: command not found"),
        (("run", "--otlp", "http://127.0.0.1:9", "--", "no-such-command-here"), 127, "command not found"),
        (("run", "--", "/etc/passwd"), 126, "/etc/passwd: Permission denied"),
        (("fly",), 2, "No such command 'fly'"),
    ],
)
def test_a_mistake_is_one_line_and_a_status(apps: Apps, arguments: tuple[str, ...], status: int, words: str) -> None:
    ran = apps.run(*arguments)
    assert ran.returncode == status
    (line,) = ran.stderr.decode().splitlines()
    assert line.startswith("otel-toolcalls: ")
    assert words in line


def test_a_wrong_setting_is_told_before_the_app_starts(apps: Apps) -> None:
    ran = apps.run(app="print('started')", env={"OTEL_TOOLCALLS_TURN_SPAN": "perhaps"})
    assert (ran.returncode, ran.stdout) == (2, b"")
    (line,) = ran.stderr.decode().splitlines()
    assert "OTEL_TOOLCALLS_TURN_SPAN" in line
    assert "auto, always, never" in line


@pytest.mark.parametrize(
    ("ledger", "words"),
    [
        ("mysql://me:hidden@host/db", "OTEL_TOOLCALLS_LEDGER: expected memory, none, sqlite:///FILE or redis://"),
        ("redis://me:hidden@host:port/0", "expected redis://HOST:PORT/0; got redis://***@host:port/0"),
        ("redis://me:hidden@host/orders", "redis://HOST:PORT/0; got redis://***@host/orders"),
        ("redis://host/0?lost_after=soon", "expected redis://HOST:PORT/0"),
        ("sqlite:///", "OTEL_TOOLCALLS_LEDGER: expected memory, none, sqlite:///FILE"),
        ("sqlite:///.", "name a file in it"),
        ("sqlite:///absent/ledger.db", "/absent/ledger.db; try: mkdir -p /"),
    ],
)
def test_a_ledger_that_cannot_work_is_told_before_the_app_starts(apps: Apps, ledger: str, words: str) -> None:
    ran = apps.run(app="print('started')", env={"OTEL_TOOLCALLS_LEDGER": ledger})
    assert (ran.returncode, ran.stdout) == (2, b"")
    (line,) = ran.stderr.decode().splitlines()
    assert line.startswith("otel-toolcalls: ")
    assert words in line
    assert "hidden" not in line


@pytest.mark.parametrize("ledger", ["none", "memory", "sqlite:///ledger.db", "redis://127.0.0.1:9/0"])
def test_a_ledger_that_may_come_to_work_lets_the_app_start(apps: Apps, ledger: str) -> None:
    ran = apps.run(app="print('started')", env={"OTEL_TOOLCALLS_LEDGER": ledger})
    assert (ran.returncode, ran.stdout) == (0, b"started\n")


@pytest.mark.parametrize(
    "endpoint", ["localhost:4318", "127.0.0.1:4317", "grpc://localhost:4317", "http://", "http://h:port", ""]
)
def test_an_endpoint_that_is_no_url_is_told_before_the_app_starts(apps: Apps, endpoint: str) -> None:
    ran = apps.run("--otlp", endpoint, app="print('started')")
    assert (ran.returncode, ran.stdout) == (2, b"")
    (line,) = ran.stderr.decode().splitlines()
    assert line == (
        "otel-toolcalls: --otlp: expected http://HOST:PORT or https://HOST:PORT, as http://localhost:4318; "
        f"got {endpoint or 'nothing'}"
    )


def test_an_endpoint_of_the_environment_that_http_cannot_reach_is_told_by_its_variable(apps: Apps) -> None:
    ran = apps.run(app="print('started')", env={"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"})
    assert (ran.returncode, ran.stdout) == (2, b"")
    (line,) = ran.stderr.decode().splitlines()
    assert line.startswith("otel-toolcalls: OTEL_EXPORTER_OTLP_ENDPOINT: expected http://HOST:PORT")


def test_an_address_that_only_grpc_knows_may_come_from_the_environment(apps: Apps, grpc_collector: Collector) -> None:
    address = grpc_collector.url.removeprefix("http://")
    variables = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_INSECURE": "true"}
    ran = apps.run(app="for _ in ask(): pass", env={"OTEL_EXPORTER_OTLP_ENDPOINT": address, **variables})
    assert ran.returncode == 0
    assert grpc_collector.names() == ONE_TURN


@pytest.mark.parametrize(
    "absent", ["click", "rich", "opentelemetry.exporter.otlp.json", "opentelemetry.exporter.otlp.proto.http"]
)
def test_an_absent_extra_names_the_command_that_installs_it(apps: Apps, absent: str) -> None:
    code = f"""
        import sys

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name == {absent!r} or name.startswith({absent!r} + "."):
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

        sys.meta_path.insert(0, Absent())
        sys.argv = ["otel-toolcalls", "run", "--otlp", "http://127.0.0.1:9", "--output", "o.jsonl", "--", "true"]
        from otel_toolcalls.cli import main
        main()
    """
    ran = apps.python(apps.write("command.py", code))
    assert ran.returncode in (1, 2)
    (line,) = ran.stderr.decode().splitlines()
    assert absent in line
    assert "pip install 'otel-toolcalls[cli]'" in line


def test_a_ledger_in_redis_without_its_extra_names_the_command_that_installs_it(apps: Apps) -> None:
    code = """
        import sys
        sys.modules["redis"] = None
        sys.argv = ["otel-toolcalls", "run", "--", "echo", "started"]
        from otel_toolcalls.cli import main
        main()
    """
    apps.environment["OTEL_TOOLCALLS_LEDGER"] = "redis://me:hidden@host/0"
    ran = apps.python(apps.write("command.py", code))
    assert (ran.returncode, ran.stdout) == (2, b"")
    (line,) = ran.stderr.decode().splitlines()
    assert "redis://***@host/0 needs the package redis: pip install 'otel-toolcalls[redis]'" in line


def test_a_command_without_python_runs_and_is_said_to_be_untraced(apps: Apps) -> None:
    ran = apps.run("run", "--", "echo", "hello")
    assert (ran.returncode, ran.stdout) == (0, b"hello\n")
    assert b"no Python process of 'echo' was instrumented" in ran.stderr


def test_a_python_without_this_package_runs_the_app_untraced_and_says_so_once(apps: Apps, tmp_path: Path) -> None:
    venv.create(tmp_path / "other", symlinks=True)
    python = tmp_path / "other" / "bin" / "python"
    app = apps.write("plain.py", "print('works')")
    ran = apps.run("run", "--", python, app, env={"PYTHONPATH": str(apps.folder)}, cwd=Path(__file__).parents[2])
    assert (ran.returncode, ran.stdout) == (0, b"works\n")
    first, *_ = ran.stderr.decode().splitlines()
    assert "not tracing" in first
    assert "pip install 'otel-toolcalls[cli]'" in first


# ---- inside the app's process ---------------------------------------------------------------------------------------


def test_another_sitecustomize_still_runs(apps: Apps) -> None:
    theirs = apps.folder / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import builtins; builtins.theirs = __file__")
    ran = apps.run(
        app="import sitecustomize; print(theirs == sitecustomize.__file__)\nfor _ in ask(): pass",
        env={"PYTHONPATH": f"{theirs}{os.pathsep}{apps.environment['PYTHONPATH']}"},
    )
    assert ran.stdout == b"True\n"
    assert apps.names() == ONE_TURN


def test_an_error_of_another_sitecustomize_is_reported_as_python_does(apps: Apps) -> None:
    theirs = apps.folder / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("raise RuntimeError('theirs')")
    environment = {**apps.environment, "PYTHONPATH": f"{theirs}{os.pathsep}{apps.environment['PYTHONPATH']}"}
    alone = subprocess.run(
        [sys.executable, "-c", "print(1)"], env=environment, capture_output=True, timeout=180, check=True
    )
    ran = apps.run("run", "--", sys.executable, "-c", "print(1)", env=environment)
    assert ran.stdout == alone.stdout == b"1\n"
    assert ran.stderr.startswith(alone.stderr)
    assert b"RuntimeError: theirs" in alone.stderr


def test_nothing_of_ours_stays_on_the_search_path(apps: Apps) -> None:
    app = "import sys, json; print(json.dumps([p for p in sys.path if '_bootstrap' in p]))"
    assert apps.run(app=app).stdout == b"[]\n"


def test_the_app_may_set_its_own_providers(apps: Apps) -> None:
    app = """
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider
        mine, meters = TracerProvider(), MeterProvider()
        trace.set_tracer_provider(mine)
        metrics.set_meter_provider(meters)
        print(trace.get_tracer_provider() is mine, metrics.get_meter_provider() is meters)
        with trace.get_tracer("mine").start_as_current_span("request") as span:
            for _ in ask(): pass
        print(trace.format_trace_id(span.get_span_context().trace_id))
    """
    ran = apps.run(app=app)
    kept, trace_id = ran.stdout.decode().splitlines()
    assert kept == "True True"
    assert b"Overriding" not in ran.stderr
    assert {span["traceId"] for span in apps.spans()} == {trace_id}
    assert apps.names() == ONE_TURN


def test_a_forked_process_writes_its_own_spans_and_not_its_parents(apps: Apps) -> None:
    app = """
        import os, sys
        for _ in ask(): pass
        for _ in range(3):
            if os.fork() == 0:
                for _ in ask(): pass
                sys.exit()
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
    """
    assert apps.run(app=app).returncode == 0
    assert apps.names() == sorted(ONE_TURN * 4)
    assert len({span["spanId"] for span in apps.spans()}) == 12


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_are_traced_to_their_end(apps: Apps, method: str) -> None:
    app = f"""
        import multiprocessing

        def work(number):
            for _ in ask(): pass

        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            children = [context.Process(target=work, args=(number,)) for number in range(2)]
            for child in children: child.start()
            for child in children: child.join()
    """
    ran = apps.run(app=app)
    assert ran.returncode == 0
    assert b"not tracing" not in ran.stderr
    assert apps.names() == sorted(ONE_TURN * 2)


def test_many_processes_write_one_file_without_tearing_a_line(apps: Apps) -> None:
    code = """
        import os, sys
        from otel_toolcalls.cli.lines import AppendedLines
        lines = AppendedLines(sys.argv[1])
        for number in range(40):
            lines.write(f"{os.getpid()} {number} " + "x" * 100_000 + "\\n")
    """
    script = apps.write("writer.py", code)
    output = apps.folder / "lines"
    writers = [subprocess.Popen([sys.executable, str(script), str(output)], env=apps.environment) for _ in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    lines = output.read_text().splitlines()
    assert {len(line.split()[2]) for line in lines} == {100_000}
    assert len({tuple(line.split()[:2]) for line in lines}) == len(lines) == 160


# ---- OTLP -----------------------------------------------------------------------------------------------------------


def test_with_an_endpoint_the_command_becomes_the_app(apps: Apps, model_server: ModelServer) -> None:
    take_otlp(model_server)
    with ended(apps.start("--otlp", model_server.url, app="import os; print(os.getpid())\nfor _ in ask(): pass")) as it:
        out, err = it.communicate(timeout=180)
    assert int(out) == it.pid
    assert err == b""
    assert not (apps.folder / "otel-toolcalls.jsonl").exists()
    assert sent_names(model_server) == ONE_TURN


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_the_standard_variables_say_where_to_send(apps: Apps, model_server: ModelServer, name: str) -> None:
    take_otlp(model_server)
    url = model_server.url + ("/v1/traces" if "TRACES" in name else "")
    apps.run(app="for _ in ask(): pass", env={name: url, "OTEL_EXPORTER_OTLP_HEADERS": "x-team=shop"})
    assert sent_names(model_server) == ONE_TURN
    assert {r.headers.get("x-team") for r in model_server.requests if r.path == "/v1/traces"} == {"shop"}


def test_an_endpoint_and_a_file_get_the_same_spans(apps: Apps, model_server: ModelServer) -> None:
    take_otlp(model_server)
    apps.run("--otlp", model_server.url, "--output", "too.jsonl", app="for _ in ask(): pass")
    assert apps.names("too.jsonl") == sent_names(model_server) == ONE_TURN


def test_grpc_is_spoken_where_it_is_asked_for(apps: Apps, grpc_collector: Collector) -> None:
    apps.run("--otlp", grpc_collector.url, "--protocol", "grpc", app="for _ in ask(): pass")
    assert grpc_collector.names() == ONE_TURN


def test_a_forked_process_sends_over_a_channel_of_its_own(apps: Apps, grpc_collector: Collector) -> None:
    app = """
        import os, sys
        for _ in ask(): pass
        if os.fork() == 0:
            for _ in ask(): pass
            sys.exit()
        os.wait()
    """
    apps.run("--otlp", grpc_collector.url, "--protocol", "grpc", app=app)
    assert grpc_collector.names() == sorted(ONE_TURN * 2)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_an_endpoint_that_does_not_answer_holds_up_the_end_for_seconds_only(apps: Apps, protocol: str) -> None:
    begun = time.monotonic()
    ran = apps.run("--otlp", "http://127.0.0.1:9", "--protocol", protocol, app="for _ in ask(): pass\nexit(3)")
    assert ran.returncode == 3
    assert time.monotonic() - begun < 20


def attribute(span: dict[str, Any], name: str) -> object:
    (value,) = [entry["value"] for entry in span["attributes"] if entry["key"] == name]
    return next(iter(value.values()))


def take_otlp(server: ModelServer) -> None:
    for signal_name in ("traces", "metrics", "logs"):
        server.reply(b"", path=f"/v1/{signal_name}", content_type="application/x-protobuf")


def sent_names(server: ModelServer) -> list[str]:
    bodies = [request.body for request in server.requests if request.path == "/v1/traces"]
    return span_names(ExportTraceServiceRequest.FromString(body) for body in bodies)


def read_until(terminal: int, words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        seen += os.read(terminal, 1)
    return seen
