"""A partition under way from one process to another has an owner again, whoever dies meanwhile: on the real broker."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.topics import create_topics
from rollbook.processors.host import loop
from rollbook.processors.host.clients import group_consumer, transactional_producer
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.errors import Action, Fenced, action_for
from rollbook.processors.host.kafka import Cluster
from rollbook.processors.host.loop import Host
from rollbook.processors.host.transaction import LONG_MS, Transactions
from rollbook.processors.host.watch import Event
from rollbook.processors.ledger.keys import position_key
from rollbook.schemas.codec import encode
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.ledger import Position
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import SESSION_TIMEOUT_MS, host_in_thread, send
from rollbook.tests.processors.test_host import _ack, _await, _configured, _decided

RUNS = {partition_of(f"run-{at}", PARTITIONS): f"run-{at}" for at in range(99)}
"""A run in each partition."""


@contextmanager
def dying_in_a_handover(settings: Settings, name: str) -> Iterator[threading.Event]:
    """A member that owns all partitions and hangs when it is to give one back; the event says that it does."""
    consumer = group_consumer(settings, f"{settings.topic_prefix}{name}", SESSION_TIMEOUT_MS)
    owns, hangs, over = threading.Event(), threading.Event(), threading.Event()

    def assigned(_: Any, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
        if len(partitions) == PARTITIONS:
            owns.set()

    def revoked(_: Any, partitions: list[TopicPartition]) -> None:
        hangs.set()
        over.wait()
        consumer.incremental_unassign(partitions)

    def work() -> None:
        while not over.is_set():
            consumer.poll(0.05)

    consumer.subscribe([settings.topic(Topic.LIFECYCLE)], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    thread = threading.Thread(target=work, name="dying")
    thread.start()
    try:
        assert owns.wait(30)
        yield hangs
    finally:
        over.set()
        thread.join(30)
        consumer.close()


def test_a_process_that_comes_back_in_a_handover_leaves_no_partition_without_owner(settings: Settings) -> None:
    with dying_in_a_handover(settings, "p0") as hangs, host_in_thread(settings, "p1"):
        assert hangs.wait(30)
        with host_in_thread(settings, "p0"):
            send(settings, [(partition, run_id.encode(), _configured(run_id)) for partition, run_id in RUNS.items()])
            _await(lambda: _decided(settings) == len(RUNS), seconds=20)
    lifecycle = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.LIFECYCLE))
    assert len(lifecycle) == len(RUNS)


def test_a_long_transaction_of_a_dead_newcomer_is_ended_by_who_takes_over(settings: Settings) -> None:
    """Nothing committed names it: only its own open records do."""
    dead = transactional_producer(settings, f"{settings.topic_prefix}dead", LONG_MS)
    dead.begin_transaction()
    position = encode(Position(next_offset=1, transactional_id=f"{settings.topic_prefix}dead"))
    for partition in range(PARTITIONS):
        place = (settings.topic(Topic.LEDGER), position, position_key(partition), partition)
        dead.produce(*place, headers=[("by", f"{settings.topic_prefix}dead")])
    assert dead.flush(30) == 0
    with host_in_thread(settings, "p1"):
        send(settings, [(partition, run_id.encode(), _configured(run_id)) for partition, run_id in RUNS.items()])
        _await(lambda: _decided(settings) == len(RUNS), seconds=20)
    del dead  # it lived until here, as a zombie does


class Joining:
    """A consumer that counts how often it joins."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.lost = 0
        self.joined: list[int] = []
        """At each join how many memberships had been lost."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def subscribe(self, topics: list[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.joined.append(self.lost)

        def losing(consumer: Any, partitions: list[TopicPartition]) -> None:
            self.lost += 1
            on_lost(consumer, partitions)

        self._consumer.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=losing)


class CountedJoins(Cluster):
    """Makes such a consumer."""

    counted: Joining

    def consumer(self, name: str, session_timeout_ms: int) -> Any:
        self.counted = Joining(super().consumer(name, session_timeout_ms))
        return self.counted


def test_a_membership_that_was_lost_is_come_back_to_by_two_joins(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        own = Settings(broker.bootstrap_servers)
        create_topics(own, PARTITIONS)
        kafka, stop = CountedJoins(own), threading.Event()
        thread = threading.Thread(target=Host(own, "p0", SESSION_TIMEOUT_MS, kafka=kafka).run, args=(stop,))
        thread.start()
        try:
            send(own, [(partition, run_id.encode(), _configured(run_id)) for partition, run_id in RUNS.items()])
            _await(lambda: _decided(own) == len(RUNS))
            assert kafka.counted.joined == [0, 0]
            broker.stop()
            _await(lambda: kafka.counted.lost > 0)
            broker.start()
            _await(lambda: kafka.counted.joined.count(kafka.counted.lost) == 2)
            send(own, [(partition, run_id.encode(), _ack(run_id, 1)) for partition, run_id in RUNS.items()])
            _await(lambda: _decided(own) == 2 * len(RUNS))
        finally:
            stop.set()
            thread.join(60)


@contextmanager
def hearing_late(tmp_path: Path) -> Iterator[tuple[Settings, threading.Event]]:
    """A host that decided something, and hears of an outage longer than its session only when the event is set."""
    busy, over = threading.Event(), threading.Event()

    def look_on(_: Event) -> None:
        if busy.is_set():
            over.wait(60)

    with EmbeddedBroker(tmp_path / "broker") as broker:
        own = Settings(broker.bootstrap_servers)
        create_topics(own, PARTITIONS)
        with host_in_thread(own, watches=(look_on,)):
            send(own, [(partition, run_id.encode(), _configured(run_id)) for partition, run_id in RUNS.items()])
            _await(lambda: _decided(own) == len(RUNS))
            busy.set()
            broker.stop()
            time.sleep(2 * SESSION_TIMEOUT_MS / 1_000)  # that the session is over is told to nobody but the host
            broker.start()
            send(own, [(partition, run_id.encode(), _ack(run_id, 1)) for partition, run_id in RUNS.items()])
            time.sleep(2 * SESSION_TIMEOUT_MS / 1_000)  # nor that a heartbeat was sent
            try:
                yield own, over
            finally:
                over.set()


def test_a_process_that_hears_late_of_an_outage_and_has_no_rival_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with hearing_late(tmp_path) as (own, over):
        over.set()
        _await(lambda: _decided(own) == 2 * len(RUNS))
    assert "joining as a new member" in caplog.text


def test_a_process_that_hears_late_of_an_outage_leaves_its_name_to_a_newer_one(tmp_path: Path) -> None:
    others = {*threading.enumerate()}  # a host of that name may stand for other tests

    def meanwhile() -> None:
        with hearing_late(tmp_path) as (own, over), host_in_thread(own):
            _await(lambda: _decided(own) == 2 * len(RUNS))
            over.set()
            _await(lambda: sum(one.name == "host-p0" for one in {*threading.enumerate()} - others) == 1)

    with pytest.raises(Fenced):
        meanwhile()


def test_a_refused_record_tells_of_what_its_producer_died(settings: Settings) -> None:
    name = f"{settings.topic_prefix}p0"
    older = Transactions(Cluster(settings), SystemClock(), name)
    older.begin()
    newer = transactional_producer(settings, name)

    def produce() -> None:
        while True:
            older.produce(settings.topic(Topic.DECISIONS), 0, b"key", b"value")

    with pytest.raises(KafkaException) as died:
        produce()
    assert action_for(died.value.args[0]) is Action.STOP_FENCED
    del newer  # it lived until here


class Overtaken:
    """A consumer that gives its first assignment back only when somebody else's join is under way."""

    def __init__(self, consumer: Any, somebody_joins: Callable[[], None]) -> None:
        self._consumer = consumer
        self._somebody_joins = somebody_joins
        self._introduced = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def unsubscribe(self) -> None:
        if self._consumer.assignment() and not self._introduced:
            self._introduced = True
            self._somebody_joins()
        self._consumer.unsubscribe()


class FirstOvertaken(Cluster):
    """Makes such consumers."""

    def __init__(self, settings: Settings, somebody_joins: Callable[[], None]) -> None:
        super().__init__(settings)
        self._somebody_joins = somebody_joins

    def consumer(self, name: str, session_timeout_ms: int) -> Any:
        return Overtaken(super().consumer(name, session_timeout_ms), self._somebody_joins)


def test_what_the_first_join_was_given_is_not_kept_when_another_process_joins_meanwhile(settings: Settings) -> None:
    """librdkafka puts an unsubscription off while a rebalance is under way, and forgets it with the next subscription:
    the partition had an owner then that never opened it."""
    second = CountedJoins(settings)

    def second_joins() -> None:
        newcomer.start()
        _await(lambda: hasattr(second, "counted") and len(second.counted.joined) == 2)

    first, stop = FirstOvertaken(settings, second_joins), threading.Event()
    hosts = [Host(settings, name, SESSION_TIMEOUT_MS, kafka=kafka) for name, kafka in (("p0", first), ("p1", second))]
    oldest, newcomer = (threading.Thread(target=host.run, args=(stop,)) for host in hosts)
    oldest.start()
    try:
        send(settings, [(partition, run_id.encode(), _configured(run_id)) for partition, run_id in RUNS.items()])
        _await(lambda: _decided(settings) == len(RUNS), seconds=20)
    finally:
        stop.set()
        for thread in (one for one in (oldest, newcomer) if one.ident is not None):
            thread.join(60)


class NeverClosed:
    """A consumer that librdkafka does not let go."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def close(self) -> None:
        time.sleep(60)


class Holding(Cluster):
    """Makes such consumers."""

    def consumer(self, name: str, session_timeout_ms: int) -> Any:
        return NeverClosed(super().consumer(name, session_timeout_ms))


def test_a_host_ends_though_its_consumer_does_not_close(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "CLOSE_S", 0.2)
    stop = threading.Event()
    stop.set()
    began = time.monotonic()
    Host(settings, "p0", SESSION_TIMEOUT_MS, kafka=Holding(settings)).run(stop)
    assert time.monotonic() - began < 30
    assert "the consumer did not close" in caplog.text
