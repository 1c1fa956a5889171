"""A record that this version cannot fold stops its partition, and no other: on the real broker."""

import logging
import threading

import pytest
from confluent_kafka import Producer

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.errors import HostStopped
from rollbook.processors.host.health import Health
from rollbook.processors.host.loop import Host
from rollbook.processors.host.transaction import OutcomeUnknown, Transactions
from rollbook.processors.ledger import fold
from rollbook.schemas.partition import partition_of
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import SESSION_TIMEOUT_MS, host_in_thread, send
from rollbook.tests.processors.test_host import _ack, _await, _configured

NAMES = {partition_of(f"run-{at}", PARTITIONS): f"run-{at}" for at in range(99)}
"""A run in each partition."""
OLD, NEW = NAMES[0], NAMES[1]


def record(run_id: str, value: bytes) -> tuple[int, bytes, bytes]:
    return partition_of(run_id, PARTITIONS), run_id.encode(), value


def decided(settings: Settings, run_id: str) -> int:
    decisions = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS))
    return sum(one.key == run_id.encode() for one in decisions)


def test_a_newer_fold_version_stops_its_partition_until_the_host_knows_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with host_in_thread(settings):
        send(settings, [record(OLD, _configured(OLD))])
        _await(lambda: decided(settings, OLD) == 1)
        with caplog.at_level(logging.ERROR, "rollbook.processor"):
            send(settings, [record(NEW, _configured(NEW, FOLD_VERSION + 1)), record(NEW, _ack(NEW, 1))])
            _await(lambda: "the other partitions go on" in caplog.text)
        send(settings, [record(OLD, _ack(OLD, number)) for number in range(1, 50)])
        _await(lambda: decided(settings, OLD) == 50)
        assert decided(settings, NEW) == 0
    assert f"offset 0: NewerFoldVersion: lifecycle partition {partition_of(NEW, PARTITIONS)} offset 0" in caplog.text
    monkeypatch.setattr(fold, "FOLD_VERSION", FOLD_VERSION + 1)
    with host_in_thread(settings):
        _await(lambda: decided(settings, NEW) == 2)
    lifecycle = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.LIFECYCLE))
    decisions = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS))
    recount.check_decisions(lifecycle, decisions, recount.Codec())


def test_a_partition_that_could_not_be_opened_is_tried_again_when_the_host_starts_over(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partition = partition_of(NEW, PARTITIONS)
    write_to_ledger(settings, partition, b"foreign", b"value")
    health = Health(SystemClock())
    with host_in_thread(settings, watches=(health,)):
        send(settings, [record(NEW, _configured(NEW)), record(OLD, _configured(OLD))])
        _await(lambda: decided(settings, OLD) == 1)
        assert "foreign" in caplog.text
        assert health.ready().why.startswith(f"partition {partition} cannot be opened")
        assert decided(settings, NEW) == 0
        write_to_ledger(settings, partition, b"foreign", None)
        lose_one_outcome(monkeypatch)
        send(settings, [record(OLD, _ack(OLD, 1))])
        _await(lambda: decided(settings, NEW) == 1)
        send(settings, [record(OLD, _ack(OLD, 2)), record(NEW, _ack(NEW, 1))])
        _await(lambda: (decided(settings, OLD), decided(settings, NEW)) == (3, 2))
        _await(lambda: health.ready().yes)


def write_to_ledger(settings: Settings, partition: int, key: bytes, value: bytes | None) -> None:
    stranger = Producer({"bootstrap.servers": settings.bootstrap_servers})
    stranger.produce(settings.topic(Topic.LEDGER), value, key, partition)
    assert stranger.flush(20) == 0


def lose_one_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit happens, and nobody hears of it."""
    commit = Transactions.commit

    def lost(self: Transactions) -> None:
        commit(self)
        monkeypatch.setattr(Transactions, "commit", commit)
        raise OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(Transactions, "commit", lost)


def test_a_host_none_of_whose_partitions_can_go_on_stops(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "FOLD_VERSION", 0)
    send(settings, [record(run_id, _configured(run_id)) for run_id in NAMES.values()])
    with pytest.raises(HostStopped, match=r"stopped before .*install a version that can fold it"):
        Host(settings, "p0", SESSION_TIMEOUT_MS).run(threading.Event())
    assert recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS)) == []
