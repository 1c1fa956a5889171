"""`rollbook decisions` and `rollbook freshness`: what the processor said of a run, and ids that cannot forge a line."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import Producer

from rollbook.infra.command import run as rollbook
from rollbook.infra.looking.decisions import Wanted, follow
from rollbook.infra.looking.place import place_of_run
from rollbook.infra.settings import Settings, Topic
from rollbook.producers import Redaction, Trainer, Treatment
from rollbook.schemas.partition import partition_of
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.history import History
from rollbook.tests.producers.world import PATIENT, POLICY, processor, world
from rollbook.tests.replay.trained_run import await_decided
from rollbook.tests.session_broker import own_topics

HOSTILE = "[bold]evil[red]\u202e"
OUTSPOKEN = replace(PATIENT, redaction=Redaction(texts=Treatment.KEEP))
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
        with Trainer(own, made.run_id, "learner-0", options=OUTSPOKEN) as trainer:
            trainer.start()
            with trainer.update(0, update_id=HOSTILE) as update:
                update.claim(POLICY, max_groups=1, wait_s=60)
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
    # A claim that waits for its rewards may have been refused before.
    (reserve,) = (line for line in lines if line.split()[2:4] == ["Reserve", "accepted"])
    assert "2 reserved" in reserve


def test_ids_and_texts_forge_no_line(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    assert rollbook(["decisions", "--run", lived.run_id, "--limit", "1"]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    (abort,) = lines
    assert "[bold]evil[red]\\u202e" in abort
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


def offsets(capsys: pytest.CaptureFixture[str], lived: Lived, *filters: str) -> list[int]:
    assert rollbook(["decisions", "--run", lived.run_id, "--json", *filters]) == 0
    return [json.loads(line)["source"]["offset"] for line in capsys.readouterr().out.splitlines()]


def test_decisions_are_filtered(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    """What is filtered is what picking from all of them gives."""
    assert rollbook(["decisions", "--run", lived.run_id, "--json"]) == 0
    known = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    one = lived.trajectories[0]

    def picked(wanted: Callable[[dict[str, Any]], bool]) -> list[int]:
        found = [decision["source"]["offset"] for decision in known if wanted(decision)]
        assert 0 < len(found) < len(known)
        return found

    def reasons(decision: dict[str, Any]) -> set[str]:
        return {decision["reason"], *(item["reason"] for item in decision["items"])}

    mine = picked(lambda decision: one in json.dumps(decision))
    assert offsets(capsys, lived, "--trajectory", one) == mine
    assert offsets(capsys, lived, "--trajectory", one, "--limit", "2") == mine[-2:]
    held = picked(lambda decision: decision["update_id"] == HOSTILE)
    assert offsets(capsys, lived, "--update", HOSTILE) == held
    either = picked(lambda decision: bool(reasons(decision) & {"reserved", "released"}))
    assert offsets(capsys, lived, "--reason", "reserved", "--reason", "released") == either
    accepted = picked(lambda decision: decision["outcome"] == "accepted")
    assert offsets(capsys, lived, "--outcome", "accepted") == accepted
    assert offsets(capsys, lived, "--type", "Abort") == picked(lambda decision: decision["record_type"] == "Abort")
    assert offsets(capsys, lived, "--type", "Abort", "--trajectory", one) == [mine[-1]]


def test_the_table_shows_the_trajectory_asked_for(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    assert rollbook(["decisions", "--run", lived.run_id, "--trajectory", lived.trajectories[0]]) == 0
    title, _, *lines = capsys.readouterr().out.splitlines()
    assert title.strip().startswith(f"{len(lines)} of ")
    reserve = next(line for line in lines if line.split()[2:4] == ["Reserve", "accepted"])
    # Whether its reward or its Generated came first decides how often it had changed before.
    assert re.search(r"reserved, rewarded -> reserved, revision [23], lag 0", reserve)


@pytest.mark.parametrize(
    ("filters", "code", "expected"),
    [
        (["--type", "CheckpointSaved"], 1, "none of which is asked for"),
        (["--reason", "stale_polcy"], 2, "'stale_polcy' is no reason: did you mean stale_policy"),
        (["--type", "commit"], 2, "'commit' is no record type: did you mean Commit"),
        (["--outcome", "fine"], 2, "not one of 'accepted'"),
    ],
)
def test_a_filter_that_finds_nothing_says_why(
    lived: Lived, filters: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rollbook(["decisions", "--run", lived.run_id, *filters]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert expected in captured.err


@contextmanager
def following(run_id: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """`rollbook decisions --follow` as a process of its own, interrupted in the end as Ctrl-C does."""
    command = [sys.executable, "-m", "rollbook.infra.cli", "decisions", "--run", run_id, "--follow", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (130, "")
    finally:
        process.kill()
        process.wait()


def test_follow_goes_on_with_each_as_it_is_committed(own: Settings, lived: Lived) -> None:
    with following(lived.run_id, "--json", "--limit", "1") as process:
        assert process.stdout is not None
        before = json.loads(process.stdout.readline())
        with processor(own), Trainer(own, lived.run_id, "learner-1", options=PATIENT) as trainer:
            trainer.start()
        after = json.loads(process.stdout.readline())
    assert before["record_type"] == "Abort"
    assert (after["record_type"], after["sequence"]) == ("LearnerStarted", before["sequence"] + 1)


def test_follow_is_a_line_each_that_no_id_forges(lived: Lived) -> None:
    with following(lived.run_id, "--type", "Abort") as process:
        assert process.stdout is not None
        header, line = process.stdout.readline(), process.stdout.readline()
    assert header.split()[:5] == ["sequence", "offset", "record", "outcome", "reason"]
    assert line.split()[2:4] == ["Abort", "accepted"]
    assert "[bold]evil[red]\\u202e" in line
    assert "broken\\n  99  99  Commit" in line


def test_follow_shows_nothing_that_is_not_committed(own: Settings) -> None:
    """An open transaction hides what is in it: the reader stops before it, and goes on when it is committed."""
    run_id = "in-transaction"
    history = History(run_id, topic_partitions=PARTITIONS).opened()
    topic, partition = own.topic(Topic.DECISIONS), partition_of(run_id, PARTITIONS)
    producer = Producer({"bootstrap.servers": own.bootstrap_servers, "transactional.id": f"{own.topic_prefix}test"})
    producer.init_transactions(20)
    pauses: list[int] = []

    def pause(_: float) -> None:
        pauses.append(1)
        if len(pauses) == 2:
            assert producer.flush(20) == 0
            producer.commit_transaction(20)
        assert len(pauses) < 200

    producer.begin_transaction()
    for folded in history.log.folded:
        producer.produce(topic, folded.encoded, run_id.encode(), partition)
    assert producer.flush(20) == 0
    with place_of_run(run_id) as place:
        found = list(islice(follow(place, Wanted(), None, pause), len(history.log.folded)))
    assert len(pauses) >= 2
    assert [one.decision.sequence for one in found] == [1, 2]


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
def test_an_unknown_run_is_bad_input(lived: Lived, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = next(
        name
        for name in (f"other-{n}" for n in range(99))
        if partition_of(name, PARTITIONS) == partition_of(lived.run_id, PARTITIONS)
    )
    for run_id in (other, "evil\x1b[31m\nError: forged"):
        assert rollbook([command, "--run", run_id]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.count("\n") == 1
        assert "has no" in told.err
        assert "\x1b" not in told.err


@pytest.mark.parametrize("arguments", [["decisions"], ["decisions", "--json"], ["decisions", "--follow"], ["ledger"]])
def test_a_reader_who_has_gone_ends_it_quietly(lived: Lived, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "rollbook.infra.cli", *arguments, "--run", lived.run_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_a_snapshot_that_is_none_is_told_with_its_place(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", settings.topic_prefix)
    topic, partition = settings.topic(Topic.FRESHNESS), partition_of("r", PARTITIONS)
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    producer.produce(topic, b"\xc3\x01" + bytes(20), b"r", partition)
    assert producer.flush(20) == 0
    assert rollbook(["freshness", "--run", "r"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"Error: {topic}:{partition}@0 is not a freshness snapshot (" in told
