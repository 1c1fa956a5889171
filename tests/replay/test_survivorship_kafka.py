"""A real run: the same report from Kafka and from a file, and what the trainer did is in it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Settings
from rollbook.replay.history.kafka import KafkaLog
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import TASK, processor, world
from rollbook.tests.replay.forged import exported
from rollbook.tests.replay.trained_run import await_decided, train
from rollbook.tests.session_broker import own_topics


@pytest.fixture
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


def test_the_same_is_reported_from_kafka_and_from_a_file(
    own: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)
    with processor(own), world(own) as made:
        run = train(made)
        await_decided(own, run.partition)
    with KafkaLog(own) as log:
        file = exported(log, own, run.run_id, tmp_path / "run.avro")
    ask = ["report", "--run", run.run_id, "--json"]
    assert rollbook(ask) == 0
    told = json.loads(capsys.readouterr().out)
    assert rollbook([*ask, str(file)]) == 0
    from_file = json.loads(capsys.readouterr().out)
    where = ("start", "end")  # a file begins with the run
    assert {key: value for key, value in told.items() if key not in where} == {
        key: value for key, value in from_file.items() if key not in where
    }
    assert {fate: many for fate, many in told["total"]["fates"].items() if many} == {"consumed": 7, "refused_drift": 1}
    assert [one["task_id"] for one in told["tasks"]] == [TASK.task_id]
    assert told["rewards"]["consumed"]["count"] == 7
