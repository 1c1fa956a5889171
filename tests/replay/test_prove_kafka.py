"""A real run: what went into its weights, and what would have been under other limits, from Kafka as from a file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Settings
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.records.run import Artifact, ArtifactKind
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import TASK, processor, world
from rollbook.tests.replay.forged import exported
from rollbook.tests.replay.trained_run import TrainedRun, await_decided, train
from rollbook.tests.session_broker import own_topics


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


@pytest.fixture(scope="module")
def trained(own: Settings) -> TrainedRun:
    """The weights of the first update are policy 1, those of both policy 2."""
    with processor(own), world(own) as made:
        run = train(made)
        for version, update_id in enumerate(run.updates, start=1):
            artifact = Artifact(hash=f"weights-{version}", kind=ArtifactKind.FILE)
            made.coordinator.prepare(
                version=version, artifact=artifact, parent_version=version - 1, update_ids=[update_id], committed=True
            )
        await_decided(own, run.partition)
        return run


@pytest.fixture(scope="module")
def file(own: Settings, trained: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> str:
    with KafkaLog(own) as log:
        return str(exported(log, own, trained.run_id, tmp_path_factory.mktemp("prove") / "run.avro"))


@pytest.fixture(autouse=True)
def environment(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)


def test_the_same_is_proven_from_kafka_and_from_a_file(
    trained: TrainedRun, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["prove", "--run", trained.run_id, "--policy", "2", "--json"]
    assert rollbook(ask) == 0
    from_kafka = capsys.readouterr().out
    assert rollbook([*ask, file]) == 0
    assert capsys.readouterr().out == from_kafka
    found = [json.loads(line) for line in from_kafka.splitlines()]
    rows = [one for one in found if one["kind"] == "trajectory"]
    assert len(rows) == 7
    assert trained.refused not in {one["trajectory_id"] for one in rows}
    assert {one["task_id"] for one in rows} == {TASK.task_id}
    assert {one["raw_reward"] for one in rows} == {0.0, 1.0}
    assert [one["update_id"] for one in found if one["kind"] == "update"] == list(trained.updates)
    assert [one["kind"] for one in found if one["kind"] in ("doubt", "absence")] == []


def test_an_evaluation_set_that_was_trained_on_is_found(
    trained: TrainedRun, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = tmp_path / "eval.txt"
    evaluation.write_text(f"# held out\nsubtraction\n{TASK.task_id}\n")
    ask = ["prove", "--run", trained.run_id, "--artifact", "weights-1", "--absent", str(evaluation)]
    assert rollbook(ask) == 1
    told = capsys.readouterr().out
    assert "PRESENT  0 prompt hashes and 2 task ids: 1 of them, in 4 trajectories" in told
    assert f"update {trained.updates[0]} " in told
    assert rollbook([*ask, file]) == 1
    assert capsys.readouterr().out == told
    evaluation.write_text("subtraction")
    assert rollbook(ask) == 0
    assert rollbook([*ask[:3], "--policy", "0", "--absent", str(evaluation)]) == 0


def test_the_same_would_have_been_from_kafka_and_from_a_file(
    trained: TrainedRun, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["audit", "--run", trained.run_id, "--with", "max_mean_abs_log_ratio=1.0", "--json"]
    assert rollbook(ask) == 0
    from_kafka = capsys.readouterr().out
    assert rollbook([*ask, file]) == 0
    assert capsys.readouterr().out == from_kafka
    counts = {
        (one["stage"], one["reason"]): (one["was"], one["would"]) for one in json.loads(from_kafka)["runs"][0]["counts"]
    }
    assert counts == {
        ("reserve", "reserved"): (8, 8),
        ("admit", "ok"): (7, 8),
        ("admit", "policy_drift"): (1, 0),
        ("train", "trained"): (7, 8),
    }
    assert rollbook(["audit", "--run", trained.run_id, "--with", "max_mean_abs_log_ratio=0.001"]) == 0
    assert "policy_drift                               0         7" in capsys.readouterr().out
