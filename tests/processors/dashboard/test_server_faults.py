"""What the dashboard shows is what is committed, whatever happens to broker, topics, processors and itself meanwhile.

Each count is compared with `tests/recount.py`, which reads the topics by itself and imports nothing of rollbook.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.ports import free_port
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.topics import create_topics, delete_topics
from rollbook.processors.dashboard import supervisor as supervisor_module
from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.dashboard.reading.progress import IN_TIME, LATE, Progress
from rollbook.processors.dashboard.shared import Shared
from rollbook.processors.dashboard.supervisor import Supervisor
from rollbook.processors.dashboard.web.lookup import WITHIN_S
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.infra.rich_run import decide, rich
from rollbook.tests.processors.dashboard.serving import Served, await_that, dashboard
from rollbook.tests.processors.history import History
from rollbook.tests.processors.hosting import host_in_thread, send


@pytest.fixture
def own() -> Iterator[EmbeddedBroker]:
    """A broker that may be killed."""
    with EmbeddedBroker() as broker:
        yield broker


def counted(settings: Settings) -> dict[str, dict[str, int]]:
    """Decisions by run and outcome, as the topic has them."""
    codec = recount.Codec()
    found: dict[str, Counter[str]] = {}
    for record in recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS)):
        _, decision = codec.decode(record.value or b"")
        found.setdefault(decision["run_id"], Counter())[decision["outcome"]] += 1
    return {run: dict(outcomes) for run, outcomes in found.items()}


def shown(served: Served) -> dict[str, dict[str, int]]:
    """The same, as the dashboard has it."""
    runs = [line["run_id"] for line in served.json("/api/runs")["runs"]]
    totals = {run: served.json(f"/api/runs/{run}")["totals"] for run in runs}
    outcomes = {run: {one["name"]: one["count"] for one in of["outcomes"]} for run, of in totals.items()}
    assert {run: sum(of.values()) for run, of in outcomes.items()} == {run: t["decisions"] for run, t in totals.items()}
    return outcomes


def is_live(status: Any) -> bool:
    return bool(status["reading"] == "live" and status["behind"] == 0)


def produce(producer: Producer, settings: Settings, values: Iterable[bytes], partition: int = 0) -> None:
    for at, value in enumerate(values):
        producer.produce(settings.topic(Topic.DECISIONS), value, b"any", partition)
        if at % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0


def writing(settings: Settings, name: str) -> Producer:
    """One that writes decisions in transactions, as the processor does."""
    producer = Producer(settings.client({"transactional.id": name, "linger.ms": 5, "log_level": 0}))
    producer.init_transactions(30)
    return producer


@contextmanager
def asleep(served: Served) -> Iterator[None]:
    """It sees nothing of what happens meanwhile."""
    assert served.process is not None
    served.process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)  # a fetch that was under way has its answer, which nothing tells
    yield
    served.process.send_signal(signal.SIGCONT)


# The broker


def test_it_starts_before_the_broker_and_before_the_topics() -> None:
    port = free_port()
    settings = Settings(bootstrap_servers=f"127.0.0.1:{port}")
    with dashboard(settings) as served, served.events("?run=run-1") as stream:
        told = stream.until(lambda frame: "rollbook broker start" in frame["status"]["fault"])
        assert (told.frame["status"]["reading"], served.ask("/readyz").status) == ("waiting", 503)
        with EmbeddedBroker(port=port):
            told = stream.until(lambda frame: "rollbook topics create" in frame["status"]["fault"])
            assert told.frame["status"]["reading"] == "waiting"
            create_topics(settings, PARTITIONS)
            assert stream.until(lambda frame: is_live(frame["status"])).frame["runs"]["runs"] == []
            decide(settings, rich("run-1", PARTITIONS))
            stream.until(lambda frame: frame["now"] is not None and frame["now"]["run"]["decisions"] == 41)
            assert shown(served) == counted(settings)
        stream.until(lambda frame: frame["status"]["reading"] == "cut_off")
        assert shown(served)["run-1"], "what was read stays"
        asked = time.monotonic()
        history = served.ask("/api/runs/run-1/trajectories/t0")
        assert history.status == 503
        assert "no Kafka broker answers" in history.json()["problem"]
        assert time.monotonic() - asked < WITHIN_S / 2, "what is known is not waited for"


def test_a_broker_that_is_killed_while_it_is_read_leaves_counts_exact(own: EmbeddedBroker) -> None:
    settings = Settings(bootstrap_servers=own.bootstrap_servers)
    create_topics(settings, PARTITIONS)
    alike = rich("run-1", PARTITIONS).log.decisions
    ghosts = rich("ghost", PARTITIONS).log.decisions
    producer = writing(settings, "by-hand")
    times = 1_000
    for part in range(10):
        producer.begin_transaction()
        produce(producer, settings, (value for _ in range(times // 10) for value in alike), part % PARTITIONS)
        producer.commit_transaction()
        producer.begin_transaction()
        produce(producer, settings, ghosts, part % PARTITIONS)
        producer.abort_transaction()
    with dashboard(settings) as served:
        seen = served.await_status(lambda status: status["records"] > 0)
        own.kill()
        assert served.status()["records"] < times * len(alike), "killed too late"
        assert served.await_status(lambda status: status["reading"] == "cut_off")["records"] >= seen["records"]
        own.start()
        served.await_status(is_live, seconds=60)
        expected = counted(settings)
        assert sum(expected["run-1"].values()) == times * len(alike)
        assert shown(served) == expected
        with dashboard(settings) as again:
            again.await_status(is_live)
            assert shown(again) == expected


def test_it_ends_in_time_while_the_broker_is_away(own: EmbeddedBroker) -> None:
    settings = Settings(bootstrap_servers=own.bootstrap_servers)
    create_topics(settings, PARTITIONS)
    with dashboard(settings) as served, served.events() as stream:
        stream.until(lambda frame: is_live(frame["status"]))
        own.kill()


# Transactions


def test_what_was_aborted_never_shows_and_what_is_open_not_yet(settings: Settings) -> None:
    ghosts, real = rich("ghost", PARTITIONS).log.decisions, rich("run-1", PARTITIONS).log.decisions
    producer = writing(settings, f"{settings.topic_prefix}by-hand")
    with dashboard(settings) as served:
        served.await_status(is_live)
        for partition in range(PARTITIONS):
            producer.begin_transaction()
            produce(producer, settings, ghosts, partition)
            producer.abort_transaction()
        served.await_status(is_live)
        producer.begin_transaction()
        produce(producer, settings, real)
        time.sleep(1.5)  # nothing tells that it goes on not being shown
        assert (shown(served), served.status()["records"]) == ({}, 0)
        producer.commit_transaction()
        served.await_status(lambda status: is_live(status) and status["records"] == len(real))
        assert shown(served) == counted(settings)
        with dashboard(settings) as late:
            late.await_status(lambda status: is_live(status) and status["records"] == len(real))
            assert list(shown(late)) == ["run-1"]


# Processors


def test_processors_come_and_go_while_it_reads(settings: Settings) -> None:
    names = [f"run-{at}" for at in range(6)]
    histories = [rich(name, PARTITIONS) for name in names]
    with dashboard(settings) as served, host_in_thread(settings, "p0"):
        _send(settings, histories[:2])
        served.await_status(lambda status: status["records"] > 0)
        with host_in_thread(settings, "p1"):
            _send(settings, histories[2:4])
            await_that(lambda: len(shown(served)), lambda found: found == 4, 60)
        _send(settings, histories[4:])
        total = sum(len(history.log.records) for history in histories)
        await_that(lambda: sum(sum(of.values()) for of in shown(served).values()), lambda found: found == total, 60)
        assert shown(served) == counted(settings)
        lifecycle, decisions = (
            recount.read_topic(settings.bootstrap_servers, settings.topic(topic))
            for topic in (Topic.LIFECYCLE, Topic.DECISIONS)
        )
        recount.check_decisions(lifecycle, decisions, recount.Codec())


def _send(settings: Settings, histories: list[History]) -> None:
    send(settings, [(one.partition, one.key or b"", one.value or b"") for of in histories for one in of.log.records])


# Topics


def test_topics_that_are_deleted_are_missed_and_read_anew_when_they_are_back(settings: Settings) -> None:
    decide(settings, rich("old", PARTITIONS))
    with dashboard(settings) as served, served.events("?run=new&size=1s") as stream:
        before = stream.until(lambda frame: is_live(frame["status"]))
        delete_topics(settings)
        gone = stream.until(lambda frame: "does not exist" in frame["status"]["fault"])
        assert (gone.frame["status"]["reading"], len(gone.frame["runs"]["runs"])) == ("cut_off", 1)
        create_topics(settings, PARTITIONS + 1)
        decide(settings, rich("new", PARTITIONS + 1))
        after = stream.until(lambda frame: is_live(frame["status"]) and frame["now"] is not None)
        assert after.frame["status"]["instance"] != before.frame["status"]["instance"]
        assert shown(served) == counted(settings)


def test_topics_that_are_made_anew_unseen_are_known_by_their_ids(settings: Settings) -> None:
    """The new one is longer than the old one was: by its offsets it could be the same."""
    old, new = rich("old", PARTITIONS).log.decisions, rich("new", PARTITIONS).log.decisions
    produce(Producer(settings.client({})), settings, old)
    with dashboard(settings) as served:
        served.await_status(lambda status: is_live(status) and status["records"] == len(old))
        with asleep(served):
            delete_topics(settings)
            create_topics(settings, PARTITIONS)
            produce(Producer(settings.client({})), settings, new * 3)
        served.await_status(lambda status: is_live(status) and status["records"] == len(new) * 3)
        assert shown(served) == counted(settings)


def test_records_that_are_gone_before_they_were_read_are_not_counted_by_half(own: EmbeddedBroker) -> None:
    settings = Settings(bootstrap_servers=own.bootstrap_servers)
    create_topics(settings, PARTITIONS)
    values = rich("run-1", PARTITIONS).log.decisions
    admin, producer = AdminClient(settings.client({})), writing(settings, "by-hand")
    producer.begin_transaction()
    produce(producer, settings, values)
    producer.commit_transaction()
    with dashboard(settings) as served:
        first = served.await_status(lambda status: is_live(status) and status["records"] == len(values))
        with asleep(served):
            producer.begin_transaction()
            produce(producer, settings, values * 3)
            producer.commit_transaction()
            place = TopicPartition(settings.topic(Topic.DECISIONS), 0, len(values) * 2)
            admin.delete_records([place])[place].result(30)
        served.await_status(lambda status: is_live(status) and status["instance"] != first["instance"])
        assert shown(served) == counted(settings)


def test_new_partitions_are_read_from_their_beginning(settings: Settings) -> None:
    values = rich("run-1", PARTITIONS).log.decisions
    admin = AdminClient(settings.client({}))
    topic = settings.topic(Topic.DECISIONS)
    with dashboard(settings) as served:
        served.await_status(is_live)
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result()
        producer = Producer(settings.client({}))
        await_that(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions), lambda n: n == 4)
        produce(producer, settings, values, PARTITIONS + 1)
        served.await_status(lambda status: is_live(status) and status["records"] == len(values))
        assert shown(served) == counted(settings)


# Itself


@contextmanager
def supervised(shared: Shared, read: Any) -> Iterator[Supervisor]:
    """A supervisor without its event loop: its thread alone."""
    supervisor = Supervisor(shared, read, time.monotonic)
    thread = threading.Thread(target=supervisor._keep_reading)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor._stop_reading.set()
        thread.join(5)
        assert not thread.is_alive()


def test_a_defect_of_the_reader_is_told_and_reading_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared(Settings())
    calls: list[float] = []

    def read(stop: threading.Event) -> None:
        calls.append(time.monotonic())
        if len(calls) < 4:
            raise ZeroDivisionError("what is in a record")
        stop.wait()

    monkeypatch.setattr(supervisor_module, "FIRST_PAUSE_S", 0.1)
    with supervised(shared, read) as supervisor:
        await_that(lambda: len(calls), lambda count: count == 4, 10)
        assert supervisor.restarts == 3
    gaps = [later - earlier for earlier, later in pairwise(calls)]
    assert gaps[0] < gaps[1] < gaps[2], "each pause is longer than the one before"
    standing = shared.standing
    assert standing.reading is Reading.WAITING
    assert "a defect of rollbook (ZeroDivisionError at" in standing.fault
    assert "what is in a record" not in standing.fault


PLACES = {("d", 0): 10, ("d", 1): 0}


def test_up_to_date_is_who_has_reached_every_end_that_there_was() -> None:
    progress = Progress()
    progress.add(PLACES)
    assert not progress.judge({("d", 0): 1, ("d", 1): 0}, {("d", 0): 9})
    assert progress.judge({("d", 0): 90, ("d", 1): 5}, {("d", 0): 10})
    assert progress.judge({("d", 0): LATE}, {})
    assert not progress.judge({("d", 0): LATE + 1}, {})
    assert not progress.judge({("d", 0): IN_TIME + 1}, {})
    assert progress.judge({("d", 0): IN_TIME}, {})
    progress.add({("d", 2): 7})
    assert not progress.judge({("d", 2): 7}, {("d", 0): 10})
    assert progress.judge({("d", 2): 0}, {("d", 0): 10, ("d", 2): 7})
    progress.begin({("d", 0): 20})
    assert not progress.judge({("d", 0): 5}, {("d", 0): 15})
