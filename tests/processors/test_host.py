"""The host on a real broker: one decision a record whatever kills it, the fold's own bytes, fences, restores."""

import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package forgets to mark them as exported
    AdminClient,
    NewPartitions,
)

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.topics import create_topics
from rollbook.processors.host import clients, loop
from rollbook.processors.host.clients import group_id
from rollbook.processors.host.errors import Fenced, HostStopped
from rollbook.processors.host.loop import Host
from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.processors.ledger.keys import position_key
from rollbook.schemas.codec import encode, make
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.common import Header, PolicyRef, Source, SourceKind
from rollbook.schemas.records.ledger import Position
from rollbook.schemas.records.policy import ActivationAck, EvidenceKind
from rollbook.schemas.records.run import RunConfigured
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import host_in_thread, send, spawn_host
from rollbook.tests.seen import last_seen

RUNS = ("run-a", "run-b", "run-c")


def _header(run_id: str, number: int) -> Header:
    return Header(
        run_id=run_id,
        event_id=f"{run_id}-{number}",
        occurred_at=0,
        source=Source(kind=SourceKind.COORDINATOR, id="test"),
    )


def _configured(run_id: str, fold_version: int = 1) -> bytes:
    return encode(
        make(
            RunConfigured,
            header=_header(run_id, 0),
            config_version=1,
            fold_version=fold_version,
            partition_count=PARTITIONS,
            enforcement="gate",
            admission={
                "max_lag": 1,
                "lag_unit": "depth",
                "max_mean_abs_log_ratio": 0.2,
                "drift_gate": "required",
            },
            required_workers=(),
            initial_policy={"version": 0, "artifact": {"hash": "h0", "kind": "file"}},
        )
    )


def _ack(run_id: str, number: int) -> bytes:
    return encode(
        make(
            ActivationAck,
            header=_header(run_id, number),
            worker_id=f"w{number % 7}",
            incarnation=1,
            report_seq=number,
            serves=PolicyRef(version=0, artifact_hash="h0"),
            evidence=EvidenceKind.FILE_HASH,
        )
    )


def _history(acks: int, first: int = 1) -> list[tuple[int, bytes, bytes]]:
    """Three runs over the partitions, some poison among them."""
    records = []
    for run_id in RUNS:
        partition, key = partition_of(run_id, PARTITIONS), run_id.encode()
        if first == 1:
            records.append((partition, key, _configured(run_id)))
        records += [(partition, key, _ack(run_id, first + number)) for number in range(acks)]
        records.append((partition, key, b"poison"))
    return records


def _decided(settings: Settings) -> int:
    return len(recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS)))


def _await(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {last_seen(condition)}"
        time.sleep(0.05)


def _check(settings: Settings) -> tuple[list[recount.Record], list[recount.Record]]:
    lifecycle = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.LIFECYCLE))
    decisions = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS))
    recount.check_decisions(lifecycle, decisions, recount.Codec())
    return lifecycle, decisions


def test_the_topic_has_the_bytes_of_a_fold_outside_the_processor(settings: Settings) -> None:
    history = _history(200)
    with host_in_thread(settings):
        send(settings, history)
        _await(lambda: _decided(settings) == len(history))
    lifecycle, decisions = _check(settings)
    ledgers = {partition: Ledger(partition, PARTITIONS) for partition in range(PARTITIONS)}
    folded = [ledgers[r.partition].fold(SourceRecord(r.partition, r.offset, r.key, r.value)).encoded for r in lifecycle]
    assert folded == [record.value for record in decisions]


def test_a_restored_host_goes_on_as_if_it_had_never_stopped(settings: Settings) -> None:
    first, second = _history(100), _history(100, first=101)
    with host_in_thread(settings):
        send(settings, first)
        _await(lambda: _decided(settings) == len(first))
    with host_in_thread(settings):
        send(settings, second)
        _await(lambda: _decided(settings) == len(first) + len(second))
    lifecycle, decisions = _check(settings)
    ledgers = {partition: Ledger(partition, PARTITIONS) for partition in range(PARTITIONS)}
    folded = [ledgers[r.partition].fold(SourceRecord(r.partition, r.offset, r.key, r.value)).encoded for r in lifecycle]
    assert folded == [record.value for record in decisions]


@pytest.mark.parametrize("point", ["produced", "offsets", "committed"])
def test_killed_in_a_transaction_and_restarted_leaves_one_decision_a_record(settings: Settings, point: str) -> None:
    history = _history(400)
    send(settings, history)
    for transaction in (0, 1):
        killed = spawn_host(settings, kill_at=point, kill_after=transaction)
        assert killed.wait(60) == -signal.SIGKILL
        send(settings, _history(100, first=1_001 + 1_000 * transaction))
        history += _history(100, first=1_001 + 1_000 * transaction)
    with host_in_thread(settings):
        _await(lambda: _decided(settings) == len(history))
    _check(settings)


def test_killed_at_any_moment_and_restarted_leaves_one_decision_a_record(settings: Settings) -> None:
    history = _history(1)
    send(settings, history)
    for turn in range(3):
        more = _history(1_000, first=2 + 1_000 * turn)  # or a quick host leaves nothing to decide
        send(settings, more)
        history += more
        before = _decided(settings)
        process = spawn_host(settings)
        _await(lambda before=before: _decided(settings) > before)  # type: ignore[misc]
        process.kill()
        process.wait(30)
    with host_in_thread(settings):
        _await(lambda: _decided(settings) == len(history))
    _check(settings)


def test_sigterm_stops_a_host_cleanly(settings: Settings) -> None:
    history = _history(10)
    send(settings, history)
    process = spawn_host(settings)
    _await(lambda: _decided(settings) == len(history))
    process.terminate()
    assert process.wait(30) == 0


def test_the_newest_process_of_a_name_wins(settings: Settings) -> None:
    with pytest.raises(Fenced, match="newer process"):
        _overtake(settings)
    _check(settings)


def _overtake(settings: Settings) -> None:
    first, second = _history(10), _history(10, first=11)
    send(settings, first)
    with host_in_thread(settings):
        _await(lambda: _decided(settings) == len(first))
        with host_in_thread(settings):
            send(settings, second)
            _await(lambda: _decided(settings) == len(first) + len(second))


@pytest.mark.parametrize("away_s", [0.5, 4.0], ids=["within the session", "longer than the session"])
def test_a_broker_that_comes_back_is_worked_with_again(tmp_path: Path, away_s: float) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        own = Settings(broker.bootstrap_servers)
        create_topics(own, PARTITIONS)
        first, second = _history(5), _history(5, first=6)
        with host_in_thread(own):
            send(own, first)
            _await(lambda: _decided(own) == len(first))
            broker.stop()
            time.sleep(away_s)
            broker.start()
            send(own, second)
            _await(lambda: _decided(own) == len(first) + len(second))
        _check(own)


def test_a_successor_under_another_name_ends_the_open_transaction(settings: Settings) -> None:
    history = _history(400)
    send(settings, history)
    assert spawn_host(settings, "p0", kill_at="committed").wait(60) == -signal.SIGKILL  # its Position names it
    assert spawn_host(settings, "p0", kill_at="offsets").wait(60) == -signal.SIGKILL
    with host_in_thread(settings, "p1"):
        _await(lambda: _decided(settings) == len(history), seconds=20)
    _check(settings)


@pytest.mark.parametrize("point", ["produced", "offsets"])
def test_an_instance_that_dies_in_a_transaction_is_taken_over_within_ten_seconds(
    settings: Settings, point: str
) -> None:
    history = _history(50)
    with host_in_thread(settings, "standing") as standing:
        send(settings, history)
        _await(lambda: standing.decided == len(history))
        dying = spawn_host(settings, "dying", kill_at=point)
        while dying.poll() is None:  # it dies in its first transaction, as soon as it has a partition
            more = _history(20, first=len(history) + 1_000)
            send(settings, more)
            history += more
        killed = time.monotonic()
        assert dying.returncode == -signal.SIGKILL
        _await(lambda: _decided(settings) == len(history), seconds=10 - (time.monotonic() - killed))
    _check(settings)


def test_partitions_that_were_added_to_the_log_are_left_alone_and_told(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = _history(20), _history(20, first=21)
    topic = settings.topic(Topic.LIFECYCLE)
    with host_in_thread(settings):
        send(settings, first)
        _await(lambda: _decided(settings) == len(first))
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result(20)
    with host_in_thread(settings):
        send(settings, second)
        _await(lambda: _decided(settings) == len(first) + len(second))
        _await(lambda: f"{topic}:{PARTITIONS}: the topic was given more than its" in caplog.text)
    _check(settings)


def test_very_many_changes_are_one_long_transaction(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MANY_CHANGES", 5)
    first, second = _history(50), [(*_history(1, first=51)[0],)]
    with host_in_thread(settings) as host:
        send(settings, first)
        _await(lambda: host.decided == len(first))
        send(settings, second)
        _await(lambda: host.decided == len(first) + 1)
    _check(settings)


def test_poison_has_its_dead_letter(settings: Settings) -> None:
    history = _history(1)
    with host_in_thread(settings):
        send(settings, history)
        _await(lambda: _decided(settings) == len(history))
    letters = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DEAD_LETTERS))
    found = [recount.Codec().decode(letter.value or b"")[1] for letter in letters]
    assert len(found) == len(RUNS)
    assert {letter["size"] for letter in found} == {len(b"poison")}
    assert all("C3 01" in letter["error"] for letter in found)


def test_freshness_is_committed_with_the_decisions(settings: Settings) -> None:
    history = _history(3)
    with host_in_thread(settings):
        send(settings, history)
        _await(lambda: _decided(settings) == len(history))
    codec = recount.Codec()
    records = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.FRESHNESS))
    latest = {record.key: codec.decode(record.value or b"")[1] for record in records}
    assert {key.decode() for key in latest} == set(RUNS)
    assert all(snapshot["active_policy"]["version"] == 0 for snapshot in latest.values())


@pytest.mark.parametrize("offset", [0, 10_000])
def test_group_offsets_that_are_not_the_ledgers_are_mended_where_the_decisions_agree_with_it(
    settings: Settings, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = _history(20), _history(20, first=21)
    with host_in_thread(settings):
        send(settings, first)
        _await(lambda: _decided(settings) == len(first))
    _reset_group(settings, offset)
    with host_in_thread(settings):
        send(settings, second)
        _await(lambda: _decided(settings) == len(first) + len(second))
    assert f"the group's offset is {offset}, the ledger stands at" in caplog.text
    _check(settings)


def test_a_ledger_that_the_decisions_contradict_stops_its_partition(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    history = _history(20)
    with host_in_thread(settings):
        send(settings, history)
        _await(lambda: _decided(settings) == len(history))
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    for partition in range(PARTITIONS):
        position = encode(Position(next_offset=0, transactional_id="somebody"))
        producer.produce(settings.topic(Topic.LEDGER), position, position_key(partition), partition)
    assert producer.flush(20) == 0
    _reset_group(settings, 0)  # as if nothing had been decided: only the decisions know better
    with host_in_thread(settings):  # one partition has no decisions: there 0 is right
        _await(lambda: caplog.text.count("the other partitions go on") == 1)
    assert re.search(r"the ledger stands at 0, and decisions go to .*changed by hand", caplog.text)
    assert _decided(settings) == len(history)


def test_a_lifecycle_topic_that_was_made_anew_is_not_the_log_that_was_decided(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with host_in_thread(settings):
        send(settings, _history(20))
        _await(lambda: _decided(settings) == len(_history(20)))
    admin, topic = AdminClient({"bootstrap.servers": settings.bootstrap_servers}), settings.topic(Topic.LIFECYCLE)
    admin.delete_topics([topic])[topic].result(20)
    _await(lambda: topic not in admin.list_topics(timeout=10).topics)
    create_topics(settings, PARTITIONS)
    send(settings, _history(30, first=2))  # longer than the old one
    with host_in_thread(settings):
        _await(lambda: "is not the one that was decided: the topic was made anew" in caplog.text)
    assert _decided(settings) == len(_history(20))


def _reset_group(settings: Settings, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": settings.bootstrap_servers, "group.id": group_id(settings)})
    places = [TopicPartition(settings.topic(Topic.LIFECYCLE), p, offset) for p in range(PARTITIONS)]

    def reset() -> bool:
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except Exception:  # the static member is still in the group until its session ends
            return False
        return True

    _await(reset)
    consumer.close()


def test_a_broker_that_is_down_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "INIT_TIMEOUT_S", 1.0)
    with pytest.raises(HostStopped, match="check that the broker runs"):
        Host(Settings("127.0.0.1:1"), "p0").run(threading.Event())
