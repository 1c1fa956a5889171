"""Ctrl-C that cannot get lost: an exception raised inside a callback of the Kafka client is printed and forgotten."""

import signal
from types import FrameType
from typing import Self


class Interrupt:
    """While open, notes Ctrl-C beside raising KeyboardInterrupt, so that `check` can raise it. Main thread only."""

    def __init__(self) -> None:
        self._seen = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C came before."""
        if self._seen:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._seen = True
        raise KeyboardInterrupt
