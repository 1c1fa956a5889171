"""What the command writes: any text, in any locale; and an output that takes no more ends it in order."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollbook.infra.looking.show import console
from rollbook.tests.replay.reseal import FIXTURES

BUNDLE = str(FIXTURES / "full-k1")
COMMANDS = [["--help"], ["--version"], ["topics", "--help"], ["inspect", BUNDLE], ["validate", BUNDLE, "--json"]]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rollbook.infra.cli", *arguments]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_reader_who_has_gone_ends_it_quietly(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command(*arguments), stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_full_disk_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command(*arguments), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("Error: the output: No space left on device: check ")


def test_colours_that_are_forced_into_a_pipe_fold_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width > 10_000


@pytest.mark.parametrize("columns", ["0", "1", "7", "-3", "no number"])
def test_a_width_that_nothing_can_be_read_in_is_another(columns: str) -> None:
    done = subprocess.run(
        command("monitoring", "--help"),
        env={**os.environ, "COLUMNS": columns},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "Grafana" in done.stdout


def test_an_error_that_cannot_be_told_has_its_code_all_the_same() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command("topcs"), stderr=full, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
@pytest.mark.parametrize(("arguments", "code"), [(["inspect", BUNDLE], 0), (["topcs"], 2)])
def test_outputs_that_are_closed_from_the_start(arguments: list[str], code: int, closed: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closed}', "sh", *command(*arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_ascii_alone_shows_the_rest_escaped() -> None:
    done = subprocess.run(
        command("broker", "status", "--data-dir", "/nowhere/é"),
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"not running (data in /nowhere/\\xe9)\n", b"")


def test_an_interruption_while_it_is_imported_is_quiet() -> None:
    """Whatever it does just then; how long that takes is measured, and hit in its middle."""
    began = time.monotonic()
    subprocess.run(command("--version"), capture_output=True, check=True)
    took = time.monotonic() - began
    for share in (0.3, 0.5, 0.7, 0.9):
        started = subprocess.Popen(
            command("--version"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.default_int_handler
            ),  # a job in the background has none
        )
        time.sleep(took * share)
        started.send_signal(signal.SIGINT)
        _, told = started.communicate(timeout=60)
        assert "rollbook/infra" not in told, told  # the interpreter itself may be interrupted before it comes to us
        assert started.returncode in (0, 130, -signal.SIGINT)


def test_nothing_that_takes_time_is_imported_before_an_interruption_is_in_order() -> None:
    script = "import sys; known = set(sys.modules); import rollbook.infra.cli; print(*set(sys.modules) - known)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"rollbook", "rollbook.infra", "rollbook.infra.cli", *sys.builtin_module_names}
