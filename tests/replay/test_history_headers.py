"""Headers are part of a record: an export has them as the log does, nothing made of records depends on them, and who
changes one has changed the file."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.keys import position_key
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.history.container import write
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogClosed, LogSource, StoredRecord
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.schemas.codec import encode
from rollbook.schemas.records.ledger import Position
from rollbook.tests.replay import story as stories
from rollbook.tests.replay.materialized import tree
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import Story
from rollbook.tests.session_broker import own_topics

HEADERS: tuple[tuple[str, bytes | None], ...] = (
    ("trace", b"\x00\xff"),
    ("trace", b"the second of this name"),
    ("empty", b""),
    ("none", None),
    ("ümlaut", "ß".encode()),
)
TOPICS = (Topic.LIFECYCLE, Topic.DECISIONS, Topic.PAYLOADS, Topic.LEDGER)


@dataclass(frozen=True, slots=True)
class Told:
    """A story whose records all have headers, as a source has it, and the bundles of the same one without."""

    log: LogSource
    settings: Settings
    bundles: dict[str, bytes]


def told(settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryLog, dict[str, bytes]]:
    for name, topic in zip(("LIFECYCLE", "DECISIONS", "PAYLOADS"), TOPICS[:3], strict=True):
        monkeypatch.setattr(stories, name, settings.topic(topic))
    made = Story().opened()
    made.update("u0", [made.group("a")])
    made.update("u1", [made.group("b")])
    position = Position(next_offset=made.end, transactional_id="host")
    for key, value in (*rows_of(made.ledger), (position_key(0), encode(position))):
        made.log.append(settings.topic(Topic.LEDGER), 0, key, value)
    return made.log, bundles(made.log, settings, folder)


def bundles(log: LogSource, settings: Settings, folder: Path) -> dict[str, bytes]:
    wanted = Wanted.of_run("run-a", log, settings)
    assert materialize(log, wanted, folder).complete
    return tree(folder)


@pytest.fixture(params=["memory", "kafka"])
def story(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    if request.param == "memory":
        settings = Settings(topic_prefix="t.")
        log, plain = told(settings, tmp_path / "plain", monkeypatch)
        for topic in map(settings.topic, TOPICS):
            bounds = log.bounds(topic, 0)
            records = [replace(one, headers=HEADERS) for one in log.read(topic, 0, bounds.first, bounds.end)]
            log.put(topic, 0, bounds.end, records)
        yield Told(log, settings, plain)
        return
    with own_topics(request.getfixturevalue("broker"), 1) as own:
        log, plain = told(own, tmp_path / "plain", monkeypatch)
        producer = Producer({"bootstrap.servers": own.bootstrap_servers})
        for topic in map(own.topic, TOPICS):
            for one in log.read(topic, 0, 0, log.bounds(topic, 0).end):
                producer.produce(topic, one.value, one.key, 0, headers=list(HEADERS))
        assert producer.flush(30) == 0
        with KafkaLog(own) as kafka:
            yield Told(kafka, own, plain)


def records(log: LogSource, settings: Settings) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    for topic in map(settings.topic, TOPICS):
        bounds = log.bounds(topic, 0)
        found += log.read(topic, 0, bounds.first, bounds.end)
    return found


def exported(log: LogSource, settings: Settings, path: Path) -> Path:
    ranges = [OffsetRange(settings.topic(topic), 0) for topic in TOPICS if topic is not Topic.PAYLOADS]
    return export(log, settings, ranges, path, payloads=True).path


def test_they_are_exported_and_exported_again_as_they_are(story: Told, tmp_path: Path) -> None:
    there = records(story.log, story.settings)
    assert {one.headers for one in there} == {HEADERS}
    first = exported(story.log, story.settings, tmp_path / "first.avro")
    with FileLog([first]) as log:
        assert records(log, story.settings) == there
        second = exported(log, story.settings, tmp_path / "second.avro")
    assert second.read_bytes() == first.read_bytes()


def test_what_is_made_of_records_with_headers_is_what_is_made_of_them_without(story: Told, tmp_path: Path) -> None:
    path = exported(story.log, story.settings, tmp_path / "run.avro")
    with FileLog([path]) as file:
        for name, log in (("log", story.log), ("file", file)):
            report = audit(log, story.settings, stretch_of(log, story.settings, None, "run-a")).report
            assert (report.findings, report.undecided, report.checked.recordings) == ((), 0, 2), name
            assert not any("ledger" in one for one in report.unchecked), name
            made = bundles(log, story.settings, tmp_path / name)
            assert without_provenance(made) == without_provenance(story.bundles), name
    assert tree(tmp_path / "log") == tree(tmp_path / "file")


def without_provenance(made: dict[str, bytes]) -> dict[str, bytes]:
    """It names the offsets of decisions, between which this log has no markers in Kafka."""
    return {name: data for name, data in made.items() if not name.endswith(".provenance.json")}


def test_one_that_was_changed_in_a_file_is_found(story: Told, tmp_path: Path) -> None:
    path = exported(story.log, story.settings, tmp_path / "run.avro")
    with FileLog([path]) as log:
        contents = log.contents[0].model_copy(update={"sections": log.contents[0].sections[:1]})
        honest = list(log.read(contents.sections[0].topic, 0, 0, contents.sections[0].end))
    forged = [replace(honest[0], headers=(*HEADERS[:-1], ("ümlaut", b"ss"))), *honest[1:]]
    (said,), (really,) = (
        write(tmp_path / f"{name}.avro", contents, [some]) for name, some in (("honest", honest), ("forged", forged))
    )
    changed = tmp_path / "forged.avro"
    changed.write_bytes(changed.read_bytes().replace(really.digest.encode(), said.digest.encode()))
    with FileLog([changed]) as log:
        assert len(list(log.verify())) == 1


def test_a_log_that_is_closed_is_read_no_further(settings: Settings) -> None:
    topic = settings.topic(Topic.LIFECYCLE)
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    for number in range(3):
        producer.produce(topic, b"%d" % number, b"k", 0)
    assert producer.flush(30) == 0
    with KafkaLog(settings) as log:
        records = log.read(topic, 0, 0, 3)
        assert next(records).value == b"0"
    for late in (records, log.read(topic, 0, 0, 3), log.read_at(topic, 0, [1])):
        with pytest.raises(LogClosed, match="was closed: take what you need"):
            list(late)
