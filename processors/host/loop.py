"""The loop: consume what is there, fold it, and write decisions, ledger and offsets in one transaction."""

import logging
import threading
from collections import deque
from collections.abc import Iterable

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host import watch
from rollbook.processors.host.batch import MAX_RECORDS, Batch, Failure, fold_batch
from rollbook.processors.host.clerk import LeaseClerk
from rollbook.processors.host.clock import Clock, SystemClock
from rollbook.processors.host.errors import (
    Action,
    Fenced,
    HostStopped,
    PartitionUnusable,
    action_for,
    consuming,
    remedy,
)
from rollbook.processors.host.kafka import Cluster, Kafka
from rollbook.processors.host.logs import at, fault
from rollbook.processors.host.membership import Introduction, Unseated
from rollbook.processors.host.partitions import count_partitions, must_be_one_of
from rollbook.processors.host.poison import Poison, PoisonLimits
from rollbook.processors.host.restore import Opening
from rollbook.processors.host.seeking import read_on
from rollbook.processors.host.takeover import Stopped, Takeover
from rollbook.processors.host.transaction import OutcomeUnknown, Transactions
from rollbook.processors.host.writing import write
from rollbook.processors.ledger.fold import Ledger

logger = logging.getLogger("rollbook.processor")

LEASE_LOOK_S = 0.1
COMMIT_LOOK_S = 2.0
CLOSE_S = 10.0
MANY_CHANGES = 20_000
"""Ledger rows above which a transaction is given the time it takes: the end of a run forgets all of it at once."""

MOST_FAILURES = 30
"""Transactions that failed one after the other, none that stood in between, with which the host stops: an error that
only an operator can mend would be met for ever."""

DEFAULT_SESSION_TIMEOUT_MS = 6_000
DEFAULT_LIMITS = PoisonLimits()


class Host:
    """One processor instance. `name` is stable over restarts: it is transactional id and static group member at once,
    so that the newest process of a name wins and an older one is fenced."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        *,
        kafka: Kafka | None = None,
        clock: Clock | None = None,
        watches: Iterable[watch.Watch] = (),
        limits: PoisonLimits = DEFAULT_LIMITS,
    ) -> None:
        self._settings = settings
        self._kafka = kafka or Cluster(settings)
        self._clock = clock or SystemClock()
        self._name = f"{settings.topic_prefix}{name}"  # transactional ids are one namespace for the whole cluster
        self._session_timeout_ms = session_timeout_ms
        self._lifecycle = settings.topic(Topic.LIFECYCLE)
        self._ledgers: dict[int, Ledger] = {}
        self._next: dict[int, int] = {}  # first offset that no committed transaction contains
        self._taken: dict[int, int] = {}  # last offset put among the waiting
        self._stopped: dict[
            int, BaseException
        ] = {}  # partitions that cannot be opened, or have a record that cannot be folded
        self._waiting: deque[Message] = deque()
        self._failure: BaseException | None = None
        self._clerk = LeaseClerk(settings, self._kafka, self._clock, self._name)
        self._watched = watch.Watched(watches, self._clock, self._lifecycle)
        self._poison = Poison(limits, self._lifecycle)
        self._distrusted = False
        self._joined = False
        self._lost_seat = False  # since the membership was lost nothing was assigned
        self._failures = 0  # since a transaction stood
        self._looked = 0.0
        self._unseen: dict[
            int, float
        ] = {}  # partitions with commits that nobody looked at since, and when the last was
        self.decided = 0

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set. Raises `Fenced` or `HostStopped`."""
        self._stop = stop
        # 1. The transactional id first: it fences a predecessor and ends what it left open.
        self._transactions = Transactions(self._kafka, self._clock, self._name)
        self._consumer: Consumer = self._kafka.consumer(self._name, self._session_timeout_ms)
        self._topic_partitions = count_partitions(self._consumer, self._settings, self._clock)
        try:
            while not stop.is_set():
                try:
                    self._turn()
                except Unseated:
                    self._come_back()
        except Stopped:
            pass
        finally:
            self._clerk.close()
            self._leave()

    def _turn(self) -> None:
        if not self._joined:
            self._join()
        self._consume()
        if self._waiting:
            self._process()
        self._look_at_leases()
        self._look_at_commits()
        self._watched.turn(self._consumer, {partition: self._next[partition] for partition in self._ledgers})

    def _come_back(self) -> None:
        """As another member: one that librdkafka holds for fenced does nothing any more."""
        logger.warning("the membership was lost, and the group does not take it back: joining as a new member")
        if held := self._ledgers.keys() | self._stopped.keys():
            self._forget(held)
        self._leave()
        self._consumer = self._kafka.consumer(self._name, self._session_timeout_ms)
        self._joined = self._lost_seat = False

    def _join(self) -> None:
        """Become a member, or one again: a static member that comes back after its membership was lost gets what it
        had, without a rebalance, as a process does that comes back. What it was given meanwhile is given back."""
        self._joined = True
        self._consumer.unsubscribe()
        if held := self._ledgers.keys() | self._stopped.keys():
            self._forget(held)
        Introduction(self._consumer, self._lifecycle).make(self._introduce)
        self._consumer.subscribe(
            [self._lifecycle], on_assign=self._assigned, on_revoke=self._released, on_lost=self._lost
        )

    def _leave(self) -> None:
        """librdkafka was seen never to come back from closing a member that had been fenced in a rebalance."""
        try:
            self._kafka.caller().run(self._consumer.close, CLOSE_S)
        except TimeoutError:
            logger.warning("the consumer did not close within %.0f s: ending without it", CLOSE_S)

    def _introduce(self) -> bool:
        """A turn before anything is ours: only errors are of interest."""
        message = self._poll()
        if message is not None:
            self._take(message)
        self._watched.tell(watch.Alive())
        return not self._stop.is_set()

    # ---- 2. and 5.: partitions come and go; both callbacks run inside poll and consume, never inside a transaction

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._lost_seat = False
        started: list[TopicPartition] = []
        try:
            started = [self._open_or_stop(consumer, source.partition) for source in partitions]
        except Exception as error:  # a callback must not raise into librdkafka: the loop raises it instead
            self._failure = error
        consumer.incremental_assign(started)
        opened = tuple(source.partition for source in started if source.partition in self._ledgers)
        self._watched.tell(watch.Assigned(opened))
        try:
            self._rest(consumer)
        except Exception as error:
            self._failure = self._failure or error

    def _open_or_stop(self, consumer: Consumer, partition: int) -> TopicPartition:
        """Where to read on; a partition that cannot be opened stops, and no other."""
        try:
            return self._open(consumer, partition)
        except PartitionUnusable as error:
            self._ledgers.pop(partition, None)
            self._stopped[partition] = error
            logger.error("%s; the other partitions go on", error, extra=at(partition))
            self._watched.tell(watch.PartitionStopped(partition, None))
            return TopicPartition(self._lifecycle, partition, OFFSET_END)

    def _rest(self, consumer: Consumer) -> None:
        """Nothing is read of what is stopped; an instance that has nothing else ends."""
        if self._stopped and not self._ledgers:
            raise next(iter(self._stopped.values()))
        if self._stopped:
            consumer.pause([TopicPartition(self._lifecycle, partition) for partition in self._stopped])

    def _open(self, consumer: Consumer, partition: int) -> TopicPartition:
        began = self._clock.monotonic()
        self._watched.tell(watch.Opening(partition))
        must_be_one_of(self._topic_partitions, self._lifecycle, partition)
        opening = Opening(
            self._settings,
            self._kafka,
            self._clock,
            self._transactions,
            partition,
            self._topic_partitions,
            self._asked_to_stop,
        )
        restored = opening.open(consumer)
        self._ledgers[partition] = restored.ledger
        self._clerk.forget(partition)
        offset = self._next[partition] = restored.next_offset
        seconds = self._clock.monotonic() - began
        self._watched.tell(watch.Restored(partition, offset, restored.rows, seconds))
        logger.info("restored %d records in %.2f s", restored.rows, seconds, extra=at(partition, offset))
        return TopicPartition(self._lifecycle, partition, offset)

    def _asked_to_stop(self) -> bool:
        """Asked during a restore again and again, which shows that it goes on."""
        self._watched.tell(watch.Alive())
        return self._stop.is_set()

    def _released(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        self._forget({source.partition for source in partitions})

    def _forget(self, gone: set[int]) -> None:
        self._waiting = deque(message for message in self._waiting if message.partition() not in gone)
        for partition in gone:
            self._stopped.pop(partition, None)
            self._taken.pop(partition, None)
            self._ledgers.pop(partition, None)
            self._clerk.forget(partition)
            self._poison.forget(partition)
        self._watched.tell(watch.Released(tuple(sorted(gone))))
        logger.info("partitions %s: released", sorted(gone))

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The group went on without us, most often because the broker was away for long: the producer of that time is
        not used again, since its calls were seen to hang afterwards."""
        self._released(consumer, partitions)
        self._distrusted = self._lost_seat = True
        self._joined = False

    # ---- 3.: whatever is there, folded first, then one transaction

    def _consume(self) -> None:
        if not self._waiting:
            first = self._poll()
            if first is not None:
                self._take(first)
                for message in self._consumer.consume(MAX_RECORDS - 1, 0):
                    self._take(message)
        self._raise_failure()

    def _poll(self) -> Message | None:
        """Wherever it is polled: what a callback met is not waited out."""
        message = self._consumer.poll(0.1)
        self._raise_failure()
        return message

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._keep(message)
            return
        action = consuming(error)
        if action is Action.STOP_FENCED:
            if self._lost_seat and self._transactions.is_newest((self._settings.topic(Topic.DEAD_LETTERS), 0)):
                raise Unseated
            raise self._fenced()
        if action is Action.STOP:
            raise HostStopped(f"consuming {self._lifecycle}: {error.str()} ({error.name()}): {remedy(error)}")
        place = at(message.partition(), message.offset())
        logger.warning("consuming %s: %s", self._lifecycle, error.str(), extra=place)

    def _keep(self, message: Message) -> None:
        """What was decided already is not decided again, whatever makes the consumer deliver it twice."""
        partition, offset = message.partition(), message.offset()
        if partition in self._stopped:
            return
        if partition in self._ledgers and partition is not None and offset is not None:
            last = self._taken.get(partition, -1)
            if offset >= self._next[partition] and offset > last:
                self._taken[partition] = offset
                self._waiting.append(message)

    def _look_at_leases(self) -> None:
        """Only where the fold has reached the end of the log: a Renew that waits there must be read first."""
        now = self._clock.monotonic()
        if self._waiting or now - self._looked < LEASE_LOOK_S:
            return
        self._looked = now
        for partition, ledger in self._ledgers.items():
            place = TopicPartition(self._lifecycle, partition)
            _, end = self._consumer.get_watermark_offsets(place, cached=True)
            if 0 <= end <= self._next[partition]:
                self._clerk.look(partition, ledger)

    def _look_at_commits(self) -> None:
        """Of each partition once nothing more comes: whether the last commit can be seen."""
        long_ago = self._clock.monotonic() - COMMIT_LOOK_S
        quiet = [partition for partition, since in self._unseen.items() if since < long_ago]
        for partition in quiet:
            del self._unseen[partition]
        if not self._stand(self._ledgers.keys() & quiet):
            self._start_over()

    def _process(self) -> None:
        batch = fold_batch(self._waiting, self._ledgers, self._clock)
        if batch.folded:
            if not self._transact(batch):
                return  # all of it is read and folded again, a failure included
            self.decided += len(batch.folded)
            self._watched.tell(watch.Committed(batch))
            self._poison.judge(folded for _, folded in batch.folded)
        if batch.failure is not None:
            self._stop_partition(batch.failure)

    def _transact(self, batch: Batch) -> bool:
        """Steps 3, 4 and 7. True when the transaction is known to have committed."""
        try:
            # 3a. Group metadata before the transaction: it must be that of the assignment the batch was read under.
            metadata = self._consumer.consumer_group_metadata()
            # 3b.
            if self._distrusted:
                self._transactions.start_over()
                self._distrusted = False
            changes = {partition: self._ledgers[partition].changes() for partition in sorted(batch.next_offsets)}
            long = sum(map(len, changes.values())) > MANY_CHANGES
            self._watched.tell(watch.Began(long))
            if self._transactions.allow(long=long) and not self._stand(batch.next_offsets):
                self._start_over()  # an older process of the name had the id meanwhile, and ended what it saw hanging
                return False
            self._transactions.begin()
            write(self._transactions, self._settings, self._ledgers, batch, changes)
            # 3c. No transaction without offsets: they are what a group-fenced instance is refused by.
            offsets = [TopicPartition(self._lifecycle, p, o) for p, o in sorted(batch.next_offsets.items())]
            self._transactions.send_offsets(offsets, metadata)
            # 3d.
            self._transactions.commit()
        except (KafkaException, OutcomeUnknown) as error:
            self._recover(error)
            return False
        # 3e. Only now does the batch stand.
        self._failures = 0
        self._unseen.update(dict.fromkeys(batch.next_offsets, self._clock.monotonic()))
        for partition, next_offset in batch.next_offsets.items():
            self._ledgers[partition].journal.keep()
            self._next[partition] = next_offset
        return True

    # ---- 4., 6. and 7.: what an error means

    def _recover(self, error: KafkaException | OutcomeUnknown) -> None:
        action = Action.UNKNOWN_OUTCOME if isinstance(error, OutcomeUnknown) else action_for(error.args[0])
        logger.warning("transaction failed (%s): %s", action.value, error)
        if action is Action.STOP_FENCED and not self._transactions.overdue:
            raise self._fenced()  # by a newer process, and not by the broker because the transaction took too long
        if action is Action.STOP:
            raise HostStopped(f"transaction of {self._name}: {error}: {remedy(error.args[0])}")
        self._failures += 1
        if self._failures > MOST_FAILURES:
            raise HostStopped(
                f"{self._failures} transactions of {self._name} failed one after the other, the last with: {error}; "
                "check the broker, then start again"
            )
        if action is Action.ABORT:
            try:
                self._transactions.abort()
            except (KafkaException, OutcomeUnknown) as again:
                logger.warning("abort failed too: %s", again)
            else:
                touched = {p for p, ledger in self._ledgers.items() if ledger.journal.mark()}
                if self._stand(touched):
                    self._rewind()
                    return
        # 7. A time-out leaves the outcome unknown: nothing in memory can be trusted.
        self._start_over()

    def _hear_the_group(self) -> None:
        """Before an id is taken back that may have been lost long ago: a newer process of the name fences the group's
        member too, which the consumer tells with a heartbeat's answer. To go on before that would fence the newer
        one."""
        heard = self._clock.monotonic() + self._session_timeout_ms / 1000 / 2
        while self._clock.monotonic() < heard and not self._stop.is_set():
            message = self._poll()
            if message is not None:  # what it brings is read again
                self._take(message)

    def _stand(self, partitions: Iterable[int]) -> bool:
        """Whether the partitions stand in their topics where they stand here. A broker may lose markers: what was
        committed is not seen then until the next commit, an abort would take it back, and what was aborted would be
        seen with the next commit."""
        return all(
            Takeover(
                self._settings, self._kafka, self._clock, self._transactions, partition, self._asked_to_stop
            ).stands_at(self._next[partition])
            for partition in sorted(partitions)
        )

    def _rewind(self) -> None:
        """4. After an abort: the journals are undone, every partition goes back to where its ledger stands."""
        self._watched.tell(watch.Aborted())
        self._forget_waiting()
        for ledger in self._ledgers.values():
            ledger.journal.undo()
        self._seek()

    def _start_over(self) -> None:
        """7. Another producer of the same id settles the transaction; then each partition is restored in full."""
        self._watched.tell(watch.OutcomeLost())
        if self._transactions.overdue:
            self._hear_the_group()
        self._transactions.start_over()
        self._forget_waiting()
        self._consumer.resume([TopicPartition(self._lifecycle, partition) for partition in self._stopped])
        ours = sorted(self._ledgers.keys() | self._stopped.keys())
        self._stopped.clear()  # what stopped may stand before its record now, or can be opened, and is tried again
        for partition in ours:
            self._open_or_stop(self._consumer, partition)
        self._rest(self._consumer)
        self._seek()

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._taken.clear()

    def _seek(self) -> None:
        read_on(self._consumer, self._clock, self._lifecycle, self._places, self._poll, self._take)

    def _places(self) -> dict[int, int]:
        return {partition: self._next[partition] for partition in self._ledgers}

    def _fenced(self) -> Fenced:
        self._watched.tell(watch.FencedOff())
        return Fenced(
            f"processor {self._name} was fenced: a newer process of this name runs (leave it running, or give this one "
            "another --name), or another processor took over a partition of this one, which was silent (start it again)"
        )

    def _stop_partition(self, failure: Failure) -> None:
        """6. A record that this version cannot fold stops its partition, and no other."""
        self._stopped[failure.partition] = failure.error
        self._waiting = deque(message for message in self._waiting if message.partition() != failure.partition)
        where = f"{self._lifecycle}:{failure.partition} offset {failure.offset}"
        problem = (
            f"stopped before {where}: {fault(failure.error)}; nothing after it was decided, nothing is lost; install "
            "a version that can fold it and start again"
        )
        self._watched.tell(watch.PartitionStopped(failure.partition, failure.offset))
        if self._stopped.keys() >= self._ledgers.keys():
            raise HostStopped(problem) from failure.error
        place = at(failure.partition, failure.offset)
        logger.error("%s; the other partitions go on", problem, exc_info=failure.error, extra=place)
        self._consumer.pause([TopicPartition(self._lifecycle, failure.partition)])
