"""A payload on its way to the broker: which of its chunks have arrived, and where."""

import hashlib
import threading
from collections.abc import Callable, Sequence

from rollbook.producers.errors import DeliveryFailed
from rollbook.schemas.records.common import PayloadRef


class Payload:
    """A payload on its way. Its reference is known when its last chunk has arrived."""

    def __init__(self, topic: str, partition: int, chunks: Sequence[bytes]) -> None:
        self._topic = topic
        self._partition = partition
        self._size = sum(len(chunk) for chunk in chunks)
        self._sha256 = hashlib.sha256(b"".join(chunks)).hexdigest()
        self._offsets = [0] * len(chunks)
        self._missing = len(chunks)
        self._failure: DeliveryFailed | None = None
        self._lock = threading.Lock()
        self._then: list[Callable[[], None]] = []

    @property
    def ref(self) -> PayloadRef:
        """Where it lies; before it is settled, a stand-in of the same shape."""
        return PayloadRef(
            topic=self._topic,
            partition=self._partition,
            offsets=tuple(self._offsets),
            size=self._size,
            sha256=self._sha256,
        )

    @property
    def failure(self) -> DeliveryFailed | None:
        return self._failure

    def chunk_arrived(self, index: int, offset: int | None, failure: DeliveryFailed | None) -> None:
        with self._lock:
            self._offsets[index] = offset or 0
            self._failure = self._failure or failure
            self._missing -= 1
            ready, self._then = ([], self._then) if self._missing else (self._then, [])
        for call in ready:
            call()

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call when every chunk has arrived or failed: at once if that is so already."""
        with self._lock:
            if self._missing:
                self._then.append(call)
                return
        call()
