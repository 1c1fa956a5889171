"""What `rollbook watch` reads, on the real broker, and how it is counted."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.topics import create_topics
from rollbook.infra.watching import reader as reading
from rollbook.infra.watching.charts import BLOCKS
from rollbook.infra.watching.frame import frame
from rollbook.infra.watching.leases import ends
from rollbook.infra.watching.plain import as_json, line
from rollbook.infra.watching.reader import Reader
from rollbook.infra.watching.seen import Minutes, Second, Seen
from rollbook.infra.watching.tape import SECONDS, Tape
from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.dashboard.fold.view import View
from rollbook.processors.freshness import snapshot
from rollbook.schemas.codec import encode
from rollbook.schemas.partition import partition_of
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.infra.rich_run import decide, rich
from rollbook.tests.infra.test_freshness_page import lived
from rollbook.tests.processors.dashboard.stored import BEGAN_MS, Message, decisions
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof import walks
from rollbook.tests.processors.test_properties import quick

RUN = "run-a"
OTHER = next(name for name in map("other-{}".format, range(99)) if partition_of(name, 2) == partition_of(RUN, 2))
"""A run in the same partition."""


class Told:
    """A view of the log that a test is told of, as the thread that reads makes it."""

    def __init__(self) -> None:
        self.tape, self.view = Tape(RUN), View()

    def decisions(self, *messages: Message) -> "Told":
        self.view.take_decisions(self.tape.decisions(messages))
        return self

    def minutes(self, now_ms: int) -> Minutes:
        return self.tape.minutes(self.view, self.tape.newest(now_ms))


def test_what_is_counted_is_what_the_snapshot_counts() -> None:
    history = lived()
    told = Told().decisions(*decisions(history.log, apart_ms=5_000))
    minutes = told.minutes(0)
    last = snapshot(history.run)
    assert minutes.total("decided") == last.sequence
    assert set(minutes.refusals) == refusals(history)
    assert (minutes.total("admitted"), minutes.total("turned_away")) == (2, 1)
    assert told.tape.times_of(told.view, (20, 99)) == {20: BEGAN_MS + 100_000}


def test_rows_that_are_admitted_again_count_once_and_only_drift_turns_away() -> None:
    history = History(RUN).opened()
    history.learner()
    history.ready("t0", "t1", "t2", "t3")
    history.reserve("u0", "t0", "t1", "t2")
    history.admit("u0", {"t0": 0.0, "t1": 0.0})
    history.admit("u0", {"t0": 0.0, "t1": 0.0, "t2": 9.0, "t3": 0.0}, part=1)
    minutes = Told().decisions(*decisions(history.log)).minutes(0)
    drift = snapshot(history.run).drift
    assert (minutes.total("admitted"), minutes.total("turned_away")) == (2, 1)
    assert (sum(one.admitted for one in drift), sum(one.refused for one in drift)) == (2, 1)
    assert dict(one[1:] for one in minutes.refusals) == {"policy_drift": 1, "not_reserved": 1}


def test_other_runs_of_the_partition_cost_nothing_and_count_nothing() -> None:
    log = Log()
    History(OTHER, log=log).opened()
    told = Told().decisions(*decisions(log))
    assert (told.minutes(0).total("decided"), told.view.records) == (0, 0)
    assert None not in told.minutes(0).seconds[-1:], "it was read, and there was nothing"


def test_what_is_read_twice_is_counted_once_and_what_is_no_decision_is_said() -> None:
    history = lived()
    messages = decisions(history.log)
    told = Told().decisions(*messages).decisions(*messages)
    assert told.minutes(0).total("decided") == len(messages)
    assert told.tape.strange(told.view) == ""
    told.tape.snapshots([Message(7, BEGAN_MS, RUN, b"poison")])
    assert told.tape.strange(told.view).startswith("freshness at offset 7: ")
    told.decisions(Message(999, BEGAN_MS, RUN, b"poison"))
    assert told.tape.strange(told.view) == "1 decision cannot be read"


def test_a_tape_does_not_grow_and_what_lies_before_it_is_not_known() -> None:
    [first, *_] = decisions(History(RUN).opened().log)
    told = Told()
    for offset in range(0, 20_000, 10):
        told.decisions(*(replace(first, at=at, time_ms=at * 1_000) for at in range(offset, offset + 10)))
    assert told.minutes(20_000_000 - 1).total("decided") == SECONDS
    late = Told().decisions(replace(first, time_ms=7_500))
    assert [one is not None for one in late.minutes(9_000).seconds[-4:]] == [False, True, True, True]


def test_a_clock_that_was_ahead_for_a_while_hides_nothing() -> None:
    """Neither what was before nor what comes after, once the broker's clock is right again."""
    [first, *_] = decisions(History(RUN).opened().log)
    told = Told()
    for at in range(50):
        told.decisions(replace(first, at=at, time_ms=BEGAN_MS + at * 1_000))
    told.decisions(replace(first, at=50, time_ms=BEGAN_MS + 86_400_000))
    for at in range(51, 101):
        told.decisions(replace(first, at=at, time_ms=BEGAN_MS + at * 1_000))
    minutes = told.minutes(BEGAN_MS + 100_000)
    assert minutes.total("decided") == 100
    assert minutes.seconds[-2] == Second(decided=1)


@quick
@given(st.integers(0, 49), st.data())
def test_whatever_lies_there_a_frame_can_be_made(seed: int, data: st.DataObject) -> None:
    log = Log()
    walks.run(log, walks.deep(seed))
    good = decisions(log)
    snapshots = [Message(0, BEGAN_MS, RUN, encode(snapshot(lived().run)))]
    told = Told()
    times = st.sampled_from((-1, 0, -(62 * 10**12), 253_402_300_799_999, 2**53)) | st.integers(-1, 2**53)
    for at, one in enumerate(data.draw(st.lists(st.sampled_from(good + snapshots * len(good)), max_size=20))):
        value = bytearray(one.bytes_)
        for _ in range(data.draw(st.integers(0, 4))):
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        spoilt = Message(at, data.draw(times), RUN, bytes(value))
        told.decisions(spoilt)
        told.tape.snapshots([spoilt])
        shown = seen_of(told, data.draw(times))
        for width in (30, 100):
            frame(shown, width, 40, BLOCKS)
        assert line(shown).isprintable()
        json.loads(json.dumps(as_json(shown)), parse_constant=pytest.fail)


def seen_of(told: Told, clock_ms: int) -> Seen:
    now_ms = told.tape.newest(clock_ms)
    last = told.tape.snapshot
    since = told.tape.times_of(told.view, [one.last_activity_offset for one in last.updates] if last else ())
    return Seen(
        run_id=RUN,
        servers="",
        prefix="",
        reading=Reading.LIVE,
        fault=told.tape.strange(told.view),
        now_ms=now_ms,
        heard_s=0.0,
        snapshot=last,
        snapshot_ms=told.tape.snapshot_ms,
        minutes=told.minutes(now_ms),
        leases=() if last is None else ends(last.updates, since),
    )


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
                assert set(seen.minutes.refusals) == refusals(past)


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


def refusals(history: History) -> set[tuple[str, str, int]]:
    return {(one.record_type, one.reason, one.count) for one in snapshot(history.run).refusals}


def put(settings: Settings, history: History, at_ms: int) -> None:
    """What a host would have written of these records, all at once."""
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 0})
    for folded in history.log.folded:
        producer.produce(
            settings.topic(Topic.DECISIONS), folded.encoded, RUN.encode(), history.log.partition, timestamp=at_ms
        )
    producer.produce(
        settings.topic(Topic.FRESHNESS), encode(snapshot(history.run)), RUN.encode(), history.log.partition
    )
    assert producer.flush(10) == 0


def leased() -> History:
    history = History(RUN, topic_partitions=PARTITIONS).opened(lease_ms=60_000)
    history.learner()
    history.ready("t0")
    history.reserve("u0", "t0")
    return history


@pytest.mark.parametrize("is_longer", [False, True])
def test_topics_that_are_made_anew_are_read_anew(tmp_path: Path, is_longer: bool) -> None:
    """Also where the new log has got longer than the old one before anybody looks."""
    small, large = leased(), leased()
    small.discarded("nothing such")
    for name in ("t1", "t2", "t3"):
        large.ready(name)
    first, second = (small, large) if is_longer else (large, small)
    now_ms = int(time.time() * 1_000)
    with EmbeddedBroker(tmp_path / "broker") as broker:
        own = Settings(broker.bootstrap_servers)
        create_topics(own, PARTITIONS)
        put(own, first, now_ms - 60_000)
        with Reader(own, RUN) as reader:
            seen = until(reader, lambda seen: is_live(seen) and bool(seen.leases))
            assert (seen.snapshot, seen.leases) == (snapshot(first.run), (("u0", now_ms),))
            admin = AdminClient({"bootstrap.servers": own.bootstrap_servers})
            for future in admin.delete_topics([own.topic(topic) for topic in Topic]).values():
                future.result()
            create_topics(own, PARTITIONS)
            put(own, second, now_ms - 30_000)
            last = snapshot(second.run)
            seen = until(
                reader,
                lambda seen: (
                    seen.snapshot == last and bool(seen.leases) and seen.minutes.total("decided") == last.sequence
                ),
            )
            assert (seen.leases, set(seen.minutes.refusals)) == ((("u0", now_ms + 30_000),), refusals(second))


def test_a_snapshot_of_a_later_schema_is_said() -> None:
    tape = Tape(RUN)
    tape.snapshots([Message(0, 5, RUN, encode(snapshot(lived().run)))])
    tape.snapshots([Message(1, 6, RUN, b"\xc3\x01" + bytes(8) + b"later")])
    assert tape.snapshot == snapshot(lived().run)
    assert tape.snapshot_ms == 5
    assert tape.strange(View()).startswith("freshness at offset 1: ")


def test_a_snapshot_counts_for_the_run_that_it_names() -> None:
    tape = Tape(RUN)
    tape.snapshots([Message(0, 5, RUN, encode(snapshot(History(OTHER).opened().run)))])
    assert tape.snapshot is None
