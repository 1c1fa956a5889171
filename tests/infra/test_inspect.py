"""`rollbook decisions` and `rollbook freshness`: what the processor said of a run, and ids that cannot forge a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rollbook.infra.cli import run as rollbook
from rollbook.infra.settings import Settings
from rollbook.producers import Trainer
from rollbook.schemas.partition import partition_of
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import PATIENT, POLICY, processor, world
from rollbook.tests.replay.trained_run import await_decided
from rollbook.tests.session_broker import own_topics

HOSTILE = "[bold]evil[/bold]\u202e"
FORGED = "broken\n  99  99  Commit  accepted  ok"


@dataclass(frozen=True, slots=True)
class Lived:
    """A run with two rewarded trajectories and an aborted update of a hostile name."""

    run_id: str
    trajectories: tuple[str, ...]


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


@pytest.fixture(scope="module")
def lived(own: Settings) -> Lived:
    with processor(own), world(own) as made:
        group = made.group(2)
        with Trainer(own, made.run_id, "learner-0", options=PATIENT) as trainer:
            trainer.start()
            with trainer.update(0, update_id=HOSTILE) as update:
                update.claim(POLICY, max_groups=1, wait_s=20)
                update.abort(FORGED)
        await_decided(own, partition_of(made.run_id, PARTITIONS))
        return Lived(made.run_id, tuple(group))


@pytest.fixture(autouse=True)
def environment(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)


def test_decisions_are_a_table_with_a_line_each(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    assert rollbook(["decisions", "--run", lived.run_id]) == 0
    title, header, *lines = capsys.readouterr().out.splitlines()
    assert title.strip() == f"{len(lines)} decisions"
    assert header.split() == ["sequence", "offset", "record", "outcome", "reason", "subject", "update", "items"]
    assert [line.split()[0] for line in lines] == [str(number + 1) for number in range(len(lines))]
    assert lines[0].split()[2:4] == ["RunConfigured", "accepted"]
    (reserve,) = (line for line in lines if " Reserve " in line)
    assert "2 reserved" in reserve


def test_ids_and_texts_forge_no_line(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    assert rollbook(["decisions", "--run", lived.run_id, "--limit", "1"]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    (abort,) = lines
    assert "[bold]evil[/bold]\\u202e" in abort
    assert "broken\\n  99  99  Commit" in abort
    assert "\u202e" not in abort


def test_decisions_are_json_lines(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    assert rollbook(["decisions", "--run", lived.run_id, "--json"]) == 0
    decisions = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [found["sequence"] for found in decisions] == list(range(1, len(decisions) + 1))
    assert {found["run_id"] for found in decisions} == {lived.run_id}
    assert decisions[-1]["record_type"] == "Abort"
    assert decisions[-1]["update_id"] == HOSTILE
    assert {item["trajectory_id"] for item in decisions[-1]["items"]} == set(lived.trajectories)
    assert rollbook(["decisions", "--run", lived.run_id, "--json", "--limit", "2"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == decisions[-2:]


def test_freshness_is_the_last_snapshot(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    assert rollbook(["freshness", "--run", lived.run_id, "--json"]) == 0
    snapshot = json.loads(capsys.readouterr().out)
    assert rollbook(["decisions", "--run", lived.run_id, "--json", "--limit", "1"]) == 0
    assert snapshot["sequence"] == json.loads(capsys.readouterr().out)["sequence"]
    assert snapshot["ready_fresh"] == 2
    assert snapshot["by_version"] == [{"version": 0, "state": "rewarded", "count": 2}]
    assert rollbook(["freshness", "--run", lived.run_id]) == 0
    text = capsys.readouterr().out
    assert f"run {lived.run_id}" in " ".join(text.split())
    assert "ready, fresh 2" in " ".join(text.split())
    assert "version state trajectories 0 rewarded 2" in " ".join(text.split())


@pytest.mark.parametrize("command", ["decisions", "freshness"])
def test_an_unknown_run_is_a_no(lived: Lived, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = next(
        name
        for name in (f"other-{n}" for n in range(99))
        if partition_of(name, PARTITIONS) == partition_of(lived.run_id, PARTITIONS)
    )
    for run_id in (other, "evil\x1b[31m\nError: forged"):
        assert rollbook([command, "--run", run_id]) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.count("\n") == 1
        assert "has no" in told.err
        assert "\x1b" not in told.err
