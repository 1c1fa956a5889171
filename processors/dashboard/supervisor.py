"""Keeps the reader going: a defect of it ends neither the pages nor the process, and is told on the page."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from mode import Service

from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.dashboard.shared import Shared, Standing
from rollbook.processors.host.logs import fault as told

logger = logging.getLogger("rollbook.dashboard")

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
GOOD_AFTER_S = 300.0
"""Who read for so long without a fault begins with the shortest pause again."""
HEALTHY_WITHIN_S = 60.0
_LEAVE_S = 1.0


class Supervisor(Service):  # type: ignore[misc, unused-ignore]
    """The service that owns reading. `read` reads until it is stopped, beginning anew each time that it is called."""

    def __init__(self, shared: Shared, read: Callable[[threading.Event], None], turned_at: Callable[[], float]) -> None:
        super().__init__()
        self._shared = shared
        self._read = read
        self._turned_at = turned_at
        self._stop_reading = threading.Event()
        self._thread: threading.Thread | None = None
        self._pause_s = FIRST_PAUSE_S
        self.restarts = 0

    async def on_start(self) -> None:
        self._thread = threading.Thread(target=self._keep_reading, name="reader", daemon=True)
        self._thread.start()

    async def on_stop(self) -> None:
        """A call of librdkafka that does not come back is left behind, with its thread."""
        self._stop_reading.set()
        thread = self._thread
        if thread is not None:
            await asyncio.to_thread(thread.join, _LEAVE_S)

    def silent_s(self) -> float:
        """How long ago the reader last went round."""
        return time.monotonic() - self._turned_at()

    def _keep_reading(self) -> None:
        stop = self._stop_reading
        while not stop.is_set():
            began = time.monotonic()
            try:
                self._read(stop)
            except Exception as defect:
                if time.monotonic() - began > GOOD_AFTER_S:
                    self._pause_s = FIRST_PAUSE_S
                self._tell(defect)
                stop.wait(self._pause_s)
                self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)

    def _tell(self, defect: Exception) -> None:
        self.restarts += 1
        logger.error("reading failed, again in %.0f s: %s", self._pause_s, told(defect), exc_info=defect)
        reading = Reading.CUT_OFF if self._shared.has_read else Reading.WAITING
        self._shared.stand(
            Standing(
                reading,
                f"reading failed, which is a defect of rollbook ({told(defect)}): it is tried again in "
                f"{self._pause_s:.0f} s; see the log of the dashboard",
            )
        )
