"""A broker that starts again may lose the markers of a transaction: what hangs is ended, and nothing of it is seen."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.topics import create_topics
from rollbook.processors.host import transaction
from rollbook.processors.host.clients import group_consumer
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.kafka import Cluster
from rollbook.processors.host.loop import Host
from rollbook.processors.host.reading import ends_of
from rollbook.processors.host.takeover import WRITTEN
from rollbook.processors.host.transaction import Transactions
from rollbook.processors.ledger.keys import position_key
from rollbook.schemas.codec import encode
from rollbook.schemas.records.ledger import Position
from rollbook.tests import recount
from rollbook.tests.processors.history import History
from rollbook.tests.processors.hosting import SESSION_TIMEOUT_MS, host_in_thread, send

MOST_RESTARTS = 5


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, Settings]]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        settings = Settings(broker.bootstrap_servers)
        create_topics(settings, 1)
        yield broker, settings


def test_what_hangs_after_a_restart_of_the_broker_is_ended(
    own: tuple[EmbeddedBroker, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, settings = own
    log = History().opened().log
    records = [(0, record.key or b"", record.value or b"") for record in log.records]
    with host_in_thread(settings, "another") as host:
        send(settings, records)
        _await_decided(host, len(records))
    monkeypatch.setattr(transaction, "TRANSACTION_TIMEOUT_MS", 1_000)  # over before the restarted node leads again
    for _ in range(MOST_RESTARTS):
        _die_in_a_transaction(settings, broker)
        if _hangs(settings):
            break
    else:
        pytest.fail(f"no marker was lost in {MOST_RESTARTS} restarts: is it mended in this Kafka?")
    monkeypatch.undo()
    more = [(0, b"~", b"poison")] * 3
    with host_in_thread(settings, "another") as host:
        send(settings, more)
        _await_decided(host, len(more))
    lifecycle, decisions = (
        recount.read_topic(settings.bootstrap_servers, settings.topic(topic))
        for topic in (Topic.LIFECYCLE, Topic.DECISIONS)
    )
    recount.check_decisions(lifecycle, decisions, recount.Codec())
    assert len(decisions) == len(records) + len(more)
    assert not _hangs(settings)
    asking = group_consumer(settings, f"{settings.topic_prefix}asking", SESSION_TIMEOUT_MS)
    (told,) = asking.committed([TopicPartition(settings.topic(Topic.LIFECYCLE), 0)], timeout=10)
    asking.close()
    assert told.offset == len(records) + len(more)


def _die_in_a_transaction(settings: Settings, broker: EmbeddedBroker) -> None:
    """All that a transaction writes, and its offsets, but no end; the broker is killed, and starts again."""
    name = f"{settings.topic_prefix}dead"
    member = group_consumer(settings, name, SESSION_TIMEOUT_MS)
    _join(member, settings)
    dying = Transactions(Cluster(settings), SystemClock(), name)
    dying.begin()
    dying.produce(
        settings.topic(Topic.LEDGER), 0, position_key(0), encode(Position(next_offset=99, transactional_id=name))
    )
    for topic in (Topic.DECISIONS, Topic.FRESHNESS):
        dying.produce(settings.topic(topic), 0, b"r", b"never to be seen")
    dying._producer.flush(10)
    dying.send_offsets([TopicPartition(settings.topic(Topic.LIFECYCLE), 0, 99)], member.consumer_group_metadata())
    broker.kill()
    broker.start()
    member.close()


def _join(member: Consumer, settings: Settings) -> None:
    member.subscribe([settings.topic(Topic.LIFECYCLE)])
    deadline = time.monotonic() + 30
    while not member.assignment():
        assert time.monotonic() < deadline, "not in the group"
        member.poll(0.1)


def _hangs(settings: Settings) -> bool:
    """Whether something is open although the transaction's time is over."""
    time.sleep(2)
    places = [(settings.topic(topic), 0) for topic in WRITTEN]
    return any(stable < end for stable, end in ends_of(Cluster(settings), SystemClock(), places))


def _await_decided(host: Host, count: int) -> None:
    deadline = time.monotonic() + 40
    while host.decided < count:
        assert time.monotonic() < deadline, f"{host.decided} of {count} decided"
        time.sleep(0.02)
