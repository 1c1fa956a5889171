"""`rollbook materialize` on a run that the real clients and the real processor left on the real broker."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from rollbook.infra.broker.ports import free_port
from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.materialize.commits import CommittedUpdate
from rollbook.replay.materialize.evidence import UpdateEvidence
from rollbook.replay.materialize.gather import Gatherer
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.partition import partition_of
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import processor, world
from rollbook.tests.replay.materialized import passing, tree
from rollbook.tests.replay.trained_run import TrainedRun, train
from rollbook.tests.session_broker import own_topics


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


@pytest.fixture(scope="module")
def trained(own: Settings) -> TrainedRun:
    with processor(own), world(own) as made:
        return train(made)


@pytest.fixture(autouse=True)
def environment(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)


def test_a_run_becomes_bundles_that_validate_and_replay(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rollbook(["materialize", "--run", trained.run_id, "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    paths = [Path(line) for line in told.out.splitlines()]
    updates = [f"{trained.run_id}-u{update}-r{n}" for n, update in enumerate(trained.updates)]
    assert [path.name for path in paths] == [f"{update}{of}" for update in updates for of in ("", "-s0", "-s1")]
    assert "2 committed updates, 6 bundles written, 0 not written" in told.err
    bundles = [passing(path) for path in paths]
    masked = [
        s.sample_id
        for bundle in bundles
        if bundle.index.identity.actor_step_id
        for s in bundle.index.samples
        if not any(s.loss_mask)
    ]
    assert masked == [trained.refused]
    assert rollbook(["validate", str(paths[0])]) == 0
    assert rollbook(["replay", str(paths[1])]) == 0
    assert rollbook(["replay", "--chain", str(tmp_path)]) == 0
    capsys.readouterr()
    assert rollbook(["materialize", "--run", trained.run_id, "--out", str(tmp_path)]) == 0
    again = capsys.readouterr()
    assert again.out == told.out
    assert "2 committed updates, 0 bundles written, 6 bundles there before, 0 not written" in again.err


def test_other_readers_get_the_steps_alone(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rollbook(["materialize", "--run", trained.run_id, "--format", "1.0.0", "--out", str(tmp_path)]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name[-3:] for path in paths] == ["-s0", "-s1"] * 2
    assert {passing(path).manifest.format_version for path in paths} == {"1.0.0"}


def test_a_range_after_everything_but_the_commit_gives_the_same_bytes(trained: TrainedRun, tmp_path: Path) -> None:
    late = f"lifecycle:{trained.partition}:{trained.last_commit}-{trained.last_commit + 1}"
    assert rollbook(["materialize", "--run", trained.run_id, "--out", str(tmp_path / "run")]) == 0
    assert rollbook(["materialize", f"lifecycle:{trained.partition}:-", "--out", str(tmp_path / "all")]) == 0
    assert rollbook(["materialize", late, "--out", str(tmp_path / "late")]) == 0
    only = ["--run", trained.run_id, "--update", trained.updates[1], "--out", str(tmp_path / "only")]
    assert rollbook(["materialize", *only]) == 0
    everything = tree(tmp_path / "run")
    assert tree(tmp_path / "all") == everything
    last = {name: data for name, data in everything.items() if trained.updates[1] in name}
    assert tree(tmp_path / "late") == last
    assert tree(tmp_path / "only") == last
    assert len(last) == len(everything) // 2


def test_what_is_another_bundle_is_refused_and_the_rest_written(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["materialize", "--run", trained.run_id, "--out", str(tmp_path)]
    assert rollbook(arguments) == 0
    (changed,) = tmp_path.glob(f"*-u{trained.updates[1]}-*-s0")
    (changed / "notes.txt").touch()
    everything = tree(tmp_path)
    for path in tmp_path.glob(f"*-u{trained.updates[0]}-*-s?"):
        shutil.rmtree(path)
    assert rollbook(arguments) == 1
    assert f"update {trained.updates[1]} step 0: exists" in capsys.readouterr().err
    assert tree(tmp_path) == everything


def test_what_was_written_before_the_broker_failed_is_listed(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gather = Gatherer.gather

    def failing(gatherer: Gatherer, update: CommittedUpdate) -> UpdateEvidence:
        if update.update_id == trained.updates[1]:
            raise EnvironmentFault("no Kafka broker answers")
        return gather(gatherer, update)

    monkeypatch.setattr(Gatherer, "gather", failing)
    assert rollbook(["materialize", "--run", trained.run_id, "--out", str(tmp_path)]) == 3
    told = capsys.readouterr()
    assert [Path(line).name[-3:] for line in told.out.splitlines()] == ["-r0", "-s0", "-s1"]
    assert told.err.splitlines()[0] == "cut short after 3 bundles, which stay; the same call again goes on from them"


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["lifecycle:{p}:9-3"], 2, "START must be below END"),
        (["lifecycle:{p}:0-99999"], 2, "offset 99998 is beyond the end; to be had are offsets 0 to"),
        (["lifecycle:7:-"], 2, "lifecycle:7 does not exist"),
        (["decisions:0:-"], 2, "updates are committed on"),
        (["lifecycle:0:-", "--redact", "sample_id"], 2, "--redact 'sample_id' says nothing to be done: give `default`"),
        (
            ["lifecycle:0:-", "--redact", "title=hash"],
            2,
            "--redact: 'title' is no field that can be redacted: name one",
        ),
        (["lifecycle:0:-", "--format", "2"], 2, "'2' is not one of '1.0.0', '1.1.0'"),
        (["lifecycle"], 2, "is not an offset range"),
        ([], 2, "an offset range such as lifecycle:0:0-5000, an exported file, or --run RUN"),
        (["gone.avro"], 2, "gone.avro does not exist: give an exported history"),
        (["lifecycle:0:-", "--run", "{run}"], 2, "either a RANGE such as lifecycle:0:0-5000, or --run RUN"),
        (["lifecycle:0:-", "--update", "u"], 2, "--update goes with --run"),
        (["--update", "u"], 2, "--update goes with --run, since a range may hold updates of several runs: add --run"),
    ],
)
def test_a_wrong_call_is_told_on_one_line(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, fault: str
) -> None:
    arguments = [word.format(p=trained.partition, run=trained.run_id) for word in arguments]
    assert rollbook(["materialize", *arguments, "--out", str(tmp_path)]) == code
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert fault in told.err
    assert told.out == ""


@pytest.mark.parametrize("out", ["/dev/null", "/dev/null/x", "/proc/x", "x" * 300, "\udcff/" + "x" * 300])
def test_what_cannot_be_a_folder_is_refused_before_anything_is_read(
    out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert rollbook(["materialize", "--run", "r", "--out", out]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    # What is no text older versions of the command's library refuse before us.
    assert "cannot be made or written" in told.err or ("\udcff" in out and "is not UTF-8" in told.err)


def test_an_update_that_is_not_there_is_a_no(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["materialize", "--run", trained.run_id, "--update", "evil\x1b[2J\n", "--out", str(tmp_path)]
    assert rollbook(ask) == 1
    told = capsys.readouterr().err
    assert "no committed update is there" in told
    assert "\x1b" not in told
    assert told.count("\n") == 2


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_run_that_is_not_there_is_refused(
    trained: TrainedRun, tmp_path: Path, is_empty: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether others are in its partition, or nothing."""
    name = next(
        name
        for name in (f"other-{n}" for n in range(99))
        if (partition_of(name, PARTITIONS) == trained.partition) is not is_empty
    )
    out = str(tmp_path / "out")
    for command in (
        ["materialize", "--out", out],
        ["replay"],
        ["audit"],
        ["history", "show"],
        ["history", "export", "--out", out],
    ):
        assert rollbook([*command, "--run", name]) == 2
        told = capsys.readouterr()
        assert (told.out, told.err.count("\n"), f"there is no record of run {name} on" in told.err) == ("", 1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_is_down_is_told_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port()}")
    assert rollbook(["materialize", "--run", "r", "--out", str(tmp_path)]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "no Kafka broker answers" in told


def test_payloads_that_retention_took_are_told(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", settings.topic_prefix)
    with processor(settings), world(settings) as made:
        lost = train(made)
    topic = settings.topic(Topic.PAYLOADS)
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    with KafkaLog(settings) as log:
        ends = [TopicPartition(topic, p, log.bounds(topic, p).end) for p in range(log.partitions(topic))]
    for future in admin.delete_records([end for end in ends if end.offset]).values():
        future.result(10)
    assert rollbook(["materialize", "--run", lost.run_id, "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3
    for line, update in zip(told, lost.updates, strict=False):
        assert f"update {update}: payload_gone: A payload is not retained any more. payload {topic}:" in line
    assert tree(tmp_path) == {}


def test_an_exported_run_gives_the_same_bundles_without_a_broker(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, run = tmp_path / "run.avro", ["--run", trained.run_id]
    assert rollbook(["history", "export", *run, "--payloads", "--out", str(file)]) == 0
    assert rollbook(["history", "show", *run, "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert rollbook(["materialize", *run, "--out", str(tmp_path / "kafka")]) == 0
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port()}")
    monkeypatch.delenv("ROLLBOOK_TOPIC_PREFIX")
    assert rollbook(["materialize", str(file), *run, "--out", str(tmp_path / "run")]) == 0
    assert rollbook(["materialize", str(file), "--out", str(tmp_path / "all")]) == 0
    assert tree(tmp_path / "run") == tree(tmp_path / "all") == tree(tmp_path / "kafka") != {}
    capsys.readouterr()
    assert rollbook(["history", "show", str(file), *run, "--json"]) == 0
    from_file = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    own = [one for one in from_file if "payloads" not in one["topic"]]
    assert own == shown
    assert {one["record"]["run_id"] for one in own if one["type"] == "Decision"} == {trained.run_id}
    assert rollbook(["history", "show", str(file), "--type", "Commit", "--limit", "1"]) == 0
    assert "Commit" in capsys.readouterr().out
    assert rollbook(["history", "show", str(file), "--type", "RunClosed"]) == 1
    assert rollbook(["history", "export", str(file), "--out", str(file)]) == 2
    assert "an export replaces nothing" in capsys.readouterr().err
