"""Runs that the real clients and the real processor left on the real broker: replayed and held against each other from
there and from exported files."""

import json
from collections.abc import Callable, Iterator

import pytest

from rollbook.infra.broker.ports import free_port
from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Settings
from rollbook.producers import new_id, new_identity
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.records.rollout import FinishReason
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import TASK, World, processor, row, world
from rollbook.tests.replay.forged import exported
from rollbook.tests.replay.trained_run import TrainedRun, train
from rollbook.tests.session_broker import own_topics

CHANGED = 6, 0.5
"""The group of which a run rewards the second member with less."""


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


def tasks(last_reward: float) -> Callable[[World, int], None]:
    """Each group answers a task of its own. One after the other, so that they are claimed in this order."""

    def group(made: World, seed: int) -> None:
        group_id, task = new_id(), TASK.model_copy(update={"row": seed})
        for index in range(2):
            identity = new_identity(group_id, index, 2)
            made.worker.generated(
                identity,
                [row(seed + index)],
                task=task,
                contract_hash=made.contract_hash,
                finish_reason=FinishReason.STOP,
                rollout_partition_id="batch-0",
            )
            reward = float(index) * (last_reward if seed == CHANGED[0] else 1.0)
            assert made.worker.flush(20) == 0
            made.rewards.reward(identity.trajectory_id, reward)
            assert made.rewards.flush(20) == 0

    return group


@pytest.fixture(scope="module")
def runs(own: Settings) -> tuple[TrainedRun, TrainedRun, TrainedRun]:
    """Two that are alike, and one whose last reward is another."""
    found = []
    with processor(own):
        for reward in (1.0, 1.0, CHANGED[1]):
            with world(own) as made:
                found.append(train(made, tasks(reward)))
    return found[0], found[1], found[2]


@pytest.fixture(scope="module")
def files(own: Settings, runs: tuple[TrainedRun, ...], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    with KafkaLog(own) as log:
        return [str(exported(log, own, run.run_id, folder / f"{run.run_id}.avro")) for run in runs]


@pytest.fixture(autouse=True)
def environment(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)


def test_a_run_is_replayed_from_kafka_as_from_a_file_without_a_broker(
    runs: tuple[TrainedRun, ...],
    files: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = runs[0]
    assert rollbook(["replay", "--run", run.run_id, "--json"]) == 0
    from_kafka = capsys.readouterr().out
    *updates, last = map(json.loads, from_kafka.splitlines())
    assert [(one["update_id"], one["outcome"], len(one["bundles"])) for one in updates] == [
        (update, "pass", 3) for update in run.updates
    ]
    assert last["outcomes"]["pass"] == 2
    assert rollbook(["replay", f"lifecycle:{run.partition}:{run.last_commit}-{run.last_commit + 1}"]) == 0
    assert "pass: 1 committed update: 1 pass" in capsys.readouterr().out
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port()}")
    assert rollbook(["replay", files[0], "--json"]) == 0
    assert capsys.readouterr().out == from_kafka


def test_two_runs_are_held_against_each_other_from_kafka_as_from_files(
    runs: tuple[TrainedRun, ...],
    files: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, same, other = (run.run_id for run in runs)
    assert rollbook(["diff", one, same]) == 0
    assert f"SAME  {one} and {same}: 2 updates, 8 rows" in capsys.readouterr().out
    assert rollbook(["diff", one, other, "--json"]) == 1
    from_kafka = capsys.readouterr().out
    found = json.loads(from_kafka)
    first = found["first"]
    assert (first["what"], first["update"], first["task_row"]["row"], first["task_row"]["sample_index"]) == (
        "reward.raw",
        2,
        CHANGED[0],
        1,
    )
    assert [(side["run_id"], side["value"]) for side in (first["a"], first["b"])] == [(one, 1.0), (other, CHANGED[1])]
    assert found["left"] == []
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port()}")
    assert rollbook(["diff", one, other, *files, "--json"]) == 1
    assert capsys.readouterr().out == from_kafka
