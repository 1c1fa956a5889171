"""Frames on a terminal, one after the other, on a screen of their own, and one frame alone. And what happens there:
keys, which come one by one and are not shown; a new size; signals that end the process, for which the terminal is put
back in order first."""

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live

from rollbook.infra.watching.charts import ink_for
from rollbook.infra.watching.frame import frame
from rollbook.infra.watching.seen import Seen

_QUIT = frozenset(b"qQ\x04")
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SETTLE_S = 0.1
"""Between frames while a window is dragged."""


class Happened(Enum):
    """What ended a wait."""

    NOTHING = auto()
    RESIZED = auto()
    QUIT = auto()


class Keys:
    """A context manager, of the main thread. Ctrl-C interrupts as ever; Ctrl-Z is off, since the frame would stay on
    the screen. Without a terminal to read from no key ever comes."""

    def __init__(self) -> None:
        self._input: int | None = None
        with suppress(OSError, ValueError, AttributeError):  # closed
            number = sys.stdin.fileno()
            self._input = number if os.isatty(number) else None
        self._ended_by = 0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "Keys":
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        for number in (signal.SIGWINCH, *_ENDING):
            self._handlers[number] = signal.signal(number, self._wake)
        if self._input is not None:
            self._before = termios.tcgetattr(self._input)
            tty.setcbreak(self._input, termios.TCSADRAIN)
            now = termios.tcgetattr(self._input)
            now[6][termios.VSUSP] = b"\0"
            termios.tcsetattr(self._input, termios.TCSADRAIN, now)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._input is not None:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._input, termios.TCSAFLUSH, self._before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._woken)
        os.close(self._wakes)

    @property
    def hint(self) -> str:
        """What to do to end."""
        return "Ctrl-C ends" if self._input is None else "q ends"

    def wait(self, seconds: float) -> Happened:
        """So long at most."""
        inputs = [self._woken] if self._input is None else [self._woken, self._input]
        ready, _, _ = select.select(inputs, [], [], seconds)
        if self._ended_by:
            return Happened.QUIT
        if self._input in ready and self._input is not None:
            try:
                typed = os.read(self._input, 1_024)
            except OSError:  # the terminal is gone
                return Happened.QUIT
            if not typed or not _QUIT.isdisjoint(typed):
                return Happened.QUIT
        if self._woken in ready:
            os.read(self._woken, 1_024)
            return Happened.RESIZED
        return Happened.NOTHING

    def end_by_signal(self) -> None:
        """To be called when everything is in order again: end by the signal that asked for it, if one did."""
        if self._ended_by:
            signal.raise_signal(self._ended_by)

    def _wake(self, number: int, _: FrameType | None) -> None:
        if number in _ENDING:
            self._ended_by = number
        with suppress(BlockingIOError):  # it is awake already
            os.write(self._wakes, b"!")


def show(console: Console, seen: Callable[[], Seen], interval_s: float) -> None:
    """Until q is pressed. A new size of the window has a frame at once."""
    keys = Keys()
    try:
        with keys, Live(console=console, screen=True, auto_refresh=False) as live:
            happened = Happened.NOTHING
            while happened is not Happened.QUIT:
                live.update(drawn(console, seen(), console.height, keys.hint), refresh=True)
                happened = keys.wait(interval_s)
                if happened is Happened.RESIZED:
                    time.sleep(_SETTLE_S)
    finally:  # also where the terminal took nothing any more, since it was closed
        keys.end_by_signal()


def drawn(console: Console, seen: Seen, height: int, hint: str = "") -> Group:
    """A frame that fits the console's width."""
    return Group(*frame(seen, console.width, height, ink_for(console.encoding), hint))
