"""What the host tells those who watch it: events, so that metrics and health need no word in the loop.

They are told after the fact, what counts decisions only once its transaction stands. Who watches must neither raise nor
wait: it runs in the loop.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from rollbook.processors.host.batch import Batch
from rollbook.processors.host.clock import Clock

LAG_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Alive:
    """The loop went round once more, or a restore went on."""


@dataclass(frozen=True, slots=True)
class Lags:
    """How many records each partition is behind the end of the log."""

    records: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group gave these partitions to this instance, and they are restored; none is an answer, too."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """A partition is about to be restored, which takes as long as somebody's transaction is open on it."""

    partition: int


@dataclass(frozen=True, slots=True)
class Restored:
    """A partition's ledger was read back."""

    partition: int
    next_offset: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Released:
    """These partitions are no longer this instance's."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Began:
    """A transaction is about to open. `long`: it may take minutes, since it changes very much."""

    long: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction of this batch stands."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Aborted:
    """The transaction was aborted, and its records will be read again."""


@dataclass(frozen=True, slots=True)
class OutcomeLost:
    """Whether the transaction committed is not known: everything is restored."""


@dataclass(frozen=True, slots=True)
class FencedOff:
    """A newer process of this name took over."""


@dataclass(frozen=True, slots=True)
class PartitionStopped:
    """A record that this version cannot fold stopped its partition; or, without an offset, it cannot be opened."""

    partition: int
    offset: int | None


Event = (
    Alive
    | Lags
    | Assigned
    | Opening
    | Restored
    | Released
    | Began
    | Committed
    | Aborted
    | OutcomeLost
    | FencedOff
    | PartitionStopped
)
Watch = Callable[[Event], None]


class Watched:
    """The host's side: passes events on to all that watch. Without any it does nothing."""

    def __init__(self, watches: Iterable[Watch], clock: Clock, topic: str) -> None:
        self._watches = tuple(watches)
        self._clock = clock
        self._topic = topic
        self._looked = 0.0

    def tell(self, event: Event) -> None:
        """Tell everybody."""
        for watch in self._watches:
            watch(event)

    def turn(self, consumer: Consumer, stands: Mapping[int, int]) -> None:
        """The loop turns; now and then it is asked how far it is behind. `stands`: the next offset by partition."""
        if not self._watches:
            return
        self.tell(Alive())
        now = self._clock.monotonic()
        if now - self._looked >= LAG_LOOK_S:
            self._looked = now
            ends = {p: _end(consumer, TopicPartition(self._topic, p)) for p in stands}
            self.tell(Lags({p: max(0, end - stands[p]) for p, end in ends.items() if end is not None}))


def _end(consumer: Consumer, place: TopicPartition) -> int | None:
    """Where the log ended at the last fetch; None until there was one."""
    found = consumer.get_watermark_offsets(place, cached=True)
    return None if found is None or found[1] < 0 else int(found[1])
