"""What the ledger decided on the records of a client that waits for none of its decisions."""

import threading
from collections import OrderedDict, deque

from rollbook.producers.sending.command import YES
from rollbook.schemas.codec import Decoded

MAX_AWAITED = 4096
MAX_UNTOLD = 256


class Verdicts:
    """Counts what was refused of the records that were expected; the newest refusals wait to be told. Both are called
    from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._awaited: OrderedDict[str, None] = OrderedDict()
        self._untold: deque[Decoded] = deque(maxlen=MAX_UNTOLD)
        self._refused = 0

    @property
    def refused(self) -> int:
        """How many records were refused."""
        return self._refused

    @property
    def all_read(self) -> bool:
        """Whether nothing is awaited any more."""
        return not self._awaited

    def expect(self, event_id: str) -> None:
        """A record is on its way. The oldest of too many is forgotten."""
        with self._lock:
            self._awaited[event_id] = None
            if len(self._awaited) > MAX_AWAITED:
                self._awaited.popitem(last=False)

    def note(self, decision: Decoded) -> None:
        """Take in a decision, on whoever's record."""
        with self._lock:
            event_id = str(decision.fields["event_id"])
            if event_id not in self._awaited:
                return
            del self._awaited[event_id]
            if decision.fields["outcome"] not in YES:
                self._refused += 1
                self._untold.append(decision)

    def take_refused(self) -> list[Decoded]:
        """The refusals since the last call, but for the oldest of too many."""
        with self._lock:
            taken, self._untold = list(self._untold), deque(maxlen=MAX_UNTOLD)
        return taken
