"""The order in which a client's records leave: one that waits for its payloads holds back what was queued after it."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

Send = Callable[[], None]


@dataclass(slots=True, eq=False)
class Place:
    """A record's place in the lane. `holds`: later records wait until it has gone."""

    send: Send
    holds: bool
    ready: bool = False


class Lane:
    """Records leave in the order in which they queued, each once it is ready, from whichever thread makes it ready.

    No record waits for ever: a payload arrives, or is given up after the delivery time-out, and both make it ready.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: deque[Place] = deque()
        self._sending = False

    def queue(self, send: Send, *, holds: bool = True) -> Place:
        """Take the next place. A record that holds nothing back still goes after all that were queued before it."""
        place = Place(send, holds)
        with self._lock:
            self._places.append(place)
        return place

    def ready(self, place: Place) -> None:
        """The record can go as soon as it is its turn. `send` must not raise."""
        with self._lock:
            place.ready = True
        # Whoever sends looks again after each record, so what another thread makes ready meanwhile is not left behind;
        # and `send` may queue and make ready in its turn, since the lock is not held over it.
        while (turn := self._take_turn()) is not None:
            try:
                turn.send()
            finally:
                with self._lock:
                    self._sending = False

    def _take_turn(self) -> Place | None:
        with self._lock:
            if self._sending:
                return None
            for place in self._places:
                if place.ready:
                    self._places.remove(place)
                    self._sending = True
                    return place
                if place.holds:
                    return None
            return None
