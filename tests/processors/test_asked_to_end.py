"""A processor that its terminal, a service manager or a person asks to end, as a process."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from rollbook.infra.settings import Settings

READY_S, ENDS_S = 40.0, 20.0


class Processor:
    """On a terminal of its own; `said` so far."""

    def __init__(self, settings: Settings, before: Callable[[], object]) -> None:
        self.terminal, theirs = pty.openpty()
        os.set_blocking(self.terminal, False)
        self.said = b""
        environment = {
            **os.environ,
            "ROLLBOOK_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
            "ROLLBOOK_TOPIC_PREFIX": settings.topic_prefix,
        }
        asked = [sys.executable, "-m", "rollbook.infra.cli", "processor", "run", "--session-timeout-ms", "6000"]
        self.process = subprocess.Popen(
            asked, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, preexec_fn=before
        )
        os.close(theirs)

    def until(self, text: bytes) -> None:
        deadline = time.monotonic() + READY_S
        while text not in self.said:
            assert time.monotonic() < deadline, self.said
            try:
                self.said += os.read(self.terminal, 65_536)
            except BlockingIOError:
                time.sleep(0.05)


def _hears() -> None:
    """Whatever whoever started the tests ignores."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _owns_its_terminal() -> None:
    _hears()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def processor(settings: Settings, before: Callable[[], object]) -> Iterator[Processor]:
    made = Processor(settings, before)
    try:
        made.until(b"restored")
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        with suppress(OSError):  # it may be closed
            os.close(made.terminal)


def test_a_terminal_that_is_closed_ends_it_in_order(settings: Settings) -> None:
    """It leaves its group, which the next one need not wait for, and has nowhere to say so."""
    with processor(settings, _owns_its_terminal) as asked:
        os.close(asked.terminal)
        assert asked.process.wait(ENDS_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order(settings: Settings, number: signal.Signals) -> None:
    with processor(settings, _hears) as asked:
        asked.process.send_signal(number)
        asked.until(b"stopped; 0 records decided by this process")
        assert asked.process.wait(ENDS_S) == 0


def test_under_nohup_it_outlives_its_terminal(settings: Settings) -> None:
    with processor(settings, partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)) as asked:
        asked.process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            asked.process.wait(1.0)
        asked.process.send_signal(signal.SIGTERM)
        assert asked.process.wait(ENDS_S) == 0
