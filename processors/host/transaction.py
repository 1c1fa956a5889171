"""The transactional producer, with calls that come back: librdkafka can stay in one for ever.

After a broker restart `send_offsets_to_transaction` was seen to wait without end, whatever its time-out. So the calls
run in a thread of their own, and one that does not come back in time is left behind with its producer: the outcome of
its transaction is unknown, and the next producer of the same transactional id settles it.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rollbook.processors.host.clients import TRANSACTION_TIMEOUT_MS
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.errors import Action, HostStopped, action_for
from rollbook.processors.host.kafka import Kafka
from rollbook.processors.host.reading import Place

CALL_S = 10.0
"""What a call is given; librdkafka ends it then, if it does."""

SPARE_S = 5.0
"""This much longer, and it will not come back."""

LONG_MS = 300_000
"""The time-out of a transaction with very many records: a mass change is one transaction, however large."""

MOST_LEFT_BEHIND = 8
"""More than this many stuck producers in one process, and it ends."""

TOUCH = b"touch"
"""Key of what is written into a place only for its marker; it has no value."""

_BY = "by"
"""Header of the first record of a transaction in each place: its transactional id."""


def signed_by(record: Message) -> str | None:
    """Whose transaction begins with this record."""
    for header in record.headers() or ():
        if isinstance(header, tuple) and header[0] == _BY and isinstance(header[1], bytes):
            return header[1].decode(errors="replace")
    return None


class OutcomeUnknown(Exception):
    """The transaction may have committed or not: nothing in memory can be trusted."""


class Transactions:
    """One transactional id and its producer."""

    def __init__(self, kafka: Kafka, clock: Clock, name: str) -> None:
        self._kafka = kafka
        self._clock = clock
        self.name = name
        self._left_behind = 0
        self._began = 0.0
        self._signed: set[Place] = set()
        self._timeout_ms = TRANSACTION_TIMEOUT_MS
        self._producer = kafka.producer(name, self._timeout_ms)
        self._caller = kafka.caller()

    def begin(self) -> None:
        """Open a transaction."""
        self._began = self._clock.monotonic()
        self._signed.clear()
        self._producer.begin_transaction()

    def produce(self, topic: str, partition: int, key: bytes, value: bytes | None, timestamp: int = 0) -> None:
        """Add a record; the queue is bounded and drains meanwhile. The first one in a place says whose it is, to
        whoever finds the place held."""
        headers = None if (topic, partition) in self._signed else [(_BY, self.name)]
        while True:
            try:
                self._producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
                self._signed.add((topic, partition))
                return
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._FATAL:
                    self.abort()  # a refused record does not tell of what the client died, and this does
                raise

    def send_offsets(self, offsets: list[TopicPartition], group_metadata: object) -> None:
        """Add the consumed offsets: in a transaction that may be open for long only behind its records, which name its
        owner to whoever finds the offsets held."""
        if self._timeout_ms == LONG_MS:
            self._call(lambda: self._producer.flush(self._call_s))
        self._call(lambda: self._producer.send_offsets_to_transaction(offsets, group_metadata, self._call_s))

    def commit(self) -> None:
        """Commit what was added."""
        self._call(lambda: self._producer.commit_transaction(self._call_s))

    def abort(self) -> None:
        """Take back what was added."""
        self._call(lambda: self._producer.abort_transaction(self._call_s))

    def cancel(self, places: Iterable[Place], offsets: list[TopicPartition], group: Consumer) -> None:
        """Write into the places and take it back: the markers also end what hangs there of this id. Of the group's
        offsets only a member of it can do so."""
        self.start_over()
        try:
            self.begin()
            self._touch(places)
            with suppress(KafkaException):
                self.send_offsets(offsets, group.consumer_group_metadata())
            self.abort()
        except (KafkaException, OutcomeUnknown):
            self.start_over()
            raise

    def let_pass(self, place: Place) -> None:
        """Write into the place and commit it: what hangs there of this id becomes visible."""
        self.start_over()
        self.begin()
        self._touch([place])
        self.commit()

    def is_newest(self, place: Place) -> bool:
        """Whether nobody took the id since: a newer process takes it before it joins the group. Asked between
        transactions, by one that writes into the place and takes it back; no answer is a no."""
        try:
            self.begin()
            self._touch([place])
            self.abort()
        except (KafkaException, OutcomeUnknown):
            return False
        return True

    def _touch(self, places: Iterable[Place]) -> None:
        for topic, partition in places:
            self.produce(topic, partition, TOUCH, None)
        self._call(lambda: self._producer.flush(self._call_s))

    @property
    def overdue(self) -> bool:
        """Whether the transaction is older than the broker lets it be: aborted there, and the producer fenced."""
        return self._clock.monotonic() - self._began > self._timeout_ms / 1000

    def allow(self, *, long: bool) -> bool:
        """Before a transaction: whether it may be a long one. The time-out is the producer's, so that is changed; True
        where it was."""
        wanted = LONG_MS if long else TRANSACTION_TIMEOUT_MS
        if wanted == self._timeout_ms:
            return False
        self._timeout_ms = wanted
        self.start_over()
        return True

    def start_over(self) -> None:
        """A new producer of the same id: it ends, or waits for the end of, what the old one left open."""
        if self._caller.busy:
            self._left_behind += 1
            if self._left_behind > MOST_LEFT_BEHIND:
                raise HostStopped(
                    f"{self._left_behind} transactions of {self.name} never came back: check the broker, then start "
                    "the processor again"
                )
            self._caller = self._kafka.caller()
        self._producer = self._kafka.producer(self.name, self._timeout_ms)

    @property
    def _call_s(self) -> float:
        return max(CALL_S, self._timeout_ms / 1000)

    def _call(self, call: Callable[[], object]) -> None:
        """The same call again while the error is retriable; anything else is the caller's."""
        deadline = self._clock.monotonic() + self._call_s
        while True:
            try:
                self._caller.run(call, self._call_s + SPARE_S)
                return
            except TimeoutError as stuck:
                raise OutcomeUnknown(str(stuck)) from None
            except KafkaException as error:
                if action_for(error.args[0]) is not Action.RETRY or self._clock.monotonic() > deadline:
                    raise
                self._clock.sleep(0.05)
