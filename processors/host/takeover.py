"""Transactions that hold a partition: whose they are, and how they are ended.

Who takes an owner's transactional id ends what is open under it, by rights. But a coordinator that decides a
transaction while a partition has no leader (a single node that starts again is enough) takes the partition for deleted:
it writes no marker there and calls the transaction complete (Kafka 4.4, TransactionMarkerChannelManager). Nobody reads
behind it then, for ever, and the next commit of the same producer there would make visible what was aborted. What ends
such a transaction is a later one of the same producer in the same places: one that is aborted, so that nothing of it
becomes visible.
"""

import logging

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.decided import first_undecided
from rollbook.processors.host.errors import HostStopped
from rollbook.processors.host.kafka import Kafka
from rollbook.processors.host.logs import at
from rollbook.processors.host.reading import ends_of, key_and_value, records
from rollbook.processors.host.transaction import OutcomeUnknown, Transactions, signed_by
from rollbook.processors.ledger.rebuild import Rebuild

logger = logging.getLogger("rollbook.processor")

LATE_S = 1.0
"""Markers come some milliseconds after their transaction is decided, or never."""

NAMELESS_S = 20.0
"""So long the group's offset is held by a transaction that has nothing in any topic: a coordinator that works lets none
be open as long, so that it has ended, and only the group has not heard of it."""

GIVE_UP_AFTER_S = 120.0
UNSIGNED = "somebody who is no processor"

WRITTEN = (Topic.LEDGER, Topic.DECISIONS, Topic.FRESHNESS)
"""Where a transaction on a partition writes, in the partition of the same number."""


class Takeover:
    """Frees one partition for the instance whose own id is that of `own`."""

    def __init__(self, settings: Settings, kafka: Kafka, clock: Clock, own: Transactions, partition: int) -> None:
        self._settings = settings
        self._kafka = kafka
        self._clock = clock
        self._own = own
        self._partition = partition
        self._dead_letters = (settings.topic(Topic.DEAD_LETTERS), 0)
        self._places = [(settings.topic(topic), partition) for topic in WRITTEN]
        self._taken: dict[str, Transactions] = {}  # kept: their end would not undo the fence, their lives cost little
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
        owner = next(iter(self._holders()), None)
        if owner is None:
            return now - self._since < NAMELESS_S
        if owner == UNSIGNED:
            return True
        self._not_before = now + LATE_S
        if owner in self._taken:
            self._cancel(self._taken[owner], group)
        else:
            self._taken[owner] = self._own if owner == self._own.name else self._take(owner)
        return True

    def settle(self, group: Consumer) -> None:
        """Before a partition is written to, nothing may be open in any of its places: returns when that is so."""
        began = self._clock.monotonic()
        while holders := self._holders():
            waited = self._clock.monotonic() - began
            if waited > GIVE_UP_AFTER_S:
                raise HostStopped(
                    f"{self._settings.topic(Topic.DECISIONS)}:{self._partition}: a transaction of {holders[0]} is open "
                    "there that nobody ends; see `kafka-transactions.sh find-hanging`"
                )
            if waited > LATE_S:
                self.press(group)
            self._clock.sleep(0.05)

    def hangs(self) -> bool:
        """Whether something of the instance itself lies open, though it has no transaction under way."""
        began = self._clock.monotonic()
        while self._own.name in self._holders():
            if self._clock.monotonic() - began > LATE_S:
                return True
            self._clock.sleep(0.02)
        return False

    def _take(self, owner: str) -> Transactions:
        logger.warning("ending the open transaction of %s", owner, extra=at(self._partition))
        return Transactions(self._kafka, self._clock, owner)

    def _cancel(self, taken: Transactions, group: Consumer) -> None:
        self._must_agree(taken.name)
        logger.warning("ending what hangs of %s: a broker lost its markers", taken.name, extra=at(self._partition))
        offset = TopicPartition(self._settings.topic(Topic.LIFECYCLE), self._partition, 0)
        try:
            taken.cancel(self._places, [offset], group.consumer_group_metadata())
            taken.let_pass(self._dead_letters)  # rather twice than never
        except (KafkaException, OutcomeUnknown) as failed:
            logger.warning("it was not ended: %s", failed, extra=at(self._partition))

    def _must_agree(self, owner: str) -> None:
        """Where markers were lost in some places only, a commit can be told from an abort no more: one half of it may
        be visible already."""
        rebuild = Rebuild(self._partition, 1, run_id="")
        ledger, decisions = self._settings.topic(Topic.LEDGER), self._settings.topic(Topic.DECISIONS)
        [(end, _)] = ends_of(self._kafka, self._clock, [(ledger, self._partition)])
        start = TopicPartition(ledger, self._partition, OFFSET_BEGINNING)
        for record in records(self._kafka, self._clock, start, end, committed=True):
            rebuild.take(*key_and_value(record))
        decided = first_undecided(self._kafka, self._clock, decisions, self._partition)
        if decided != rebuild.next_offset:
            raise HostStopped(
                f"{decisions}:{self._partition}: a broker lost some markers of a transaction of {owner}: the ledger "
                f"stands at {rebuild.next_offset}, decisions go to {decided}; see `kafka-transactions.sh "
                "find-hanging`, and start a new topic prefix"
            )

    def _holders(self) -> list[str]:
        """Whose transactions are open: the first record of each in a place lies at the last stable offset there, and
        names it. Among the dead letters, which all instances write to one place, only what is the instance's own."""
        found = []
        places = [*self._places, self._dead_letters]
        for place, (stable, end) in zip(places, ends_of(self._kafka, self._clock, places), strict=True):
            if stable < end:
                start = TopicPartition(*place, stable)
                first = next(records(self._kafka, self._clock, start, end, committed=False), None)
                owner = (None if first is None else signed_by(first)) or UNSIGNED
                if place != self._dead_letters or owner == self._own.name:
                    found.append(owner)
        return found
