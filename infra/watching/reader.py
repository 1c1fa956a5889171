"""Follows the committed decisions and snapshots of one run, in a thread of its own: no frame waits for the broker.

It begins some minutes before the end, by no more than so many records, and only reads, without a group. Whatever
happens to the broker it goes on trying, and says what keeps it.
"""

import threading
import time
from contextlib import suppress
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.infra.watching.leases import Leases
from rollbook.infra.watching.seen import Seen
from rollbook.infra.watching.tape import SECONDS, Tape
from rollbook.processors.dashboard.answers import Reading
from rollbook.producers.reading import group_less_consumer, partition_count, watermarks
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.partition import partition_of

MOST_DECISIONS = 20_000
"""Offsets before the end at which reading begins at most: a view must be there at once, however busy the run is."""
FEW_SNAPSHOTS = 500
"""The same of the snapshots; where the run has none there, all are read: the topic is compacted."""
_BATCH = 1_000
_WAIT_S = 0.1
_ASK_S = 2.0
_LOOK_S = 1.0
_AGAIN_S = 0.5
_CLOSE_S = 0.5
_ANEW = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)


class _Anew(Exception):
    """What was read is not what is there any more: the topics were made anew, or records are gone."""


class Reader:
    """`seen` says what is known now, and never waits. A context manager."""

    def __init__(self, settings: Settings, run_id: str) -> None:
        self._settings = settings
        self._run_id = run_id
        self._decisions, self._freshness = settings.topic(Topic.DECISIONS), settings.topic(Topic.FRESHNESS)
        self._lock = threading.Lock()
        self._tape = Tape(run_id)
        self._leases = Leases(settings)
        self._fault = ""
        self._defect: Exception | None = None
        self._reading = Reading.WAITING
        self._heard_at: float | None = None
        self._ahead: set[str] = set()
        """Topics that were not read to their end yet."""
        self._searched_all = False
        self._partition = 0
        self._looked = 0.0
        self._stopping = threading.Event()
        self._consumer = group_less_consumer(
            settings,
            isolation_level="read_committed",
            fetch_wait_max_ms=100,
            enable_partition_eof=True,
            queued_max_messages_kbytes=16_384,
        )
        self._thread = threading.Thread(target=self._serve, name="rollbook-watch", daemon=True)
        self._thread.start()

    def seen(self) -> Seen:
        """What is known now. Raises what ended the reading, a defect of ours."""
        if self._defect is not None:
            raise self._defect
        with self._lock:
            now_ms = self._tape.newest(_now_ms())
            snapshot = self._tape.snapshot
            return Seen(
                run_id=self._run_id,
                servers=self._settings.bootstrap_servers,
                prefix=self._settings.topic_prefix,
                reading=self._reading,
                fault=self._fault or self._tape.strange,
                now_ms=now_ms,
                heard_s=None if self._heard_at is None else time.monotonic() - self._heard_at,
                snapshot=snapshot,
                snapshot_ms=self._tape.snapshot_ms,
                minutes=self._tape.minutes(now_ms),
                leases=() if snapshot is None else self._leases.of(snapshot.updates),
            )

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():  # in a call to a broker that is away; it ends with the process
            return
        self._leases.close()
        self._consumer.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- the thread

    def _serve(self) -> None:
        placed = False
        while not self._stopping.is_set():
            try:
                if not placed:
                    self._place()
                    placed = True
                self._read()
                self._look()
            except _Anew:
                placed = False
                with self._lock:
                    self._tape = Tape(self._run_id)
                self._stopping.wait(_AGAIN_S)
            except (EnvironmentFault, KafkaException) as fault:
                self._cut_off(str(fault))
                self._stopping.wait(_AGAIN_S)
            except Exception as defect:  # of ours: a view that stands still and looks alive would be worse
                self._defect = defect
                return

    def _place(self) -> None:
        """Where to begin. Raises EnvironmentFault as long as there is no broker or no topic."""
        count = partition_count(self._consumer, self._settings, self._decisions, _ASK_S)
        self._partition = partition_of(self._run_id, count)
        places = [TopicPartition(topic, self._partition) for topic in (self._decisions, self._freshness)]
        (low, end), (first, last) = (watermarks(self._consumer, self._settings, place, _ASK_S) for place in places)
        from_ms = _now_ms() - SECONDS * 1_000
        start = max(low, end - MOST_DECISIONS, self._offset_at(places[0], from_ms, end))
        whole = start == low or start > end - MOST_DECISIONS
        since = max(first, last - FEW_SNAPSHOTS)
        self._searched_all = since == first
        with self._lock:
            if whole:
                self._tape.covers(from_ms)
            self._ahead = {self._decisions, self._freshness}
            self._reading = Reading.CATCHING_UP
            self._heard()
        self._consumer.assign(
            [
                TopicPartition(self._decisions, self._partition, start),
                TopicPartition(self._freshness, self._partition, since),
            ]
        )

    def _offset_at(self, place: TopicPartition, time_ms: int, end: int) -> int:
        asked = TopicPartition(place.topic, place.partition, max(0, time_ms))
        (found,) = self._consumer.offsets_for_times([asked], timeout=_ASK_S)
        return int(found.offset) if found.offset >= 0 else end

    def _read(self) -> None:
        messages = self._consumer.consume(_BATCH, _WAIT_S)
        with self._lock:
            for message in messages:
                self._take(message)
            missing = self._freshness not in self._ahead and self._tape.snapshot is None and not self._searched_all
        if missing:
            self._search_all()
        with self._lock:
            if not self._ahead and self._reading is Reading.CATCHING_UP:
                self._reading = Reading.LIVE

    def _take(self, message: Message) -> None:
        error, topic = message.error(), message.topic()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._ahead.discard(topic or "")
            elif error.fatal() or error.code() in _ANEW:
                raise _Anew
            return  # everything else heals: librdkafka connects again by itself
        offset, value = message.offset(), message.value()
        assert offset is not None
        at_ms = message.timestamp()[1]
        if topic == self._decisions:
            self._tape.decision(offset, at_ms, value or b"")
        else:
            self._tape.freshness(offset, at_ms, message.key(), value)

    def _search_all(self) -> None:
        """The run has no snapshot among the newest: read all of them."""
        place = TopicPartition(self._freshness, self._partition)
        low, _ = watermarks(self._consumer, self._settings, place, _ASK_S)
        with self._lock:
            self._tape.read_snapshots_again()
            self._ahead.add(self._freshness)
        self._consumer.seek(TopicPartition(self._freshness, self._partition, low))
        self._searched_all = True

    def _look(self) -> None:
        """Now and then: whether the broker answers, whether the log still is the one that was read, and the leases."""
        if time.monotonic() - self._looked < _LOOK_S:
            return
        places = [TopicPartition(topic, self._partition) for topic in (self._decisions, self._freshness)]
        ends = {place.topic: watermarks(self._consumer, self._settings, place, _ASK_S)[1] for place in places}
        for place in self._consumer.position(places):
            if place.offset > ends[place.topic]:
                raise _Anew
        self._looked = time.monotonic()
        with self._lock:
            if self._reading is Reading.CUT_OFF:
                self._reading = Reading.CATCHING_UP if self._ahead else Reading.LIVE
            self._heard()
            snapshot, times = self._tape.snapshot, self._tape
        if snapshot is not None:
            with suppress(EnvironmentFault, KafkaException):
                self._leases.look(snapshot.updates, self._partition, times.time_of)

    def _heard(self) -> None:
        self._heard_at, self._fault = time.monotonic(), ""

    def _cut_off(self, fault: str) -> None:
        with self._lock:
            self._fault = fault
            if self._heard_at is not None:
                self._reading = Reading.CUT_OFF


def _now_ms() -> int:
    return int(time.time() * 1_000)
