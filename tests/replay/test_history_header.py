"""What a file says of itself: no terminal is written to by it, and a change of it alone is told."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from rollbook.infra.command import run as rollbook
from rollbook.replay.history.container import ANCHOR, CODEC, RECORD, Contents, write
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story

ESCAPE = "\x1b[31mred"


def section(**changed: object) -> list[dict[str, object]]:
    """Two, of which the last is another."""
    honest = {"topic": DECISIONS, "partition": 0, "start": 0, "end": 5}
    return [honest, {**honest, **changed}]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    story = Story().opened()
    story.update("u0", [story.group("a")])
    ranges = [OffsetRange(topic, 0) for topic in (LIFECYCLE, DECISIONS)]
    return export(story.log, SETTINGS, ranges, tmp_path / "run.avro").path


def with_metadata(file: Path, change: Callable[[dict[str, str]], object]) -> Path:
    """The same records under other metadata."""
    with file.open("rb") as stream:
        reader = fastavro.reader(stream)
        metadata = {name: text for name, text in reader.metadata.items() if name.startswith("rollbook.")}
        rows: list[Any] = list(reader)
    change(metadata)
    path = file.with_name("changed.avro")
    path.unlink(missing_ok=True)
    for topic in (LIFECYCLE, DECISIONS):
        with path.open("a+b") as out:  # a block of its own for each section
            some = [row for row in rows if row["topic"] == topic]
            fastavro.writer(out, RECORD, some, codec=CODEC, metadata=metadata, sync_marker=b"rollbook-history")
    return path


def history_with(key: str, value: object, digest: bool) -> Callable[[dict[str, str]], None]:
    """`digest`: made anew."""

    def change(metadata: dict[str, str]) -> None:
        said = json.loads(metadata["rollbook.history"])
        said[key] = value
        metadata["rollbook.history"] = text = json.dumps(said)
        if digest:
            metadata["rollbook.history.sha256"] = hashlib.sha256(text.encode()).hexdigest()

    return change


def test_as_it_was_it_is_taken(file: Path) -> None:
    with FileLog([with_metadata(file, lambda _: None)]) as log:
        assert list(log.verify()) == []


def test_one_without_a_digest_of_its_header_is_of_earlier(file: Path) -> None:
    with FileLog([with_metadata(file, lambda metadata: metadata.pop("rollbook.history.sha256"))]) as log:
        assert list(log.verify()) == []


def test_a_header_that_was_changed_alone_is_told(file: Path) -> None:
    with FileLog([file]) as log:
        sections = json.loads(log.contents[0].model_dump_json())["sections"]
    sections[0]["end"] += 1_000
    for key, value in (("sections", sections), ("partitions", {LIFECYCLE: 9, DECISIONS: 1}), ("writer", "x")):
        with pytest.raises(BadInput, match=r"damaged export \(rollbook.history is not what was written there\)"):
            FileLog([with_metadata(file, history_with(key, value, digest=False))])
        path = with_metadata(file, history_with(key, value, digest=True))
        with FileLog([path]) as log:
            assert list(log.verify()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topic_prefix", ESCAPE),
        ("partitions", {ESCAPE: 1}),
        ("partitions", {LIFECYCLE: 0, DECISIONS: 1}),
        ("sections", [{"topic": ESCAPE, "partition": 0, "start": 0, "end": 1}]),
        (
            "anchor",
            {"lifecycle": ESCAPE, "partition": 0, "topic_partitions": 1, "next_offset": 1, "digest": "0" * 64},
        ),
        ("anchor", {"lifecycle": "t", "partition": 0, "topic_partitions": 1, "next_offset": 1, "digest": ESCAPE}),
        ("anchor", {"lifecycle": "t", "partition": 0, "topic_partitions": 1, "next_offset": 0, "digest": "0" * 64}),
    ],
)
def test_names_that_no_topic_has_and_places_that_none_has_are_refused_and_drawn_nowhere(
    file: Path, key: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_metadata(file, history_with(key, value, digest=True))
    assert rollbook(["history", "show", str(path)]) == 2
    told = capsys.readouterr()
    assert "is a damaged export" in told.err
    assert "\x1b" not in told.out + told.err


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("topic_prefix", "u.", "is of no topic with prefix u."),
        ("partitions", {LIFECYCLE: 1}, f"{DECISIONS}:0:0-"),
        ("sections", section(topic=LIFECYCLE, partition=1), "is no range of the cluster's"),
        ("sections", section(topic=LIFECYCLE, start=6), f"{LIFECYCLE}:0:6-5 is no range of the cluster's"),
        ("sections", section(topic=ANCHOR), "the rows of an anchor are the last section"),
        (
            "anchor",
            {"lifecycle": "t", "partition": 0, "topic_partitions": 1, "next_offset": 1, "digest": "0" * 64},
            "the rows of an anchor are the last section",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(file: Path, key: str, value: object, told: str) -> None:
    with pytest.raises(BadInput, match="is a damaged export") as problem:
        FileLog([with_metadata(file, history_with(key, value, digest=True))])
    assert told in str(problem.value)


def test_digests_that_are_none_are_refused(file: Path) -> None:
    def change(metadata: dict[str, str]) -> None:
        totals = metadata["rollbook.totals"]
        metadata["rollbook.totals"] = totals[:20] + ESCAPE + totals[20 + len(ESCAPE) :]

    with pytest.raises(BadInput, match=r"damaged export \(rollbook.totals\)"):
        FileLog([with_metadata(file, change)])


def test_the_topic_that_a_record_itself_names_is_not_shown_where_it_is_another(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FileLog([file]) as log:
        contents: Contents = log.contents[0]
        bodies = [list(log.read(one.topic, 0, one.start, one.end)) for one in contents.sections]
    path = file.with_name("changed.avro")
    write(path, contents, [[replace(one, topic=ESCAPE) for one in bodies[0]], bodies[1]])
    for more in ([], ["--json"], ["--limit", "1"]):
        assert rollbook(["history", "show", str(path), *more]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert f"{LIFECYCLE}:0:0-" in told.err
        assert "\x1b" not in told.err
