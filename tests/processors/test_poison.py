"""Poison on the real broker: any bytes become one decision each and the partition goes on, up to a limit."""

import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain

import pytest
from confluent_kafka import Producer

from rollbook.infra.settings import LIFECYCLE_MAX_BYTES, Settings, Topic
from rollbook.processors.host import watch
from rollbook.processors.host.errors import HostStopped
from rollbook.processors.host.loop import Host
from rollbook.processors.host.poison import NO_LIMITS, Poison, PoisonLimits
from rollbook.processors.ledger.fold import Folded, Ledger, SourceRecord
from rollbook.schemas.partition import partition_of
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.nightly import often
from rollbook.tests.processors import poisoned
from rollbook.tests.processors.hosting import SESSION_TIMEOUT_MS
from rollbook.tests.processors.test_host import _ack, _await, _configured

RUN = "run-a"
PLACE = partition_of(RUN, PARTITIONS), RUN.encode()


def produce(settings: Settings, sent: Iterable[tuple[int | None, bytes | None, bytes | None]]) -> None:
    """As a client of anybody's: without a partition its own partitioner chooses one."""
    producer = Producer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "enable.idempotence": True,  # or a retry could change their order
            "message.max.bytes": LIFECYCLE_MAX_BYTES * 2,
        }
    )
    topic = settings.topic(Topic.LIFECYCLE)
    for partition, key, value in sent:
        while True:
            try:
                producer.produce(topic, value, key, -1 if partition is None else partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


@contextmanager
def running(host: Host) -> Iterator[None]:
    """A host that works as long as the block lasts. Of what it died is said also where the block waited in vain."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(host.run, stop)
        try:
            yield
        except BaseException as error:
            if working.done():
                error.add_note(f"meanwhile a host died: {working.exception()!r}")
            raise
        finally:
            stop.set()
        working.result(60)


def read(settings: Settings, topic: Topic) -> list[recount.Record]:
    return recount.read_topic(settings.bootstrap_servers, settings.topic(topic))


def test_whatever_lies_on_the_topic_becomes_one_decision_and_the_partition_goes_on(settings: Settings) -> None:
    poison = list(
        chain(
            poisoned.prefixes(RUN, PARTITIONS),
            poisoned.bytes_of_all_kinds(RUN, PARTITIONS, 600, seed=5),
            poisoned.misplaced(RUN, PARTITIONS),
        )
    )
    assert len(poison) > 3_000
    sent: list[tuple[int, bytes | None, bytes | None, str]] = [(*PLACE, _configured(RUN), "accepted")]
    for number, one in enumerate(poison):
        sent.append((one.partition, one.key, one.value, one.outcome))
        if number % 10 == 0:
            sent.append((*PLACE, _ack(RUN, number + 1), "accepted"))
    produce(settings, (one[:3] for one in sent))
    host = Host(settings, "p0", SESSION_TIMEOUT_MS, limits=NO_LIMITS)
    with running(host):
        _await(lambda: host.decided == len(sent), seconds=120)
    lifecycle, decisions = read(settings, Topic.LIFECYCLE), read(settings, Topic.DECISIONS)
    codec = recount.Codec()
    counts = recount.check_decisions(lifecycle, decisions, codec)
    assert counts.keys() == {"accepted", "undecodable", "invalid"}
    assert counts["accepted"] == sum(outcome == "accepted" for *_, outcome in sent)
    bodies = [codec.decode(record.value or b"")[1] for record in decisions]
    in_order = sorted(sent, key=lambda one: one[0])
    for (partition, _, value, outcome), body, source in zip(in_order, bodies, lifecycle, strict=True):
        assert (source.partition, source.value) == (partition, value)
        assert body["outcome"] in outcome.split(" or ")
    letters = [codec.decode(record.value or b"")[1] for record in read(settings, Topic.DEAD_LETTERS)]
    undecodable = {
        (source.partition, source.offset): source
        for source, body in zip(lifecycle, bodies, strict=True)
        if body["outcome"] == "undecodable"
    }
    assert sorted((letter["partition"], letter["offset"]) for letter in letters) == sorted(undecodable)
    for letter in letters:
        value = undecodable[letter["partition"], letter["offset"]].value or b""
        assert (letter["size"], letter["sha256"]) == (len(value), hashlib.sha256(value).hexdigest())


def test_another_clients_partitioner_puts_records_where_their_runs_do_not_lie(settings: Settings) -> None:
    runs = [f"run-{at}" for at in range(200)]
    produce(settings, ((None, run_id.encode(), _configured(run_id)) for run_id in runs))
    host = Host(settings, "p0", SESSION_TIMEOUT_MS)
    with running(host):
        _await(lambda: host.decided == len(runs))
    lifecycle, decisions = read(settings, Topic.LIFECYCLE), read(settings, Topic.DECISIONS)
    codec = recount.Codec()
    counts = recount.check_decisions(lifecycle, decisions, codec)
    wrong = {
        record.key.decode() for record in lifecycle if partition_of(record.key.decode(), PARTITIONS) != record.partition
    }
    assert counts == {"accepted": len(runs) - len(wrong), "invalid": len(wrong)}
    assert 50 < len(wrong) < 150  # two rules that know nothing of each other
    bodies = [codec.decode(record.value or b"")[1] for record in decisions]
    assert {body["detail"] for body in bodies if body["reason"] == "wrong_partition"} == wrong


def test_a_backlog_of_maximal_records_is_worked_off(settings: Settings) -> None:
    rewards = [poisoned.maximal_rewards(RUN, number) for number in range(1, often(each_time=5, each_night=11))]
    assert all(LIFECYCLE_MAX_BYTES * 0.9 < len(value) <= LIFECYCLE_MAX_BYTES for value in rewards)
    noise = [bytes([number]) * LIFECYCLE_MAX_BYTES for number in range(len(rewards))]
    sent = [_configured(RUN), *chain.from_iterable(zip(rewards, noise, strict=True)), _ack(RUN, 1)]
    produce(settings, ((*PLACE, value) for value in sent))
    seen: list[watch.Event] = []
    host = Host(settings, "p0", SESSION_TIMEOUT_MS, watches=(seen.append,))
    began = time.monotonic()
    with running(host):
        _await(lambda: host.decided == len(sent), seconds=120)
    assert time.monotonic() - began < 120
    assert not [event for event in seen if isinstance(event, watch.Aborted | watch.OutcomeLost)]
    lifecycle, decisions = read(settings, Topic.LIFECYCLE), read(settings, Topic.DECISIONS)
    counts = recount.check_decisions(lifecycle, decisions, recount.Codec())
    assert counts == {"accepted": 2, "pending": len(rewards), "undecodable": len(noise)}


def test_where_nothing_else_comes_the_host_stops_after_committing_and_goes_on_behind_it(settings: Settings) -> None:
    limits = PoisonLimits(consecutive=50)
    good = [(*PLACE, _ack(RUN, number)) for number in range(1, 4)]
    produce(settings, [(*PLACE, _configured(RUN)), *((*PLACE, b"{}") for _ in range(70)), *good])
    host = Host(settings, "p0", SESSION_TIMEOUT_MS, limits=limits)
    topic = settings.topic(Topic.LIFECYCLE)
    with pytest.raises(HostStopped, match=rf"{topic}:{PLACE[0]}: 50 records in a row up to offset 50 are undecodable"):
        host.run(threading.Event())
    assert host.decided > 50
    _await(lambda: len(read(settings, Topic.DECISIONS)) == host.decided)  # a commit is answered before all can see it
    again = Host(settings, "p0", SESSION_TIMEOUT_MS, limits=limits)
    with running(again):
        _await(lambda: len(read(settings, Topic.DECISIONS)) == 74)
    counts = recount.check_decisions(read(settings, Topic.LIFECYCLE), read(settings, Topic.DECISIONS), recount.Codec())
    assert counts == {"accepted": 4, "undecodable": 70}


def decided(pattern: str, partition: int = 0) -> Iterator[Folded]:
    """`x` undecodable, `w` in the wrong place, `.` decided (here: refused, since the run is not configured)."""
    ledger = Ledger(partition, partition + 1)
    values = {"x": (b"r", b"secret"), "w": (b"other", _ack("r", 1)), ".": (b"r", _ack("r", 1))}
    for offset, sign in enumerate(pattern):
        key, value = values[sign]
        yield ledger.fold(SourceRecord(partition, offset, key, value))


@pytest.mark.parametrize(
    ("limits", "pattern", "stops_at"),
    [
        (PoisonLimits(3, 0, 10), "xx.xw.wx", None),
        (PoisonLimits(3, 0, 10), "xx.xxx", 5),
        (PoisonLimits(3, 0, 10), "xwx", 2),
        (PoisonLimits(0, 0, 1), "x" * 5_000, None),
        (PoisonLimits(0, 0.5, 4), "xxx", None),  # no share of a window that is not full
        (PoisonLimits(0, 0.5, 4), "xx..x..x", None),  # a half is not more than a half
        (PoisonLimits(0, 0.5, 4), "x...x.xx", 7),
        (PoisonLimits(0, 1.0, 2), "xxxx", None),
        (PoisonLimits(), "x" * 1_000, 999),
        (PoisonLimits(), "xx." * 700, 1_999),
        (PoisonLimits(), "x.." * 2_000, None),
        (NO_LIMITS, "x" * 5_000, None),
    ],
)
def test_the_limits(limits: PoisonLimits, pattern: str, stops_at: int | None) -> None:
    poison = Poison(limits, "lifecycle")
    if stops_at is None:
        poison.judge(decided(pattern))
    else:
        with pytest.raises(HostStopped, match=f"lifecycle:0: .* up to offset {stops_at} are undecodable or invalid"):
            poison.judge(decided(pattern))


def test_each_partition_is_judged_alone_and_anew_when_it_comes_back() -> None:
    poison = Poison(PoisonLimits(3, 0, 10), "lifecycle")
    poison.judge(decided("xx"))
    poison.judge(decided("xx", partition=1))
    poison.forget(0)
    poison.judge(decided("xx"))
    with pytest.raises(HostStopped, match="lifecycle:1: 3 records in a row"):
        poison.judge(decided("w", partition=1))


@pytest.mark.parametrize(
    ("sign", "why"), [("x", "not in Avro single-object encoding"), ("w", "ActivationAck: wrong_partition")]
)
def test_the_message_says_why_and_shows_no_contents(sign: str, why: str) -> None:
    with pytest.raises(HostStopped) as stopped:
        Poison(PoisonLimits(2, 0, 1), "lifecycle").judge(decided(sign * 2))
    assert why in str(stopped.value)
    assert "rollbook dead-letters --partition 0" in str(stopped.value)
    assert "secret" not in str(stopped.value)


def test_what_a_record_holds_reaches_no_log(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    host = Host(settings, "p0", SESSION_TIMEOUT_MS)
    with caplog.at_level(logging.DEBUG), running(host):
        produce(settings, [(0, b"key-sk-1", b"value-sk-2"), (0, b"sk-3", _ack("run-sk-4", 1))])
        _await(lambda: host.decided == 2)
    assert "restored" in caplog.text
    assert "sk-" not in caplog.text
