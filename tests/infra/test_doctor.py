"""`rollbook doctor` on the real broker with deliberately wrong settings, and its checks of runs on folded histories."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.config import NodeExtras
from rollbook.infra.broker.ports import free_port
from rollbook.infra.command import run
from rollbook.infra.doctor import cluster, processing, runs
from rollbook.infra.doctor.checks import CHECKS, diagnose
from rollbook.infra.doctor.facts import (
    Broker,
    Copies,
    Facts,
    Finding,
    InternalTopic,
    LedgerPart,
    Level,
    Look,
    Member,
    RunFacts,
    Waiting,
)
from rollbook.infra.doctor.look import look
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.admin import connect
from rollbook.infra.topics.topics import create_topics, describe_topics
from rollbook.processors.host.clients import group_id
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.infra.rich_run import decide, rich
from rollbook.tests.infra.test_topics import set_topic
from rollbook.tests.processors.history import History
from rollbook.tests.processors.hosting import host_in_thread
from rollbook.tests.processors.test_host import _await

NOTHING = Look((), {}, {}, {})


def bare(settings: Settings, **seen: object) -> Facts:
    """Nothing seen but what is named."""
    facts = Facts(settings, 0, (), (), (), (), (), {}, NOTHING, NOTHING, (), ())
    return replace(facts, **seen)  # type: ignore[arg-type]


def told(findings: Iterator[Finding], level: Level = Level.UNSAFE) -> list[str]:
    return [f"{one.about}: {one.problem}" for one in findings if one.level is level]


def reset(settings: Settings, place: TopicPartition) -> None:
    """As an operator does, once the processor's group is empty."""
    client, deadline = connect(settings), time.monotonic() + 30
    while True:
        wanted = [ConsumerGroupTopicPartitions(group_id(settings), [place])]
        (future,) = client.alter_consumer_group_offsets(wanted).values()
        try:
            if future.result(20).topic_partitions[0].error is None:
                return
        except KafkaException:
            pass
        assert time.monotonic() < deadline


# ---- on the broker


def test_a_fresh_prefix_is_safe(settings: Settings) -> None:
    facts = look(settings)
    assert [one for one in diagnose(facts) if one.level is Level.UNSAFE] == []
    assert len(facts.copies) >= 5 * PARTITIONS + 1
    assert [broker.node_id for broker in facts.brokers] == [1]


def test_a_run_at_work_is_safe(settings: Settings) -> None:
    decide(settings, rich("my-run", PARTITIONS))
    with host_in_thread(settings):
        facts = look(settings)
    assert [one for one in diagnose(facts) if one.level is Level.UNSAFE] == []
    (seen,) = facts.runs
    assert seen.run.run_id == "my-run"
    assert [number for number, _ in seen.activations] == [0, 1] or [number for number, _ in seen.activations] == [1]
    assert seen.oldest is not None
    assert facts.ledger[seen.partition].next_offset == facts.after.high[Topic.LIFECYCLE, seen.partition]
    assert facts.ledger[seen.partition].rows > 10


def test_the_command_says_what_is_wrong_with_its_remedy_and_exits_1(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", settings.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", settings.topic_prefix)
    assert run(["doctor"]) == 0
    assert "nothing unsafe" in capsys.readouterr().out
    for topic, setting, value in (
        (Topic.LIFECYCLE, "retention.ms", "604800000"),
        (Topic.DECISIONS, "max.message.bytes", "1048576"),
        (Topic.LEDGER, "cleanup.policy", "delete"),
        (Topic.LEDGER, "unclean.leader.election.enable", "true"),
        (Topic.DECISIONS, "message.timestamp.before.max.ms", "3600000"),
    ):
        set_topic(settings, topic, setting, value)
    assert run(["doctor", "--json"]) == 1
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert answer["unsafe"] == 5
    assert {one["problem"].split(",")[0] for one in answer["findings"] if one["level"] == "unsafe"} == {
        "retention.ms is 604800000",
        "max.message.bytes is 1048576",
        "cleanup.policy is delete",
        "unclean.leader.election.enable is true",
        "message.timestamp.before.max.ms is 3600000",
    }
    assert all("--repair" in one["remedy"] for one in answer["findings"] if one["level"] == "unsafe")
    assert printed.err.startswith("Error: unsafe: topic ")
    assert run(["doctor"]) == 1
    assert "5 unsafe" in capsys.readouterr().out
    assert run(["topics", "describe"]) == 1
    shown = capsys.readouterr().out
    assert any("604800000" in line and "-1" in line for line in shown.splitlines()), (
        "as it is, beside what it should be"
    )


def test_topics_that_are_missing(settings: Settings) -> None:
    nowhere = replace(settings, topic_prefix="nowhere.")
    facts = look(nowhere)
    assert len(told(cluster.topic_settings(facts))) == len(Topic)


@pytest.fixture(scope="module")
def badly_set() -> Iterator[Settings]:
    """A broker whose own settings are wrong."""
    properties = {
        "transaction.max.timeout.ms": "60000",
        "group.min.session.timeout.ms": "30000",
        "group.coordinator.rebalance.protocols": "consumer,streams,classic",
        "unclean.leader.election.enable": "true",
        "auto.create.topics.enable": "true",
        "transaction.partition.verification.enable": "false",
        "socket.request.max.bytes": "5000000",
    }
    with EmbeddedBroker(extras=NodeExtras(properties=properties)) as broker:
        settings = Settings(broker.bootstrap_servers)
        create_topics(settings, PARTITIONS)
        yield settings


def test_brokers_with_wrong_settings(badly_set: Settings) -> None:
    facts = look(badly_set)
    found = list(cluster.broker_settings(facts))
    assert {one.problem.split(" ")[0] for one in found if one.level is Level.UNSAFE} == {
        "transaction.max.timeout.ms",
        "group.min.session.timeout.ms",
        "unclean.leader.election.enable",
        "socket.request.max.bytes",
    }
    assert {one.problem.split(" ")[0] for one in found if one.level is Level.WARNING} == {
        "transaction.partition.verification.enable",
        "auto.create.topics.enable",
        "authorizer.class.name",
    }
    assert all(one.remedy.startswith("set it to ") for one in found)


def test_a_group_offset_that_somebody_reset(settings: Settings) -> None:
    decide(settings, rich("my-run", PARTITIONS))
    (seen,) = look(settings).runs
    place = TopicPartition(settings.topic(Topic.LIFECYCLE), seen.partition, 1)
    reset(settings, place)
    (line,) = told(processing.positions(look(settings)))
    assert "the group's offset is 1, but the ledger stands at" in line


def test_records_that_were_deleted(settings: Settings) -> None:
    decide(settings, rich("my-run", PARTITIONS))
    (seen,) = look(settings).runs
    client = connect(settings)
    end = look(settings).after.high[Topic.LIFECYCLE, seen.partition]
    place = TopicPartition(settings.topic(Topic.LIFECYCLE), seen.partition, end)
    for future in client.delete_records([place]).values():
        future.result(20)
    assert [line.split(": ")[1] for line in told(processing.positions(look(settings)))] == [
        f"its first {end} records are gone"
    ]


def test_a_stranger_in_the_group(settings: Settings) -> None:
    config = {"bootstrap.servers": settings.bootstrap_servers, "group.id": group_id(settings), "log_level": 0}
    consumer = Consumer(config)
    consumer.subscribe([settings.topic(Topic.LIFECYCLE)])
    while not consumer.assignment():
        consumer.poll(0.1)
    facts = look(settings)
    consumer.close()
    (line,) = told(processing.members(facts))
    assert "is no processor of this prefix" in line


def test_a_transaction_that_stays_open(settings: Settings) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "transactional.id": settings.topic_prefix})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(settings.topic(Topic.DECISIONS), b"open", b"key", 0)
    producer.flush(20)
    (line,) = told(processing.open_transactions(look(settings)), Level.WARNING)
    producer.abort_transaction(20)
    assert "a transaction is open at offset 0" in line
    assert told(processing.open_transactions(look(settings)), Level.WARNING) == []


def test_records_that_nobody_decides(settings: Settings) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    producer.produce(settings.topic(Topic.LIFECYCLE), b"anything", b"my-run", 1)
    assert producer.flush(20) == 0
    (line,) = told(processing.progress(look(settings)), Level.WARNING)
    assert "1 records wait, and no processor holds the partition" in line


def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port()}")
    assert run(["doctor"]) == 3
    assert "no Kafka broker answers" in capsys.readouterr().err


# ---- on what was seen


def test_copies_that_are_missing() -> None:
    facts = bare(
        Settings(),
        brokers=(Broker(1, {}), Broker(2, {}), Broker(3, {})),
        internal=(InternalTopic("__transaction_state", 1, 1, unclean_election=True), InternalTopic("b", 3, 1, False)),
        copies=(Copies("b", 0, -1, 3, 0), Copies("b", 1, 1, 3, 2), Copies("b", 2, 1, 3, 3), Copies("b", 3, 1, 3, 0)),
    )
    assert told(cluster.internal_topics(facts)) == [
        "topic __transaction_state: it has 1 of 3 copies that these brokers can hold",
        "topic __transaction_state: unclean.leader.election.enable is true: acknowledged records can be lost",
        "topic b: min.insync.replicas is 1: what is acknowledged may be on one broker alone",
    ]
    assert told(cluster.copies(facts)) == [
        "partition b:0: it has no leader",
        "partition b:3: 0 of 3 copies are in sync, too few to be written",
    ]
    assert told(cluster.copies(facts), Level.WARNING) == ["partition b:1: 2 of 3 copies are in sync"]


def test_two_processes_of_one_name() -> None:
    old, new = Member("m1", "rollbook.p", "/10.0.0.1", (0,)), Member("m2", "rollbook.p", "/10.0.0.2", (0,))
    facts = bare(Settings(), before=Look((old,), {}, {}, {}), after=Look((new,), {}, {}, {}))
    (line,) = told(processing.members(facts), Level.WARNING)
    assert "p was replaced while we looked (at /10.0.0.1, then /10.0.0.2): two processes of one name" in line
    assert told(processing.members(replace(facts, before=facts.after)), Level.WARNING) == []


@pytest.mark.parametrize(
    ("stands", "committed", "first", "end", "problem"),
    [
        (5, 5, 0, 9, ""),
        (5, -1, 0, 9, ""),
        (5, 4, 0, 9, "the group's offset is 4, but the ledger stands at 5"),
        (5, 5, 0, 3, "the log ends at 3, but the ledger stands at 5: the topic was made anew"),
        (5, 5, 7, 9, "the log begins at 7, but the ledger stands at 5: records were deleted undecided"),
    ],
)
def test_where_the_fold_stands(stands: int, committed: int, first: int, end: int, problem: str) -> None:
    key = (Topic.LIFECYCLE, 0)
    seen = Look((), {0: committed} if committed >= 0 else {}, {key: end}, {key: end})
    facts = bare(Settings(), before=seen, after=seen, first={key: first}, ledger=(LedgerPart(0, stands, 1, 1, stands),))
    found = told(processing.positions(facts))
    assert len(found) == bool(problem)
    assert problem in "".join(found)


def test_a_log_that_was_made_anew_and_is_longer_than_the_old_one(settings: Settings) -> None:
    decide(settings, rich("my-run", PARTITIONS))
    (seen,) = look(settings).runs
    lengths = {p: look(settings).after.high[Topic.LIFECYCLE, p] for p in range(PARTITIONS)}
    topic, client = settings.topic(Topic.LIFECYCLE), connect(settings)
    client.delete_topics([topic])[topic].result(20)
    _await(lambda: topic not in client.list_topics(timeout=10).topics)
    create_topics(settings, PARTITIONS)
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    for _ in range(lengths[seen.partition] + 5):
        producer.produce(topic, b"another", b"my-run", seen.partition)
    assert producer.flush(20) == 0
    lines = told(processing.positions(look(settings)))
    assert any("is not the one that was decided: the topic was made anew" in line for line in lines)


@pytest.mark.parametrize(("decided", "resting", "found"), [(4, False, 1), (6, False, 0), (6, True, 1), (5, True, 0)])
def test_decisions_that_the_ledger_contradicts(decided: int, resting: bool, found: int) -> None:
    """Read after the ledger, they may be ahead where the processor is at work; behind they are never."""
    before, after = (Look((), {0: at}, {(Topic.LIFECYCLE, 0): 9}, {}) for at in ((5, 5) if resting else (4, 5)))
    after = replace(after, high={(Topic.LIFECYCLE, 0): 9})
    facts = bare(Settings(), before=before, after=after, first={}, ledger=(LedgerPart(0, 5, 1, 1, decided),))
    lines = told(processing.positions(facts))
    assert len(lines) == found
    assert all(f"decisions go to {decided}, but the ledger stands at 5" in line for line in lines)


def test_a_cleaner_that_does_not_keep_up() -> None:
    facts = bare(Settings(), ledger=(LedgerPart(0, 0, 1_000_000, 1_000), LedgerPart(1, 0, 1_000_000, 400_000)))
    (line,) = told(processing.progress(facts), Level.WARNING)
    assert "ledger:0: a restore reads 1000000 records for 1000 rows" in line


def trained(versions: int, saved_after: int | None, *, horizon: int = 1) -> History:
    """One update a version, each version activated; a checkpoint after one of them."""
    history = History("my-run").opened(workers=("w0",), horizon=horizon, max_lag=1)
    history.learner("a")
    for at in range(versions):
        history.ready(f"t{at}", version=at) if at else history.ready("t0")
        history.trained(f"u{at}", f"t{at}", learner="a")
        if saved_after == at:
            history.saved(f"c{at}", f"u{at}", learner="a")
        history.prepared(at + 1, f"u{at}")
        history.ack("w0", at + 1)
        history.activate(at + 1)
    return history


def of(history: History, **seen: object) -> Facts:
    one = replace(RunFacts(history.run, 0, None, ()), **seen)  # type: ignore[arg-type]
    return bare(Settings(), runs=(one,))


def test_a_checkpoint_older_than_what_the_floor_forgot() -> None:
    assert trained(5, saved_after=4).run.head.floor > 0
    assert told(runs.checkpoints(of(trained(5, saved_after=4)))) == []
    (line,) = told(runs.checkpoints(of(trained(5, saved_after=0))))
    assert line.startswith("run my-run, learner a: a start from c0, its newest, undoes 4 updates, and ")
    assert line.endswith("trajectories of theirs are forgotten: lost for training")
    (line,) = told(runs.checkpoints(of(trained(5, saved_after=None))))
    assert "it has no checkpoint; a start undoes 5 updates" in line
    assert told(runs.checkpoints(of(trained(5, saved_after=0, horizon=0)))) == [], "nothing is forgotten"


def test_an_older_checkpoint_beside_a_good_one_is_a_warning() -> None:
    history = trained(5, saved_after=0)
    history.saved("c4", "u4", learner="a")
    facts = of(history)
    assert told(runs.checkpoints(facts)) == []
    (line,) = told(runs.checkpoints(facts), Level.WARNING)
    assert "1 of 2 checkpoints (c0) are older than what the floor forgot" in line


def test_payloads_that_do_not_last_as_long_as_the_horizon(settings: Settings) -> None:
    hour = 3_600_000
    set_topic(settings, Topic.PAYLOADS, "retention.ms", str(10 * hour))
    topics = tuple(describe_topics(settings))
    history = trained(2, saved_after=1, horizon=4)

    def seen(**of_run: object) -> Facts:
        return replace(of(history, **of_run), topics=topics, now_ms=100 * hour)

    pace = {"activations": ((0, 0), (2, 6 * hour))}
    (line,) = told(runs.payloads(seen(**pace)))
    assert "4 versions (the horizon) take 12 h, payloads are kept 10 h" in line
    assert told(runs.payloads(seen(activations=((0, 0), (2, 4 * hour))))) == []
    (line,) = told(runs.payloads(seen(oldest=Waiting("t9", 99 * hour, "rollbook.payloads:0@7"))))
    assert "trajectory t9 waits, but its payload rollbook.payloads:0@7 is gone" in line
    (line,) = told(runs.payloads(seen(oldest=Waiting("t9", 94 * hour, ""))), Level.WARNING)
    assert "has waited 6 h, payloads are kept 10 h" in line
    assert told(runs.payloads(seen(oldest=Waiting("t9", 96 * hour, ""))), Level.WARNING) == []


def test_a_run_of_newer_rules_and_of_another_number_of_partitions() -> None:
    history = trained(1, saved_after=0)
    history.run.configs.assign(1, history.run.config.but(fold_version=99, partition_count=7))
    facts = of(history)
    assert "version 99, this rollbook knows" in told(runs.versions(facts))[0]
    assert "it is pinned to 7 partitions" in told(runs.pinned_partitions(facts))[0]


def test_what_is_nearly_full() -> None:
    history = trained(1, saved_after=0, horizon=0)
    history.ready("t8", "t9")
    history.run.configs.assign(1, history.run.config.but(max_live=2))
    lines = told(runs.room(of(history)), Level.WARNING)
    assert any("of 2 live trajectories (max_live): more will be refused" in line for line in lines)
    assert any("its horizon is 0" in line for line in lines)


def test_a_closed_run_is_left_alone() -> None:
    history = trained(5, saved_after=0)
    history.closed()
    assert diagnose(of(history)) == []


def test_every_check_says_what_it_looks_at() -> None:
    assert len({check.about for check in CHECKS}) == len({check.judge for check in CHECKS}) == len(CHECKS)
