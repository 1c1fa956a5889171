"""A bundle that takes a while is told on a terminal while it does, and what is answered is the same without one."""

import os
import pty
import signal
import subprocess
import sys

import pytest

from rollbook.tests.replay.reseal import FIXTURES
from rollbook.tests.replay.screen import read_all


@pytest.mark.parametrize(
    ("command", "told"), [("validate", "reading "), ("replay", "replaying "), ("dialect", "comparing ")]
)
def test_a_terminal_is_told_what_is_done_and_the_answer_is_the_same(command: str, told: str) -> None:
    bundle = FIXTURES / "full-k1"
    asked = [sys.executable, "-m", "rollbook.infra.cli", command, str(bundle), "--json"]
    quiet = subprocess.run(asked, capture_output=True, check=False)
    assert quiet.stderr == b""
    forced = subprocess.run(asked, capture_output=True, env={**os.environ, "FORCE_COLOR": "1"}, check=False)
    assert forced.stderr == b"", "colours may be forced into a pipe, which makes no terminal of it"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "300"}
    seen = subprocess.run(asked, stdout=subprocess.PIPE, stderr=theirs, env=environment, check=False)
    os.close(theirs)
    assert (seen.returncode, seen.stdout) == (quiet.returncode, quiet.stdout)
    assert f"{told}{bundle}" in read_all(ours).decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("what", ["busy('working')", "progress()"])
def test_a_signal_that_ends_it_shows_the_cursor_again(what: str, number: signal.Signals) -> None:
    script = (
        "import resource, signal; from rollbook.replay.progress import busy, progress\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        f"with {what}:\n    signal.raise_signal({int(number)})"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    ended = subprocess.run([sys.executable, "-c", script], stderr=theirs, env=environment, check=False)
    os.close(theirs)
    said = read_all(ours)
    assert ended.returncode == -number
    assert said.rfind(b"\x1b[?25h") > said.rfind(b"\x1b[?25l") >= 0
