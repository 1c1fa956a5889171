"""Transactions that hold a partition: whose they are, and how they are ended.

Who takes an owner's transactional id ends what is open under it, by rights. But a coordinator that decides a
transaction while a partition has no leader (a single node that starts again is enough) takes the partition for deleted:
it writes no marker there and calls the transaction complete (Kafka 4.4, TransactionMarkerChannelManager). Nobody reads
behind it then, for ever, and the next commit of the same producer there would make visible what was aborted. What ends
such a transaction is a later one of the same producer in the same places: one that is aborted, so that nothing of it
becomes visible.
"""

import logging
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.decided import first_undecided, last_position
from rollbook.processors.host.errors import PartitionUnusable
from rollbook.processors.host.kafka import Kafka
from rollbook.processors.host.logs import at
from rollbook.processors.host.reading import Place, ends_of, records
from rollbook.processors.host.transaction import OutcomeUnknown, Transactions, signed_by
from rollbook.processors.ledger.keys import decode_position, position_key
from rollbook.schemas.records.ledger import Position

logger = logging.getLogger("rollbook.processor")

LATE_S = 1.0
"""Markers come some milliseconds after their transaction is decided, or never."""

NAMELESS_S = 20.0
"""So long the group's offset is held by a transaction that has nothing in any topic: a coordinator that works lets none
be open as long, so that it has ended, and only the group has not heard of it. The last owner that is known is taken for
its owner then; if it is not, the offset is done without."""

GIVE_UP_AFTER_S = 120.0
UNSIGNED = "somebody who is no processor"


class Stopped(Exception):
    """The process was asked to end in the middle of a restore."""


WRITTEN = (Topic.LEDGER, Topic.DECISIONS, Topic.FRESHNESS)
"""Where a transaction on a partition writes, in the partition of the same number."""


class Takeover:
    """Frees one partition for the instance whose own id is that of `own`."""

    def __init__(
        self,
        settings: Settings,
        kafka: Kafka,
        clock: Clock,
        own: Transactions,
        partition: int,
        stopping: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._kafka = kafka
        self._clock = clock
        self._own = own
        self._partition = partition
        self._stopping = stopping
        self._dead_letters = (settings.topic(Topic.DEAD_LETTERS), 0)
        self._places = [(settings.topic(topic), partition) for topic in WRITTEN]
        self._taken: dict[str, Transactions] = {}  # kept: their end would not undo the fence, their lives cost little
        self._last: set[str] = set()  # who is ended behind the others, since these may hide a half of theirs
        self._not_before = 0.0
        self._since: float | None = None

    def press(self, group: Consumer) -> bool:
        """Something is in the way: called again and again until it is not. False when that cannot be helped, and need
        not: see `NAMELESS_S`.

        One step at a time: the owner's id is taken; what it still has open then hangs, and is ended."""
        now = self._clock.monotonic()
        self._since = now if self._since is None else self._since
        if now < self._not_before:
            return True
        owner = min(self._held().values(), key=self._last.__contains__, default=None)
        if owner is None:
            if now - self._since < NAMELESS_S:
                return True
            position = self._position()
            owner = None if position is None else position.transactional_id
            if owner is None or now - self._since > 2 * NAMELESS_S:
                return False
        if owner != UNSIGNED:
            self._not_before = now + LATE_S
            if owner in self._taken:
                self._end(self._taken[owner], group)
            else:
                self._taken[owner] = self._own if owner == self._own.name else self._take(owner)
        return True

    def settle(self, group: Consumer) -> None:
        """Before a partition is read, and written to, nothing may be open in any of its places: returns when that is
        so. Raises `PartitionUnusable`."""
        began, told = self._clock.monotonic(), False
        while held := self._held():
            if self._stopping():
                raise Stopped
            waited = self._clock.monotonic() - began
            if waited > GIVE_UP_AFTER_S:
                (topic, partition), owner = next(iter(held.items()))
                raise PartitionUnusable(
                    f"{topic}:{partition}: a transaction of {owner} is open there that nobody ends; see "
                    "`kafka-transactions.sh find-hanging`, and start the processor again once it has ended"
                )
            if waited > LATE_S:
                if not told:
                    logger.warning("waiting for what is open: %s", held, extra=at(self._partition))
                told = True
                self.press(group)
            self._clock.sleep(0.05)

    def stands_at(self, next_offset: int) -> bool:
        """Whether what can be seen is what the instance believes, and nothing of its own lies open: with no transaction
        under way, and not before markers had their time."""
        began = self._clock.monotonic()
        while self._own.name in self._held().values() or self._seen() != (next_offset, next_offset):
            if self._clock.monotonic() - began > LATE_S:
                return False
            self._clock.sleep(0.02)
        return True

    def _take(self, owner: str) -> Transactions:
        logger.warning("ending the open transaction of %s", owner, extra=at(self._partition))
        return Transactions(self._kafka, self._clock, owner)

    def _end(self, taken: Transactions, group: Consumer) -> None:
        """What hangs is taken back; a dead letter passes: rather twice than never. Where markers were lost in some
        places only, a half of a commit may be visible already; not so of a zombie, whose offsets the group refused:
        then it is another who has come further."""
        taken.start_over()  # an own id too: whatever is under way has ended then
        all_held = self._held()
        held = [place for place, owner in all_held.items() if owner == taken.name]
        ledger, decided = self._seen()
        if ledger != decided and taken.name in self._ahead(ledger, decided):
            if set(all_held.values()) != {taken.name}:  # it may be another's that hides the other half: that one first
                self._last.add(taken.name)
                return
            raise PartitionUnusable(
                f"{self._settings.topic(Topic.LIFECYCLE)}:{self._partition}: a broker lost some markers of a "
                f"transaction of {taken.name}, and wrote others: the ledger stands at {ledger}, decisions go to "
                f"{decided}; what is missing hangs in {held}, see `kafka-transactions.sh find-hanging`"
            )
        self._last.clear()
        logger.warning("ending what hangs of %s: a broker lost its markers", taken.name, extra=at(self._partition))
        offset = TopicPartition(self._settings.topic(Topic.LIFECYCLE), self._partition, 0)
        try:
            taken.cancel([place for place in held if place != self._dead_letters], [offset], group)
            if self._dead_letters in held:
                taken.let_pass(self._dead_letters)
        except (KafkaException, OutcomeUnknown) as failed:
            logger.warning("it was not ended: %s", failed, extra=at(self._partition))

    # ---- reading

    def _seen(self) -> tuple[int, int]:
        """Where ledger and decisions stand for who reads what is committed."""
        position, decisions = self._position(), self._settings.topic(Topic.DECISIONS)
        decided = first_undecided(self._kafka, self._clock, decisions, self._partition)
        return 0 if position is None else position.next_offset, decided

    def _ahead(self, ledger: int, decided: int) -> set[str]:
        """Who brought the partition as far as the one of the two that is ahead."""
        if ledger > decided:
            seen = self._position()
            return set() if seen is None else {seen.transactional_id}
        place, key = self._places[0], position_key(self._partition)
        [(stable, end)] = ends_of(self._kafka, self._clock, [place])
        hidden = records(self._kafka, self._clock, TopicPartition(*place, stable), end, committed=False)
        written = [record.value() for record in hidden if record.key() == key]
        positions = [decode_position(value) for value in written if isinstance(value, bytes)]
        others = {one.transactional_id for one in positions if one.next_offset == decided}
        return others or {one.transactional_id for one in positions}

    def _position(self) -> Position | None:
        ledger = self._settings.topic(Topic.LEDGER)
        return last_position(self._kafka, self._clock, ledger, self._partition)

    def _held(self) -> dict[Place, str]:
        """Places with an open transaction, and whose: its first record there lies at the last stable offset, and names
        it. Among the dead letters, which all instances write to one place, only what is the instance's own."""
        found: dict[Place, str] = {}
        places = [*self._places, self._dead_letters]
        for place, (stable, end) in zip(places, ends_of(self._kafka, self._clock, places), strict=True):
            if stable < end:
                start = TopicPartition(*place, stable)
                first = next(records(self._kafka, self._clock, start, end, committed=False), None)
                signed = None if first is None else signed_by(first)
                owner = signed if signed and signed.startswith(self._settings.topic_prefix) else UNSIGNED
                if place != self._dead_letters or owner in (self._own.name, *self._taken):
                    found[place] = owner
        return found
