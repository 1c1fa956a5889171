"""One contract for every source of records: what holds for the log in memory holds for the real broker."""

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rollbook.infra.broker.ports import free_port
from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, LogSource, OutOfRange
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.tests.replay.memory_log import MemoryLog

TRANSACTIONS = ((3, True), (2, True), (2, False), (1, True))
"""How many records, and whether they are committed; each is followed by a marker."""
DECISIONS = Settings().topic(Topic.DECISIONS)
COMMITTED = [0, 1, 2, 4, 5, 10]
END = 12


@dataclass(frozen=True, slots=True)
class Filled:
    """A source with the transactions in partition 0 of a topic."""

    log: LogSource
    topic: str


@contextmanager
def in_memory() -> Iterator[Filled]:
    log = MemoryLog()
    log.append(DECISIONS, 0, b"k", b"v0")
    for offset in range(1, END):
        if offset in COMMITTED:
            log.append(DECISIONS, 0, b"k", b"v%d" % offset)
        else:
            log.marker(DECISIONS, 0)
    yield Filled(log, DECISIONS)


@contextmanager
def in_files(folder: Path) -> Iterator[Filled]:
    """The same, exported in two parts, of which the second comes first."""
    with in_memory() as made:
        settings, parts = Settings(), {"late": (4, None), "early": (None, 4)}
        for name, (start, end) in parts.items():
            export(made.log, settings, [OffsetRange(made.topic, 0, start, end)], folder / f"{name}.avro")
    with FileLog([folder / f"{name}.avro" for name in parts]) as log:
        yield Filled(log, DECISIONS)


@contextmanager
def in_kafka(settings: Settings) -> Iterator[Filled]:
    """With a transaction that is still open behind them."""
    topic = settings.topic(Topic.DECISIONS)
    producer = Producer(
        {"bootstrap.servers": settings.bootstrap_servers, "transactional.id": settings.topic_prefix, "log_level": 0}
    )
    producer.init_transactions(30)
    offset = 0
    for size, commits in TRANSACTIONS:
        producer.begin_transaction()
        for _ in range(size):
            producer.produce(topic, b"v%d" % offset, b"k", 0)
            offset += 1
        producer.flush()
        (producer.commit_transaction if commits else producer.abort_transaction)(10)
        offset += 1
    producer.begin_transaction()
    producer.produce(topic, b"not committed", b"k", 0)
    producer.flush()
    with KafkaLog(settings) as log:
        yield Filled(log, topic)
    producer.abort_transaction(10)


@pytest.fixture(params=["memory", "files", "kafka"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filled]:
    if request.param != "kafka":
        with in_memory() if request.param == "memory" else in_files(tmp_path) as made:
            yield made
    else:
        with in_kafka(request.getfixturevalue("settings")) as made:
            yield made


def test_committed_records_are_read_over_the_gaps_and_no_further(filled: Filled) -> None:
    log, topic = filled.log, filled.topic
    assert log.bounds(topic, 0) == Bounds(0, END)
    records = list(log.read(topic, 0, 0, END))
    assert [record.offset for record in records] == COMMITTED
    assert {record.value for record in records} == {b"v%d" % offset for offset in COMMITTED}
    assert {(record.topic, record.partition, record.key) for record in records} == {(topic, 0, b"k")}
    assert all(record.timestamp_ms > 0 for record in records)
    for start, end in ((0, 1), (1, 5), (3, 4), (6, 10), (5, 11), (10, 12), (11, 12)):
        found = [record.offset for record in log.read(topic, 0, start, end)]
        assert found == [offset for offset in COMMITTED if start <= offset < end]


def test_single_records_are_read_where_they_are(filled: Filled) -> None:
    log, topic = filled.log, filled.topic
    assert [record.offset for record in log.read_at(topic, 0, [10, 0, 4, 4])] == [0, 4, 10]
    assert list(log.read_at(topic, 0, [])) == []
    for missing in (3, 6, END, 99):
        with pytest.raises(OutOfRange) as told:
            list(log.read_at(topic, 0, [0, missing]))
        assert f"{topic}:0@{missing}" in str(told.value)
        assert f"to be had are offsets 0 to {END - 1}" in str(told.value)


def test_a_range_beyond_the_end_is_told_at_once(filled: Filled) -> None:
    with pytest.raises(OutOfRange, match=f"to be had are offsets 0 to {END - 1}"):
        list(filled.log.read(filled.topic, 0, 0, END + 1))


def test_reads_may_be_interleaved_and_left(filled: Filled) -> None:
    log, topic = filled.log, filled.topic
    one, other = log.read(topic, 0, 0, END), log.read(topic, 0, 2, END)
    assert [next(one).offset, next(other).offset, next(one).offset, next(other).offset] == [0, 2, 1, 4]
    del one, other
    assert [record.offset for record in log.read(topic, 0, 5, END)] == [5, 10]


def test_a_time_is_the_first_record_stamped_so_late(filled: Filled) -> None:
    log, topic = filled.log, filled.topic
    stamps = {record.offset: record.timestamp_ms for record in log.read(topic, 0, 0, END)}
    for stamp in stamps.values():
        assert log.offset_at(topic, 0, stamp) == min(offset for offset, other in stamps.items() if other >= stamp)
    for early in (0, -1, -2, -3, -4, -5, -62_135_596_800_000):
        assert log.offset_at(topic, 0, early) == 0
    assert log.offset_at(topic, 0, max(stamps.values()) + 1) is None


def test_topics_and_partitions_that_do_not_exist_are_told(filled: Filled) -> None:
    with pytest.raises(BadInput, match="no-such-topic"):
        filled.log.partitions("no-such-topic")
    with pytest.raises(BadInput, match=f"{filled.topic}:77 does not exist"):
        filled.log.bounds(filled.topic, 77)


def test_what_retention_took_is_told(settings: Settings) -> None:
    with in_kafka(settings) as made, KafkaLog(settings) as late:
        assert late.bounds(made.topic, 0) == Bounds(0, END)  # what it knows when the records go
        admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
        for future in admin.delete_records([TopicPartition(made.topic, 0, 4)]).values():
            future.result(10)
        for log in (late, made.log):
            with pytest.raises(OutOfRange, match=f"not retained any more; to be had are offsets 4 to {END - 1}"):
                list(log.read(made.topic, 0, 0, END))
            with pytest.raises(OutOfRange, match=f"to be had are offsets 4 to {END - 1}"):
                list(log.read_at(made.topic, 0, [1]))
            assert [record.offset for record in log.read(made.topic, 0, 4, END)] == [4, 5, 10]


def test_a_broker_that_is_down_is_told_on_one_line() -> None:
    servers = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    with (
        KafkaLog(Settings(bootstrap_servers=servers)) as log,
        pytest.raises(EnvironmentFault, match=f"no Kafka broker answers at {servers}") as told,
    ):
        log.bounds("rollbook.lifecycle", 0)
    assert "\n" not in str(told.value)
    assert time.monotonic() - began < 10


def test_memory_does_not_grow_with_the_range(settings: Settings) -> None:
    """A reader that is slower than the broker keeps a bounded part of the range fetched ahead."""
    topic, records = settings.topic(Topic.PAYLOADS), 160
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 0, "message.max.bytes": 2 << 20})
    for _ in range(records):
        producer.produce(topic, random.randbytes(1 << 20), b"k", 0)
        producer.flush(30)
    del producer
    with KafkaLog(settings) as log:
        before, highest, read = resident_mib(), 0, 0
        for _ in log.read(topic, 0, 0, records):
            time.sleep(0.005)
            highest, read = max(highest, resident_mib()), read + 1
    assert read == records
    assert highest - before < 80


def resident_mib() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
