"""What `rollbook watch` reads, on the real broker, and how it is counted."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics import create_topics
from rollbook.infra.watching import reader as reading
from rollbook.infra.watching.reader import Reader
from rollbook.infra.watching.seen import Seen
from rollbook.infra.watching.tape import SECONDS, Tape
from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.freshness import snapshot
from rollbook.schemas.codec import encode
from rollbook.schemas.partition import partition_of
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.infra.rich_run import decide, rich
from rollbook.tests.infra.test_freshness_page import lived
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import refold

RUN = "run-a"
OTHER = next(name for name in map("other-{}".format, range(99)) if partition_of(name, 2) == partition_of(RUN, 2))
"""A run in the same partition."""


def told(history: History, at_ms: Callable[[int], int]) -> Tape:
    """A tape of all that was decided, each at its time."""
    tape = Tape(RUN)
    tape.covers(0)
    for offset, decided in enumerate(refold(history.log)):
        tape.decision(offset, at_ms(offset), decided)
    return tape


def test_what_is_counted_is_what_the_snapshot_counts() -> None:
    history = lived()
    tape = told(history, lambda offset: 1_000_000 + offset * 5_000)
    minutes = tape.minutes(1_000_000 + len(history.log.records) * 5_000)
    last = snapshot(history.run)
    assert minutes.total("decided") == last.sequence
    assert set(minutes.refusals) == {(one.record_type, one.reason, one.count) for one in last.refusals}
    assert (minutes.total("admitted"), minutes.total("turned_away")) == (2, 1)
    assert tape.time_of(20) == 1_100_000


def test_what_is_read_twice_is_counted_once_and_what_is_no_decision_is_said() -> None:
    history = lived()
    tape = told(history, lambda _: 1_000_000)
    for offset, decided in enumerate(refold(history.log)):
        tape.decision(offset, 1_000_000, decided)
    assert tape.minutes(1_000_000).total("decided") == len(history.log.records)
    assert tape.strange == ""
    tape.decision(999, 1_000_000, b"poison")
    assert tape.strange.startswith("decision at offset 999: ")
    tape.freshness(0, 1_000_000, RUN.encode(), b"poison")
    assert tape.strange.startswith("freshness at offset 0: ")
    assert tape.snapshot is None


def test_a_tape_does_not_grow_and_what_lies_before_it_is_not_known() -> None:
    [first, *_] = refold(History(RUN).opened().log)
    tape = Tape(RUN)
    for offset in range(20_000):
        tape.decision(offset, offset * 1_000, first)
    minutes = tape.minutes(20_000_000 - 1)
    assert minutes.total("decided") == SECONDS
    assert len(tape) < 2 * SECONDS + 2
    late = Tape(RUN)
    late.decision(0, 7_500, first)
    assert [one is not None for one in late.minutes(9_000).seconds[-4:]] == [False, True, True, True]


def until(reader: Reader, reached: Callable[[Seen], bool], seconds: float = 30) -> Seen:
    deadline = time.monotonic() + seconds
    while not reached(seen := reader.seen()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)
    return seen


def is_live(seen: Seen) -> bool:
    return seen.reading is Reading.LIVE and seen.snapshot is not None


def test_a_run_is_shown_as_it_was_decided(settings: Settings) -> None:
    past, other = rich(RUN, PARTITIONS), rich(OTHER, PARTITIONS)
    with Reader(settings, RUN) as early:
        assert early.seen().snapshot is None
        decide(settings, past)
        decide(settings, other)
        with Reader(settings, RUN) as late:
            for reader in (early, late):
                seen = until(
                    reader, lambda seen: is_live(seen) and seen.minutes.total("decided") == snapshot(past.run).sequence
                )
                assert seen.snapshot == snapshot(past.run)
                assert set(seen.minutes.refusals) == {
                    (one.record_type, one.reason, one.count) for one in snapshot(past.run).refusals
                }


def test_a_snapshot_far_back_is_found_and_a_lease_is_read_from_the_log(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = History(RUN, topic_partitions=PARTITIONS).opened(lease_ms=60_000)
    past.learner()
    past.ready("t0")
    past.reserve("u0", "t0")
    decide(settings, past)
    decide(settings, History(OTHER, topic_partitions=PARTITIONS).opened())
    monkeypatch.setattr(reading, "FEW_SNAPSHOTS", 1)
    monkeypatch.setattr(reading, "MOST_DECISIONS", 1)
    now_ms = time.time() * 1_000
    with Reader(settings, RUN) as reader:
        seen = until(reader, lambda seen: is_live(seen) and bool(seen.leases))
    assert seen.snapshot == snapshot(past.run)
    assert seen.minutes.total("decided") == 0
    [(update, ends_ms)] = seen.leases
    assert update == "u0"
    assert abs(ends_ms - now_ms - 60_000) < 30_000


def test_it_leaves_nothing_in_the_cluster(settings: Settings) -> None:
    decide(settings, rich(RUN, PARTITIONS))
    before = everything(settings)
    with Reader(settings, RUN) as reader:
        until(reader, is_live)
    assert everything(settings) == before


def everything(settings: Settings) -> object:
    """Where all topics end, and the groups there are."""
    consumer = Consumer({"bootstrap.servers": settings.bootstrap_servers, "group.id": "test-ends"})
    ends = {
        (topic, partition): consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        for topic, found in consumer.list_topics(timeout=10).topics.items()
        for partition in found.partitions
        if topic.startswith(settings.topic_prefix)
    }
    consumer.close()
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    groups = {one.group_id for one in admin.list_consumer_groups().result().valid}
    return ends, "rollbook-reader" in groups, f"{settings.topic_prefix}history" in groups


def test_topics_that_are_made_anew_are_read_anew(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        own = Settings(broker.bootstrap_servers)
        create_topics(own, PARTITIONS)
        decide(own, rich(RUN, PARTITIONS))
        with Reader(own, RUN) as reader:
            until(reader, is_live)
            admin = AdminClient({"bootstrap.servers": own.bootstrap_servers})
            names = [own.topic(topic) for topic in Topic]
            for future in admin.delete_topics(names).values():
                future.result()
            until(reader, lambda seen: seen.reading is Reading.CUT_OFF)
            create_topics(own, PARTITIONS)
            small = History(RUN, topic_partitions=PARTITIONS).opened()
            decide(own, small)
            seen = until(reader, lambda seen: is_live(seen) and seen.snapshot == snapshot(small.run))
            assert seen.minutes.total("decided") == snapshot(small.run).sequence


def test_a_snapshot_of_a_later_schema_is_said() -> None:
    tape = Tape(RUN)
    tape.freshness(0, 5, RUN.encode(), encode(snapshot(lived().run)))
    tape.freshness(1, 6, RUN.encode(), b"\xc3\x01" + bytes(8) + b"later")
    assert tape.snapshot == snapshot(lived().run)
    assert tape.snapshot_ms == 5
    assert tape.strange.startswith("freshness at offset 1: ")
