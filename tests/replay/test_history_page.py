"""The Python of docs/history.md, run as it stands there on two trainings of the same tasks, on the real broker."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.infra.settings import Settings
from rollbook.schemas.records.run import Artifact, ArtifactKind
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import processor, world
from rollbook.tests.replay.test_replay_history_kafka import tasks
from rollbook.tests.replay.trained_run import await_decided, train
from rollbook.tests.session_broker import own_topics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "history.md"


@pytest.fixture
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


@pytest.fixture
def runs(own: Settings) -> dict[str, str]:
    """The ids of two runs by what the page calls them; the weights of each one's last update are policy 2."""
    found = {}
    with processor(own):
        for name in ("my-run-again", "my-run"):
            with world(own) as made:
                run = train(made, tasks(1.0))
                for version, update_id in enumerate(run.updates, start=1):
                    artifact = Artifact(hash=f"weights-{version}", kind=ArtifactKind.FILE)
                    made.coordinator.prepare(
                        version=version,
                        artifact=artifact,
                        parent_version=version - 1,
                        update_ids=[update_id],
                        committed=True,
                    )
                await_decided(own, run.partition)
            found[name] = run.run_id
    return found


def test_the_code_of_the_page_does_what_it_says(
    own: Settings,
    runs: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for name, run_id in runs.items():
        block = block.replace(name, run_id)
    exec(compile(block, PAGE.name, "exec"), {})
    told = capsys.readouterr().out
    assert "the run knows none of the task ids (2), trained on or not" in told
    assert "7 trajectories in 2 updates" in told
    assert "trained 7 -> 0" in told
    assert "policy_drift 0 -> 7" in told
    assert told.count("pass None") == 2
    files = {f"{run_id}.avro" for run_id in runs.values()}
    assert {path.name for path in tmp_path.iterdir()} == files | {"bundles", "sealed.avro"}
