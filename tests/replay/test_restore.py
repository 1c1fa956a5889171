"""A backup of all partitions restored on the real broker: the same records at the same offsets, decided as before."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package forgets to mark them as exported
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import LIFECYCLE_MAX_BYTES, Settings, Topic
from rollbook.replay.histories import open_history
from rollbook.replay.history import restoring
from rollbook.replay.history.container import Contents, Section, write
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.restore import restore
from rollbook.replay.history.source import OutOfRange, StoredRecord
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import processor, world
from rollbook.tests.replay.trained_run import TrainedRun, await_decided, train
from rollbook.tests.session_broker import own_topics

FROM = "before."
Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass(frozen=True)
class Kept:
    """A run on a cluster, and a backup of it."""

    settings: Settings
    run: TrainedRun
    backup: Path


@pytest.fixture(scope="module")
def kept(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Before the run's payloads lie some that no record names, so that places are to be kept."""
    backup = tmp_path_factory.mktemp("kept") / "backup.avro"
    with own_topics(broker, PARTITIONS) as settings:
        for partition in range(PARTITIONS):
            publish(settings, Topic.PAYLOADS, partition, b"nobody names it")
        with processor(settings), world(settings) as made:
            run = train(made)
        with environment(settings), open_history(everything=True) as history:
            history.export(backup, payloads=True)
        yield Kept(settings, run, backup)


@contextmanager
def environment(settings: Settings) -> Iterator[None]:
    """The commands' settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", settings.bootstrap_servers)
        patch.setenv("ROLLBOOK_TOPIC_PREFIX", settings.topic_prefix)
        yield


def publish(settings: Settings, topic: Topic, partition: int, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    producer.produce(settings.topic(topic), value, b"k", partition)
    assert producer.flush(30) == 0


def there(settings: Settings, topic: Topic, partition: int) -> list[Row]:
    """The records of a partition, without what depends on the clock."""
    with KafkaLog(settings) as log:
        bounds = log.bounds(settings.topic(topic), partition)
        records = log.read(settings.topic(topic), partition, bounds.first, bounds.end)
        return [(one.offset, one.key, one.value, one.headers) for one in records]


def test_a_backup_of_all_is_audited_with_the_ledger_and_tells_what_is_empty(
    kept: Kept, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = f"{kept.settings.topic(Topic.LIFECYCLE)}:{1 - kept.run.partition}"
    with environment(kept.settings):
        assert rollbook(["history", "export", "--all", "--payloads", "--out", str(tmp_path / "a.avro")]) == 0
        assert f"empty: {empty}\n" in capsys.readouterr().out
        assert rollbook(["history", "export", "--all", "--json", "--out", str(tmp_path / "b.avro")]) == 0
        assert json.loads(capsys.readouterr().out)["empty"] == [empty]
    assert rollbook(["audit", str(tmp_path / "a.avro")]) == 0
    assert "not checked" not in capsys.readouterr().out


def test_all_is_of_the_cluster_alone_and_of_one_that_holds_something(
    kept: Kept, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "a.avro")]
    with environment(settings):
        for other in (["--run", "r"], ["lifecycle:0:-"], [str(kept.backup)]):
            assert rollbook(["history", "export", "--all", *other, *out]) == 2
            assert "leave out ranges, files and --run" in capsys.readouterr().err
        assert rollbook(["history", "export", "--all", *out]) == 2
        assert "there is nothing to export" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_restored_lies_where_it_lay_and_is_decided_as_before(
    kept: Kept, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the queue of what is under way is full again and again."""
    monkeypatch.setattr(restoring, "QUEUED_MESSAGES", 5)
    with environment(settings):
        assert rollbook(["history", "restore", str(kept.backup), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        for partition in range(PARTITIONS):
            assert there(settings, Topic.LIFECYCLE, partition) == there(kept.settings, Topic.LIFECYCLE, partition)
            named = there(kept.settings, Topic.PAYLOADS, partition)[1:]
            assert there(settings, Topic.PAYLOADS, partition) == named
        assert sum(one["records"] for one in told["partitions"]) > 30
        assert [one["empty"] for one in told["partitions"]] == [0, *(1 for one in told["partitions"][1:])]
        assert told["untouched"] == [f"{settings.topic(Topic.LIFECYCLE)}:{1 - kept.run.partition}"]
        assert told["references_left_out"] == 0
        with processor(settings):
            await_decided(settings, kept.run.partition)
        decisions = there(settings, Topic.DECISIONS, kept.run.partition)
        before = there(kept.settings, Topic.DECISIONS, kept.run.partition)
        assert [(key, value) for _, key, value, _ in decisions] == [(key, value) for _, key, value, _ in before]
        assert rollbook(["audit", "--run", kept.run.run_id]) == 0
        assert rollbook(["history", "restore", str(kept.backup)]) == 2
    assert "is not empty: a restore writes into new topics alone" in capsys.readouterr().err


def test_payloads_that_retention_took_are_not_there_rather_than_something_else(
    kept: Kept, settings: Settings, tmp_path: Path
) -> None:
    """The file says which are named and gone; what is restored of it says the same, and audits clean."""
    topic = f"{kept.settings.topic_prefix}payloads"
    with open_history(kept.backup) as history:
        contents = history.of.log.contents[0]  # type: ignore[attr-defined]
        bodies = [list(history.of.log.read(one.topic, one.partition, one.start, one.end)) for one in contents.sections]
    gone = [body[3:] if one.topic == topic else body for one, body in zip(contents.sections, bodies, strict=True)]
    write(tmp_path / "backup.avro", contents, gone)
    restore([tmp_path / "backup.avro"], settings)
    with processor(settings):
        await_decided(settings, kept.run.partition)
    with environment(settings), open_history(run=kept.run.run_id) as history:
        (report,) = history.audit()
    assert report.passed, report.findings
    for section, body in zip(contents.sections, gone, strict=True):
        if section.topic == topic:
            # Of a partition that came to few payloads nothing is left: which key comes where is chance.
            kept_offsets = [offset for offset, *_ in there(settings, Topic.PAYLOADS, section.partition)]
            assert kept_offsets == [record.offset for record in body]


def made(
    path: Path, records: dict[int, bytes], *, topic: Topic = Topic.LIFECYCLE, partitions: int = PARTITIONS
) -> Path:
    """A file of partition 0 of a topic with these values by offset, from the first to the last."""
    name = f"{FROM}{topic}"
    section = Section(topic=name, partition=0, start=min(records), end=max(records) + 1)
    contents = Contents(topic_prefix=FROM, partitions={name: partitions}, sections=(section,))
    headers = (("some", b"header"), ("none", None))
    write(path, contents, [[StoredRecord(name, 0, at, 0, b"k", value, headers) for at, value in records.items()]])
    return path


def test_the_largest_records_are_restored_and_what_is_larger_packed_than_a_topic_takes_is_told(
    settings: Settings, tmp_path: Path
) -> None:
    """Random bytes do not get smaller; zeros do, so that a topic may hold more of them than it takes."""
    values = {0: os.urandom(LIFECYCLE_MAX_BYTES), 1: bytes(2 * LIFECYCLE_MAX_BYTES), 2: b"last"}
    done = restore([made(tmp_path / "large.avro", values)], settings)
    assert [(one.records, one.end) for one in done.partitions] == [(3, 3)]
    headers = (("some", b"header"), ("none", None))
    assert there(settings, Topic.LIFECYCLE, 0) == [(at, b"k", value, headers) for at, value in values.items()]


def test_a_record_that_the_topic_refuses_ends_it(settings: Settings, tmp_path: Path) -> None:
    topic = settings.topic(Topic.LIFECYCLE)
    entry = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)
    values = {0: b"first", **dict.fromkeys(range(1, 50), os.urandom(4_000))}
    with pytest.raises(EnvironmentFault, match=r"lifecycle:0@\d+ on .* was not written .*delete the topics"):
        restore([made(tmp_path / "a.avro", values)], settings)


def test_somebody_else_who_writes_there_is_found(settings: Settings, tmp_path: Path) -> None:
    path = made(tmp_path / "a.avro", {0: b"a", 1: b"b"})
    meanwhile: list[str] = []

    def watch(what: str, done: int, total: int) -> None:
        if not meanwhile and what.startswith("checking"):
            meanwhile.append(what)
            publish(settings, Topic.LIFECYCLE, 0, b"a stranger's")

    with pytest.raises(
        EnvironmentFault, match=r"lifecycle:0@0 has come to lie at offset 1: somebody else writes there"
    ):
        restore([path], settings, watch)


REFUSED: dict[str, tuple[Callable[[Path], list[Path]], str]] = {
    "begins later": (lambda at: [made(at / "a", {1: b"", 2: b""})], "lifecycle:0:0-1 is in none of the files"),
    "a gap in a file": (lambda at: [made(at / "a", {0: b"", 2: b""})], "lifecycle:0@1 is in none of the files"),
    "a gap between files": (
        lambda at: [made(at / "a", {0: b"", 1: b""}), made(at / "b", {3: b""})],
        "lifecycle:0:2-3 is in none of the files",
    ),
    "other partitions": (lambda at: [made(at / "a", {0: b""}, partitions=3)], "rollbook topics create --partitions 3"),
    "payloads alone": (lambda at: [made(at / "a", {0: b""}, topic=Topic.PAYLOADS)], "give its exports, too"),
    "other payload partitions": (
        lambda at: [made(at / "a", {0: b""}), made(at / "b", {0: b""}, topic=Topic.PAYLOADS, partitions=5)],
        "--payload-partitions 5",
    ),
    "no file": (lambda at: [at / "none"], "cannot be read"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_written(why: str, settings: Settings, tmp_path: Path) -> None:
    files, told = REFUSED[why]
    with pytest.raises((BadInput, OutOfRange), match=told):
        restore(files(tmp_path), settings)
    assert [there(settings, topic, 0) for topic in Topic] == [[]] * len(Topic)


def test_a_file_that_was_changed_is_refused_before_anything_is_written(
    kept: Kept, settings: Settings, tmp_path: Path
) -> None:
    """In its payloads, which nothing but the digest of their section vouches for."""
    with open_history(kept.backup) as history:
        contents = history.of.log.contents[0]  # type: ignore[attr-defined]
        bodies = [list(history.of.log.read(one.topic, one.partition, one.start, one.end)) for one in contents.sections]
    write(tmp_path / "other.avro", contents, [*bodies[:-1], [*bodies[-1][:-1], _changed(bodies[-1][-1])]])
    true, other = kept.backup.read_bytes(), (tmp_path / "other.avro").read_bytes()
    start = true.index(b"rollbook-history")
    (tmp_path / "changed.avro").write_bytes(true[:start] + other[start:])
    with environment(settings):
        assert rollbook(["history", "restore", str(tmp_path / "changed.avro")]) == 2
    assert [there(settings, topic, 0) for topic in Topic] == [[]] * len(Topic)


def _changed(record: StoredRecord) -> StoredRecord:
    assert record.value is not None
    return StoredRecord(record.topic, record.partition, record.offset, 0, record.key, bytes(len(record.value)))


def test_topics_that_are_not_there_are_named(kept: Kept, broker: str) -> None:
    with pytest.raises(BadInput, match=r"topic none-yet\.lifecycle does not exist"):
        restore([kept.backup], Settings(bootstrap_servers=broker, topic_prefix="none-yet."))
