"""Exported files: the same bytes at any time, nothing missing, nothing added, and materialize works from them."""

import errno
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Topic
from rollbook.replay.history.container import write as write_file
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ofrun import is_of_run
from rollbook.replay.history.ranges import OffsetRange, parse_range
from rollbook.replay.history.referenced import Referenced
from rollbook.replay.history.source import OutOfRange, StoredRecord
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.schemas.codec import encode
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import Header, LearnerRef, PayloadRef, Source, SourceKind
from rollbook.schemas.records.update import RecordingRef, RecordingSealed
from rollbook.schemas.types import Part
from rollbook.tests.replay.materialized import tree, write
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story

PAYLOADS = SETTINGS.topic(Topic.PAYLOADS)
ALL = (OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0))


@pytest.fixture
def story() -> Story:
    made = Story().opened()
    made.update("u0", [made.group("a"), made.group("b")])
    made.group("never trained on")
    made.update("u1", [made.group("c")])
    return made


def test_bundles_from_a_file_are_those_from_the_log(story: Story, tmp_path: Path) -> None:
    assert write(story, tmp_path / "log").complete
    done = export(story.log, SETTINGS, ALL, tmp_path / "run.avro", payloads=True)
    with FileLog([done.path]) as log:
        wanted = Wanted.of_range(parse_range("lifecycle:0:-", SETTINGS), SETTINGS)
        assert materialize(log, wanted, tmp_path / "file").complete
        assert list(log.verify()) == []
    assert tree(tmp_path / "file") == tree(tmp_path / "log")


def test_the_same_range_gives_the_same_bytes_and_any_reader_opens_them(story: Story, tmp_path: Path) -> None:
    paths = [export(story.log, SETTINGS, ALL, tmp_path / name, payloads=True).path for name in ("a.avro", "b.avro")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with paths[0].open("rb") as file:
        rows: list[Any] = list(fastavro.reader(file))
    stored = list(story.log.read(LIFECYCLE, 0, 0, story.end))
    assert [(row["topic"], row["offset"], row["value"]) for row in rows[: len(stored)]] == [
        (LIFECYCLE, record.offset, record.value) for record in stored
    ]


def test_a_record_of_several_mebibytes_is_read_as_any_other(story: Story, tmp_path: Path) -> None:
    large = bytes(range(256)) * 4096 * 7
    offset = story.log.append(PAYLOADS, 0, b"k", large)
    ranges = [OffsetRange(PAYLOADS, 0)]
    with FileLog([export(story.log, SETTINGS, ranges, tmp_path / "large.avro").path]) as log:
        (record,) = log.read_at(PAYLOADS, 0, [offset])
        assert record.value == large
        assert list(log.verify()) == []


def test_only_payloads_that_are_named_are_taken_and_without_them_none(story: Story, tmp_path: Path) -> None:
    unnamed = story.log.append(PAYLOADS, 0, b"k", b"nobody names it")
    story.group("d")
    with FileLog([export(story.log, SETTINGS, ALL, tmp_path / "with.avro", payloads=True).path]) as log:
        bounds = log.bounds(PAYLOADS, 0)
        found = {record.offset for record in log.read(PAYLOADS, 0, bounds.first, bounds.end)}
        assert found == set(range(bounds.end)) - {unnamed}
    with (
        FileLog([export(story.log, SETTINGS, ALL, tmp_path / "without.avro").path]) as log,
        pytest.raises(BadInput, match="payloads is not in"),
    ):
        log.bounds(PAYLOADS, 0)


def test_payloads_that_are_gone_are_counted_and_the_rest_is_there(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where one in the middle is gone, as no retention takes it."""
    end = story.log.bounds(PAYLOADS, 0).end
    whole = export(story.log, SETTINGS, ALL, tmp_path / "whole.avro", payloads=True)
    assert (whole.gone, whole.unknown) == (0, 0)
    story.log.lose(PAYLOADS, 0, 3)
    story.log.remove(PAYLOADS, 0, end - 2)
    done = export(story.log, SETTINGS, ALL, tmp_path / "rest.avro", payloads=True)
    assert (done.gone, done.unknown) == (4, 0)
    with FileLog([done.path]) as log:
        assert [stored.offset for stored in log.read(PAYLOADS, 0, 0, end)] == [*range(3, end - 2), end - 1]
    assert rollbook(["history", "export", str(done.path), "lifecycle:0:-", "--payloads", "--out", f"{done.path}2"]) == 0
    assert "not there any more: 4 payload records that the lifecycle records name\n" in capsys.readouterr().out
    story.log.lose(PAYLOADS, 0, end)
    assert export(story.log, SETTINGS, ALL, tmp_path / "none.avro", payloads=True).gone == end
    for path, told in ((whole.path, 0), (done.path, 1)):
        assert rollbook(["history", "seal", str(path), "--payloads", "--out", f"{path}.sealed"]) == 0
        assert capsys.readouterr().out.count("not there any more: 4 payload records") == told


@pytest.mark.parametrize("within", [(None, None), (None, 3), (2, 5), (4, None)])
def test_payloads_that_are_asked_for_twice_are_written_once(
    story: Story, within: tuple[int | None, int | None], tmp_path: Path
) -> None:
    """By a range, and by the records that name them; from a file, too, where others are there than asked for."""
    end = story.log.bounds(PAYLOADS, 0).end
    path = export(
        story.log, SETTINGS, [*ALL, OffsetRange(PAYLOADS, 0, *within)], tmp_path / "a.avro", payloads=True
    ).path
    with path.open("rb") as file:
        rows: list[Any] = list(fastavro.reader(file))
    assert sorted(row["offset"] for row in rows if row["topic"] == PAYLOADS) == list(range(end))
    with FileLog([path]) as log:
        assert [one.offset for one in log.read(PAYLOADS, 0, 0, end)] == list(range(end))
        again = export(log, SETTINGS, [*ALL, OffsetRange(PAYLOADS, 0)], tmp_path / "b.avro", payloads=True)
    assert sum(total.records for total in again.totals[2:]) == end


NOT_OURS: dict[str, dict[str, Any]] = {
    "another topic": {"topic": "elsewhere"},
    "the lifecycle topic": {"topic": LIFECYCLE},
    "another partition": {"partition": 7},
    "far beyond the end": {"offsets": (1 << 40,)},
    "partly beyond the end": {"offsets": (0, 1 << 40)},
}


@pytest.mark.parametrize("wrong", NOT_OURS)
def test_what_anybody_names_that_is_no_payload_of_ours_is_in_no_exports_way(
    story: Story, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = export(story.log, SETTINGS, ALL, tmp_path / "honest.avro", payloads=True)
    good = story.payload

    def bad(key: str, record: Part) -> PayloadRef:
        return good(key, record).model_copy(update=NOT_OURS[wrong])

    story.payload = bad  # type: ignore[method-assign]
    story.group("d")
    path = tmp_path / "run.avro"
    done = export(story.log, SETTINGS, ALL, path, payloads=True)
    assert (done.gone, done.unknown) == (0, 2)
    assert done.sections[2] == honest.sections[2]
    assert done.totals[2] == honest.totals[2]
    again = tmp_path / "again.avro"
    assert rollbook(["history", "export", str(path), "--payloads", "--out", str(again)]) == 0
    assert "left out: 2 references to what is no payload of this log\n" in capsys.readouterr().out
    assert again.read_bytes() == path.read_bytes()


def naming(offset: int) -> StoredRecord:
    """A seal with a recording at an offset."""
    ref = PayloadRef(topic=PAYLOADS, partition=0, offsets=(offset,), size=1, sha256="0" * 64)
    recordings = (RecordingRef(rollout_id=0, step_id=0, payload=ref),)
    header = Header(run_id="r", event_id="e", occurred_at=0, source=Source(kind=SourceKind.OPERATOR, id="teller"))
    learner = LearnerRef(learner_id="l", epoch=1)
    sealed = RecordingSealed(
        header=header, learner=learner, update_id="u", rank=0, recordings=recordings, digest="0" * 64
    )
    return StoredRecord(LIFECYCLE, 0, 0, 0, b"r", encode(sealed))


def test_what_is_named_far_from_all_else_costs_little() -> None:
    """As the only record of the topic that is left may be."""
    far = 1 << 40
    tracemalloc.start()
    referenced = Referenced(PAYLOADS, lambda _: far + 1)
    for offset in (far, 0):
        referenced.note(naming(offset))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (section,) = referenced.sections()
    assert list(referenced.offsets(section)) == [0, far]
    assert (section.start, section.end, referenced.count(section)) == (0, far + 1, 2)
    assert peak < 5 << 20


def test_who_waits_for_payloads_sees_how_many_are_there(story: Story, tmp_path: Path) -> None:
    for number in range(9):
        story.group(f"more-{number}")
    seen: list[tuple[str, int, int]] = []
    done = export(story.log, SETTINGS, ALL, tmp_path / "run.avro", payloads=True, watch=lambda *told: seen.append(told))
    of_payloads = [(count, total) for what, count, total in seen if what == f"payloads of {PAYLOADS}:0"]
    records = done.totals[2].records
    assert of_payloads[0] == (0, records)
    assert of_payloads[-1] == (records, records)
    assert len(of_payloads) > 2
    assert of_payloads == sorted(of_payloads)


def test_a_run_alone_leaves_the_others_out(story: Story, tmp_path: Path) -> None:
    foreign = story.log.append(LIFECYCLE, 0, b"another run", b"x")
    path = export(story.log, SETTINGS, ALL, tmp_path / "run.avro", run_id=story.run_id).path
    with FileLog([path]) as log:
        offsets = [record.offset for record in log.read(LIFECYCLE, 0, 0, story.end)]
        assert offsets == [offset for offset in range(story.end) if offset != foreign]
        assert {section.run for section in log.sections} == {story.run_id}
    assert is_of_run(StoredRecord("t", 0, 0, 0, b'["r","trajectory","t"]', b""), "r")
    assert not is_of_run(StoredRecord("t", 0, 0, 0, b'["q","trajectory","t"]', b""), "r")


def test_ranges_that_overlap_or_a_file_that_exists_are_refused(story: Story, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="overlap: give each offset once"):
        export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0, 0, 5), OffsetRange(LIFECYCLE, 0, 4)], tmp_path / "x")
    (tmp_path / "there.avro").write_text("mine")
    with pytest.raises(BadInput, match="an export replaces nothing"):
        export(story.log, SETTINGS, ALL, tmp_path / "there.avro")
    with pytest.raises(OutOfRange, match="beyond the end"):
        export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0, 0, 10_000)], tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["there.avro"]


def test_nothing_of_the_users_is_in_the_way_or_lost(story: Story, tmp_path: Path) -> None:
    (tmp_path / "a.avro.unfinished").write_text("mine")
    (tmp_path / "b.avro.unfinished").mkdir()
    for name in ("a.avro", "b.avro"):
        export(story.log, SETTINGS, ALL, tmp_path / name)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["a.avro", "a.avro.unfinished", "b.avro", "b.avro.unfinished"]
    assert (tmp_path / "a.avro.unfinished").read_text() == "mine"


@pytest.mark.parametrize("has_links", [True, False])
def test_of_two_exports_to_one_file_at_once_the_first_to_finish_has_it(
    story: Story, tmp_path: Path, has_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr("os.link", no_links)
    out = tmp_path / "run.avro"
    others: list[bytes] = []

    def meanwhile(*_: object) -> None:
        if not others:
            others.append(b"")  # it has begun
            others[0] = export(story.log, SETTINGS, ALL[:1], out).path.read_bytes()

    with pytest.raises(BadInput, match="exists: an export replaces nothing"):
        export(story.log, SETTINGS, ALL, out, watch=meanwhile)
    assert out.read_bytes() == others[0] != b""
    assert list(tmp_path.iterdir()) == [out]


def test_what_is_between_two_files_is_told(story: Story, tmp_path: Path) -> None:
    parts = [OffsetRange(LIFECYCLE, 0, 0, 3), OffsetRange(LIFECYCLE, 0, 6, 9)]
    paths = [export(story.log, SETTINGS, [one], tmp_path / f"{one.start}.avro").path for one in parts]
    with FileLog(paths) as log:
        assert [record.offset for record in log.read(LIFECYCLE, 0, 6, 9)] == [6, 7, 8]
        with pytest.raises(OutOfRange, match="to be had are offsets 0 to 2"):
            list(log.read(LIFECYCLE, 0, 2, 7))


def cut(data: bytes) -> bytes:
    return data[:-200]


def last_block_gone(data: bytes) -> bytes:
    """As a copy that ended between two blocks."""
    blocks = data.split(b"rollbook-history")
    return b"rollbook-history".join(blocks[:-2]) + b"rollbook-history"


def unfinished(data: bytes) -> bytes:
    at = data.index(b"rollbook.totals") + len(b"rollbook.totals") + 2
    return data[:at] + b"unfinished" + data[at + len(b"unfinished") :]


def blown_up(data: bytes) -> bytes:
    """Its records' first block unpacks to a thousand times its size."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    block = b"".join(packer.compress(bytes(1024 * 1024)) for _ in range(80)) + packer.flush()
    header, mark, _ = data.partition(b"rollbook-history")
    return header + mark + varint(1) + varint(len(block)) + block + mark


def with_header(data: bytes, name: str, value: bytes) -> bytes:
    """As if the container said this of itself."""
    key = varint(len(name)) + name.encode()
    at = data.index(key) + len(key)
    with BytesIO(data[at:]) as rest:
        length = int(str(fastavro.schemaless_reader(rest, "long", None)))
        return data[:at] + varint(len(value)) + value + data[at + rest.tell() + length :]


def endless(data: bytes) -> bytes:
    """Its one block is an array of so many nulls that no memory holds them, in nine bytes."""
    header, mark, _ = with_header(data, "avro.schema", b'{"type": "array", "items": "null"}').partition(
        b"rollbook-history"
    )
    block = zlib.compress(varint(1 << 50) + varint(0), wbits=-zlib.MAX_WBITS)
    return header + mark + varint(1) + varint(len(block)) + block + mark


def other_codec(data: bytes) -> bytes:
    """In which nobody measured what a block unpacks to."""
    return with_header(data, "avro.codec", b"bzip2")


def varint(number: int) -> bytes:
    """As Avro writes a long that is not negative."""
    digits, left = [], number << 1
    while left > 0x7F:
        digits.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*digits, left])


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (blown_up, "unpacks to more than 64 MiB"),
        (endless, "not of the schema and codec of exports"),
        (other_codec, "not of the schema and codec of exports"),
        (cut, "does not read to its end"),
        (last_block_gone, "was cut short"),
        (unfinished, "was never finished"),
        (lambda data: b"PK" + data, "is no Avro container file"),
        (lambda _: b"", "is no Avro container file"),
    ],
)
def test_a_file_that_was_harmed_is_told(
    story: Story, tmp_path: Path, harm: Callable[[bytes], bytes], told: str
) -> None:
    path = export(story.log, SETTINGS, ALL, tmp_path / "run.avro").path
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(BadInput, match=told) as problem:
        FileLog([path])
    assert "\n" not in str(problem.value)


def test_a_record_that_was_changed_in_a_file_is_found(story: Story, tmp_path: Path) -> None:
    path = export(story.log, SETTINGS, ALL, tmp_path / "run.avro").path
    with FileLog([path]) as log:
        contents, before = log.contents[0], list(log.read(LIFECYCLE, 0, 0, story.end))
    forged = [replace(record, timestamp_ms=record.timestamp_ms + (record.offset == 3)) for record in before]
    one = contents.model_copy(update={"sections": contents.sections[:1]})
    honest, other = tmp_path / "honest.avro", tmp_path / "forged.avro"
    (honestly,), (otherwise,) = write_file(honest, one, [before]), write_file(other, one, [forged])
    other.write_bytes(other.read_bytes().replace(otherwise.digest.encode(), honestly.digest.encode()))
    for file, problems in ((honest, 0), (other, 1)):
        with FileLog([file]) as log:
            assert len(list(log.verify())) == problems
