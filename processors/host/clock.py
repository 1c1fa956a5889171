"""Time, as the host sees it: the machine's, or a simulation's."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that can be slept on."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; for information only."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
