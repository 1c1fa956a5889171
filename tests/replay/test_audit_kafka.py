"""A run to which everything happened, on the real broker: it audits clean, and a file of it says the same, byte for
byte, when the broker is gone."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from rollbook.infra.broker.ports import free_port
from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Settings, Topic
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.bundle.reading.cohort import read_cohort
from rollbook.replay.history import cursor
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.replay import hard_run
from rollbook.tests.replay.forged import exported
from rollbook.tests.replay.hard_run import ABORTED_RECORDS, HardRun
from rollbook.tests.replay.materialized import tree
from rollbook.tests.session_broker import own_topics

Ask = Callable[..., str]


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


@pytest.fixture(scope="module")
def hard(own: Settings) -> HardRun:
    return hard_run.make(own)


@dataclass(frozen=True)
class Files:
    """Exported: each run by itself, and all of the partition that two of them share."""

    run: str
    observed: str
    neighbour: str
    partition: str


@pytest.fixture(scope="module")
def files(own: Settings, hard: HardRun, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("hard")
    topics = (Topic.LIFECYCLE, Topic.DECISIONS, Topic.LEDGER)
    with KafkaLog(own) as log:
        run, observed, neighbour = (
            str(exported(log, own, run_id, folder / f"{run_id}.avro"))
            for run_id in (hard.run_id, hard.observed, hard.neighbour)
        )
        ranges = [OffsetRange(own.topic(topic), hard.partition) for topic in topics]
        whole = export(log, own, ranges, folder / "partition.avro", payloads=True).path
    return Files(run, observed, neighbour, str(whole))


@pytest.fixture(autouse=True)
def environment(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run a command that must pass; what it prints."""

    def ask(*arguments: object) -> str:
        capsys.readouterr()
        assert rollbook([str(one) for one in arguments]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    return ask


@pytest.fixture
def without_broker(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From here on there is none."""
    return lambda: monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port()}")


def decided(own: Settings, partition: int) -> list[Decision]:
    with KafkaLog(own) as log:
        return [one.decision for one in DecisionLog(log, own.topic(Topic.DECISIONS), partition).read()]


def counted(own: Settings, topic: Topic, partition: int, isolation: str) -> int:
    """How many records a partition holds, aborted ones too where nothing is asked of their transactions."""
    reader = Consumer(
        own.client(
            {
                "group.id": "counting",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
    )
    place, found = TopicPartition(own.topic(topic), partition), 0
    _, end = reader.get_watermark_offsets(place, timeout=20)
    reader.assign([TopicPartition(own.topic(topic), partition, 0)])
    while reader.position([place])[0].offset < end:
        found += len(reader.consume(1_000, 0.1))
    reader.close()
    return found


@pytest.mark.parametrize(("topic", "fewest"), [(Topic.LIFECYCLE, ABORTED_RECORDS), (Topic.DECISIONS, 1)])
def test_transactions_were_aborted(own: Settings, hard: HardRun, topic: Topic, fewest: int) -> None:
    there, committed = (
        counted(own, topic, hard.partition, isolation) for isolation in ("read_uncommitted", "read_committed")
    )
    assert there - committed >= fewest


def test_all_of_it_happened(own: Settings, hard: HardRun) -> None:
    decisions = decided(own, hard.partition)
    of_run = [one for one in decisions if one.run_id == hard.run_id]
    said = Counter((one.record_type, one.reason) for one in of_run)
    for what in (
        ("LeaseExpired", "lease_expired"),
        ("LeaseExpired", "in_doubt"),
        ("Abort", "update_failed"),
        ("Abort", "operator"),
        ("CheckpointSaved", "ok"),
    ):
        assert said[what] == 1, what
    assert said["RecordingSealed", "ok"] == 2 * 3
    changes = {change.predicate: change.count for one in of_run for change in one.mass_changes}
    assert changes == {
        "updates rolled back": 1,
        "trajectories rolled back": 4,
        "policies orphaned": 1,
        "trajectories quarantined with an orphaned policy": 2,
    }
    reasons = Counter(item.reason for one in of_run if one.record_type == "Admit" for item in one.items)
    assert reasons == {"ok": 17, "policy_drift": 1}
    strays = [one.outcome for one in decisions if one.run_id.startswith("~")]
    assert strays == [Outcome.UNDECODABLE, Outcome.INVALID, Outcome.INVALID, Outcome.UNDECODABLE]
    assert decisions[-1].outcome is Outcome.UNDECODABLE, "the last record of all is a dead letter"
    observed = [one for one in decided(own, hard.observed_partition) if one.run_id == hard.observed]
    assert [(one.record_type, one.reason) for one in observed if one.violation] == [
        ("Admit", "policy_drift"),
        ("Commit", "not_admitted"),
        ("Reserve", "not_rewarded"),
        ("Admit", "not_reserved"),
        ("Commit", "not_held"),
    ]


@pytest.mark.parametrize("which", ["run", "observed", "neighbour", "partition"])
def test_it_audits_clean_from_kafka_as_from_a_file_without_a_broker(
    own: Settings, hard: HardRun, files: Files, which: str, ask: Ask, without_broker: Callable[[], None]
) -> None:
    run_id = {"run": hard.run_id, "observed": hard.observed, "neighbour": hard.neighbour}.get(which)
    what = [f"lifecycle:{hard.partition}:-"] if run_id is None else ["--run", run_id]
    from_kafka = ask("audit", *what, "--json")
    found = json.loads(from_kafka)
    assert found["passed"]
    assert (found["undecided"], found["unchecked"]) == (0, [])
    partition = hard.observed_partition if which == "observed" else hard.partition
    assert found["decided"] == sum(run_id in (None, one.run_id) for one in decided(own, partition))
    without_broker()
    assert ask("audit", getattr(files, which), *what, "--json") == from_kafka
    assert json.loads(ask("audit", getattr(files, which), "--json")) == found


def test_who_reads_what_was_aborted_is_told_that_it_does_not_fit(
    hard: HardRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So the gaps are in the way of the audit, and it passes them."""
    monkeypatch.setattr(cursor, "Consumer", lambda given: Consumer({**given, "isolation.level": "read_uncommitted"}))
    assert rollbook(["audit", "--run", hard.run_id]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_it_is_made_into_the_same_bundles_and_they_pass_with_it(
    hard: HardRun,
    files: Files,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    without_broker: Callable[[], None],
) -> None:
    """And nothing that belongs to no run is waited for: a file of the run alone has no decision on it."""

    def made(folder: str, *what: str) -> Path:
        assert rollbook(["materialize", *what, "--out", str(tmp_path / folder)]) == 0
        told = capsys.readouterr().err.splitlines()[-1]
        assert told == "3 committed updates, 5 bundles written, 1 not written"
        return tmp_path / folder

    of_run = "--run", hard.run_id
    folder = made("kafka", *of_run)
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    first, resumed = (f"{hard.run_id}-u{name}" for name in (f"{hard.first}-r0", f"{hard.resumed}-r1"))
    assert names == [first, f"{first}-s0", f"{first}-s1", resumed, f"{resumed}-s0"]
    for name in names:
        ranks = {bundle.rank for bundle in read_cohort(folder / name).bundles}
        assert ranks == ({0, 1} if "-s" in name else {0})
    assert rollbook(["audit", *of_run, "--bundle", str(folder)]) == 0
    without_broker()
    assert tree(made("of run", files.run)) == tree(made("of partition", files.partition, *of_run)) == tree(folder)
    assert rollbook(["audit", files.run, *of_run, "--bundle", str(folder)]) == 0


def test_its_weights_are_proven_and_its_updates_replayed_the_same(
    hard: HardRun, files: Files, ask: Ask, without_broker: Callable[[], None]
) -> None:
    proof = "prove", "--run", hard.run_id, "--policy", "4", "--json"
    replay = "replay", "--run", hard.run_id, "--json"
    what_if = "audit", "--run", hard.run_id, "--with", "max_lag=0", "--json"
    from_kafka = [ask(*one) for one in (proof, replay, what_if)]
    found = [json.loads(line) for line in from_kafka[0].splitlines()]
    assert [one["update_id"] for one in found if one["kind"] == "update"] == [hard.first, hard.resumed]
    assert len([one for one in found if one["kind"] == "trajectory"]) == 7 + 4
    assert [one for one in found if one["kind"] == "doubt"] == [], "a dead letter at the end waits for no decision"
    outcomes = {one["update_id"]: one["outcome"] for one in map(json.loads, from_kafka[1].splitlines()[:-1])}
    assert outcomes == {hard.first: "pass", hard.undone: "rolled back", hard.resumed: "pass"}
    without_broker()
    for file in (files.run, files.partition):
        assert [ask(*one, file) for one in (proof, replay, what_if)] == from_kafka


def test_it_is_sealed_within_a_transaction_that_was_aborted(
    hard: HardRun, files: Files, tmp_path: Path, ask: Ask, without_broker: Callable[[], None]
) -> None:
    sealed = tmp_path / "sealed.avro"
    ask("history", "seal", f"lifecycle:{hard.partition}:-{hard.gap + 1}", "--payloads", "--out", sealed)
    rest = "audit", f"lifecycle:{hard.partition}:{hard.gap}-", "--anchor", sealed, "--json"
    from_kafka = ask(*rest)
    without_broker()
    assert ask(*rest, files.partition) == from_kafka
    whole = json.loads(ask("audit", files.partition, "--json"))
    found = json.loads(from_kafka)
    assert [one for one in found["unchecked"] if "the anchor's own state" not in one] == []
    assert json.loads(ask("audit", sealed, "--json"))["decided"] + found["decided"] == whole["decided"]
    assert found["heads"] == whole["heads"]


def test_files_of_two_runs_are_asked_run_by_run(hard: HardRun, files: Files, ask: Ask) -> None:
    """They have the same offsets of one partition, and each only its own records there."""
    alone = [json.loads(ask("audit", file, "--json")) for file in (files.neighbour, files.run)]
    both = files.run, files.neighbour
    assert [json.loads(line) for line in ask("audit", *both, "--json").splitlines()] == alone
    for one in alone:
        assert json.loads(ask("audit", *both, "--run", one["run_id"], "--json")) == one


def test_a_file_that_is_opened_by_itself_is_of_its_run(own: Settings, hard: HardRun, files: Files) -> None:
    whole = OffsetRange(own.topic(Topic.LIFECYCLE), hard.partition)
    with FileLog([Path(files.run)]) as log:
        report = audit(log, own, stretch_of(log, own, whole, None)).report
    assert (report.run_id, report.passed, report.unchecked) == (hard.run_id, True, ())
    with (
        FileLog([Path(files.run), Path(files.neighbour)]) as log,
        pytest.raises(BadInput, match="alone: leave that file out, and ask of each run alone"),
    ):
        stretch_of(log, own, whole, None)
