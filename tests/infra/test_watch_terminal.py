"""`rollbook watch` as a command: on a terminal through all that may happen, and without one."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.ports import free_port
from rollbook.infra.settings import Settings
from rollbook.infra.topics.topics import create_topics
from rollbook.processors.freshness import snapshot
from rollbook.schemas.partition import partition_of
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.infra.rich_run import decide, rich
from rollbook.tests.processors.hosting import host_in_thread, send

RUN = "run-a"


def command(settings: Settings, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Its arguments and environment."""
    named = {"ROLLBOOK_BOOTSTRAP_SERVERS": settings.bootstrap_servers, "ROLLBOOK_TOPIC_PREFIX": settings.topic_prefix}
    return [sys.executable, "-m", "rollbook.infra.cli", "watch", *arguments], {
        **os.environ,
        **named,
        "TERM": "xterm",
        "PYTHONUTF8": "1",
        "COLUMNS": "70",
    }


class Terminal:
    """The command on a terminal of its own, and what is on its screen: each frame begins at the upper left corner."""

    def __init__(self, settings: Settings, *arguments: str, size: tuple[int, int] = (80, 24)) -> None:
        self._ours, theirs = pty.openpty()
        self._said = b""
        self.size(*size)
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        asked, environment = command(settings, *arguments)
        self.process = subprocess.Popen(asked, env=environment, preexec_fn=lambda: _log_in(theirs))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                self._said += os.read(self._ours, 65_536)
            except OSError:
                return

    def size(self, columns: int, lines: int) -> None:
        """The window has another size from now on."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if self._said:
            self.process.send_signal(signal.SIGWINCH)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    @property
    def said(self) -> str:
        return self._said.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """Of the last whole frame."""
        frames = self.said.split("\x1b[H")
        shown = frames[-2] if len(frames) > 2 else ""
        return [one.rstrip() for one in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).splitlines()]

    def until(self, text: str, seconds: float = 30) -> list[str]:
        """The frame that has it."""
        deadline = time.monotonic() + seconds
        while text not in "\n".join(found := self.lines):
            assert time.monotonic() < deadline, "\n".join((f"no {text!r} in:", *found, self.said[-2_000:]))
            time.sleep(0.05)
        return found

    def ends(self, seconds: float = 10) -> int:
        """Its exit code, once all that it said is read."""
        code = self.process.wait(seconds)
        deadline = time.monotonic() + seconds
        while "\x1b[?1049l" not in self.said.rpartition("\x1b[H")[2]:
            assert time.monotonic() < deadline, f"the screen was not given back: {self.said[-2_000:]!r}"
            time.sleep(0.02)
        return code

    def settings_now(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._theirs)
        os.close(self._ours)


@contextmanager
def terminal(settings: Settings, *arguments: str, size: tuple[int, int] = (80, 24)) -> Iterator[Terminal]:
    found = Terminal(settings, *arguments, size=size)
    try:
        yield found
    finally:
        found.close()


def test_a_terminal_from_before_the_broker_to_after_its_restart(tmp_path: Path) -> None:
    own = Settings(f"127.0.0.1:{free_port()}")
    with terminal(own, RUN, "--interval", "0.2") as shown:
        shown.until("no Kafka broker answers")
        with EmbeddedBroker(tmp_path / "broker", int(own.bootstrap_servers.split(":")[1])) as broker:
            shown.until("does not exist: run `rollbook topics create`")
            create_topics(own, PARTITIONS)
            shown.until("the processor has not decided a record of this run yet")
            decide(own, rich(RUN, PARTITIONS))
            lines = shown.until("live   last update")
            assert max(map(len, lines)) <= 80
            assert any("Open updates" in one for one in lines)
            shown.size(40, 20)
            lines = shown.until("last update")
            deadline = time.monotonic() + 10
            while len(lines := shown.lines) > 20 or max(map(len, lines)) > 40:
                assert time.monotonic() < deadline, lines
                time.sleep(0.05)
            broker.kill()
            shown.until("! NO ANSWER for")
            assert any("active" in one for one in shown.lines)
            broker.start()
            with host_in_thread(own):
                send(own, [(partition_of(RUN, PARTITIONS), RUN.encode(), b"poison")])
                shown.until("live")
            shown.type(b"q")
            assert shown.ends() == 0
        assert shown.settings_now() == shown.before


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (lambda shown: shown.type(b"Q"), 0),
        (lambda shown: shown.type(b"\x03"), 130),
        (lambda shown: shown.process.send_signal(signal.SIGINT), 130),
        (lambda shown: shown.process.send_signal(signal.SIGTERM), -signal.SIGTERM),
        (lambda shown: shown.process.send_signal(signal.SIGHUP), -signal.SIGHUP),
        (lambda shown: shown.process.send_signal(signal.SIGQUIT), -signal.SIGQUIT),
    ],
)
def test_however_it_ends_the_terminal_is_in_order(ends: Callable[[Terminal], None], code: int) -> None:
    with terminal(Settings(f"127.0.0.1:{free_port()}"), RUN) as shown:
        shown.until("! waiting")
        shown.type(b"x\x1a")  # no key ends it but the named, and it is not stopped
        ends(shown)
        assert shown.ends() == code
        assert shown.settings_now() == shown.before
        assert "\x1b[?25h" in shown.said


def test_a_terminal_that_is_closed_ends_it_by_its_signal() -> None:
    """Though the last frame can be taken off no screen."""
    ours, theirs = pty.openpty()
    asked, environment = command(Settings(f"127.0.0.1:{free_port()}"), RUN)
    process = subprocess.Popen(asked, env=environment, preexec_fn=lambda: _log_in(theirs))
    os.close(theirs)
    said = b""
    while b"waiting" not in said:
        said += os.read(ours, 65_536)
    os.close(ours)
    assert process.wait(20) == -signal.SIGHUP


def _log_in(terminal: int) -> None:
    """As a shell in a window does, whatever whoever started the tests ignores."""
    os.login_tty(terminal)
    for ends in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(ends, signal.SIG_DFL)


def asked(settings: Settings, *arguments: str) -> "subprocess.CompletedProcess[str]":
    what, environment = command(settings, *arguments)
    return subprocess.run(what, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_once(settings: Settings) -> None:
    past = rich(RUN, PARTITIONS)
    decide(settings, past)
    shown = asked(settings, RUN, "--once")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"(decision {snapshot(past.run).sequence:,})" in shown.stdout
    assert "\x1b" not in shown.stdout
    told = json.loads(asked(settings, "--run", RUN, "--once", "--json").stdout)
    assert (told["reading"], told["snapshot"]["sequence"]) == ("live", snapshot(past.run).sequence)
    unknown = asked(settings, "no-such-run", "--once")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("Error: run no-such-run has no freshness snapshot on ")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((RUN, "--once"), 3, "Error: no Kafka broker answers at "),
        ((), 2, "Error: a run, and only one, is wanted: name it, as `rollbook watch RUN`"),
        ((RUN, "--run", RUN), 2, "Error: a run, and only one, is wanted"),
        ((RUN, "--interval", "0"), 2, "Error: "),
    ],
)
def test_what_it_cannot_do_is_one_line(arguments: tuple[str, ...], code: int, says: str) -> None:
    done = asked(Settings(f"127.0.0.1:{free_port()}"), *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["text", "json"])
def test_without_a_terminal_a_line_an_interval_until_nobody_reads(settings: Settings, kind: str) -> None:
    decide(settings, rich(RUN, PARTITIONS))
    what, environment = command(settings, RUN, "--interval", "0.1", *(["--json"] if kind == "json" else []))
    coloured = {**environment, "FORCE_COLOR": "1"}  # which makes no terminal of a pipe
    process = subprocess.Popen(what, env=coloured, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for said in process.stdout:
        assert json.loads(said)["run_id"] == RUN if kind == "json" else said.startswith(f"{RUN}: ")
        if '"reading":"live"' in said or ": live;" in said:
            break
    process.stdout.close()
    assert process.wait(10) == 141
