"""Topics on the real broker: made as the table says, again without effect, and refused when they differ."""

import time
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package forgets to mark them as exported
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.ports import free_port
from rollbook.infra.settings import DECISION_MAX_BYTES, LIFECYCLE_MAX_BYTES, PAYLOAD_MAX_BYTES, Settings, Topic
from rollbook.infra.topics import topics
from rollbook.infra.topics.admin import connect
from rollbook.infra.topics.table import TOPIC_TABLE, min_insync, replication_for
from rollbook.infra.topics.topics import check_topics, create_topics, delete_topics, describe_topics
from rollbook.schemas.errors import BadInput, EnvironmentFault


def set_topic(settings: Settings, topic: Topic, name: str, value: str) -> None:
    client = connect(settings)
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, settings.topic(topic), incremental_configs=[entry])
    for future in client.incremental_alter_configs([resource]).values():
        future.result()
    deadline = time.monotonic() + 20
    while next(s for s in describe_topics(settings) if s.spec.topic is topic).value(name) != value:
        assert time.monotonic() < deadline


def test_each_topic_is_made_as_the_table_says(settings: Settings) -> None:
    states = describe_topics(settings)
    assert [state.spec for state in states] == list(TOPIC_TABLE)
    for state in states:
        assert state.partitions == (1 if state.spec.topic is Topic.DEAD_LETTERS else 2)
        for setting in state.spec.settings:
            assert state.value(setting.name) == setting.value, (state.name, setting.name)
    assert check_topics(settings) == []


def test_creating_again_changes_nothing(settings: Settings) -> None:
    report = create_topics(settings, 2)
    assert report.created == report.repaired == ()
    assert len(report.unchanged) == len(TOPIC_TABLE)
    assert create_topics(settings).partitions == 2, "without a number, the one that is there stands"


def test_a_missing_topic_is_a_problem_and_is_made(settings: Settings) -> None:
    delete_topics(settings)
    assert [problem.actual for problem in check_topics(settings)] == ["missing"] * len(TOPIC_TABLE)
    assert len(create_topics(settings, 3).created) == len(TOPIC_TABLE)
    assert describe_topics(settings)[0].partitions == 3


def test_a_wrong_setting_is_refused_by_name_and_repaired_on_request(settings: Settings) -> None:
    set_topic(settings, Topic.LIFECYCLE, "message.timestamp.type", "CreateTime")
    expected = (
        f"topic {settings.topic(Topic.LIFECYCLE)}: message.timestamp.type is CreateTime, wanted LogAppendTime: "
        "run `rollbook topics create --repair`"
    )
    assert [str(problem) for problem in check_topics(settings)] == [expected]
    with pytest.raises(BadInput) as refusal:
        create_topics(settings)
    assert str(refusal.value) == expected
    assert create_topics(settings, repair=True).repaired == (settings.topic(Topic.LIFECYCLE),)
    assert check_topics(settings) == []


def test_the_retention_of_payloads_is_the_operators(settings: Settings) -> None:
    set_topic(settings, Topic.PAYLOADS, "retention.ms", "3600000")
    assert check_topics(settings) == []


def test_another_number_of_partitions_is_refused_and_repair_does_not_help(settings: Settings) -> None:
    for repair in (False, True):
        with pytest.raises(BadInput, match=r"lifecycle: partitions is 2, wanted 5: .*--partitions 2"):
            create_topics(settings, 5, repair=repair)


def test_partitions_that_were_added_are_what_is_wrong(settings: Settings) -> None:
    name = settings.topic(Topic.LIFECYCLE)
    client = connect(settings)
    client.create_partitions([NewPartitions(name, 3)])[name].result(20)
    deadline = time.monotonic() + 20
    while describe_topics(settings)[0].partitions != 3:
        assert time.monotonic() < deadline
    (problem,) = check_topics(settings)
    assert str(problem).startswith(f"topic {name}: partitions is 3, wanted 2: it is fixed for the life of the prefix")
    assert "what was added cannot be taken away" in str(problem)
    with pytest.raises(BadInput, match="partitions is 3, wanted 2"):
        create_topics(settings)


@pytest.mark.parametrize(
    ("topic", "value_bytes"),
    [
        (Topic.LIFECYCLE, LIFECYCLE_MAX_BYTES),
        (Topic.PAYLOADS, PAYLOAD_MAX_BYTES),
        (Topic.DECISIONS, DECISION_MAX_BYTES),
    ],
)
def test_a_record_with_the_largest_value_fits(settings: Settings, topic: Topic, value_bytes: int) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "message.max.bytes": 16 * 1024 * 1024})
    producer.produce(
        settings.topic(topic),
        value=bytes(value_bytes),
        key=b"k" * 200,
        on_delivery=lambda error, _: errors.append(error),
    )
    assert producer.flush(20) == 0
    assert errors == [None]


def test_a_broker_that_is_down_is_named_with_the_remedy(capfd: pytest.CaptureFixture[str]) -> None:
    nowhere = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")
    with pytest.raises(EnvironmentFault, match=rf"{nowhere.bootstrap_servers} .*rollbook broker start"):
        check_topics(nowhere)
    assert capfd.readouterr().err == "", "librdkafka keeps quiet"


def test_a_cluster_that_goes_away_between_two_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_TIMEOUT_S", 1.0)
    with EmbeddedBroker() as own:
        settings = Settings(own.bootstrap_servers)
        client = connect(settings)
        own.kill()
        monkeypatch.setattr(topics, "connect", lambda _: client)
        for ask in (check_topics, describe_topics, create_topics, delete_topics):
            with pytest.raises(EnvironmentFault, match=r"the cluster stopped answering: .*: check the cluster"):
                ask(settings)


def test_copies_follow_the_number_of_nodes() -> None:
    assert [replication_for(nodes) for nodes in (1, 2, 3, 9)] == [1, 1, 3, 3]
    assert [min_insync(copies).value for copies in (1, 3)] == ["1", "2"]


def test_prefixes_do_not_see_each_other(settings: Settings) -> None:
    assert describe_topics(replace(settings, topic_prefix="elsewhere.")) == []
