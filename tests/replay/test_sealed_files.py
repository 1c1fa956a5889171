"""Sealed files, one after the other: read together they are the whole log, and no gap between them is passed over."""

import itertools
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.replay.audit.anchor import anchor_of
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.audit.seal import plan, seal
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.prove.asked import Asked
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of
from rollbook.tests.processors.history import History
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story
from rollbook.tests.replay.test_prove import group, policy

NAMES = [f"run-{number}" for number in range(9)]


@pytest.fixture
def story() -> Story:
    """A policy of an update each, the second made of the first."""
    made = Story().opened()
    made.update("u0", [group(made, "a", "sums")])
    policy(made, 1, 0, "u0")
    made.update("u1", [group(made, "c", "roots")])
    policy(made, 2, 1, "u1")
    return made


def sealed(story: Story, folder: Path, *ends: int, run_id: str | None = None) -> list[Path]:
    """The log in files that end before these offsets, each from the anchor of the one before."""
    paths: list[Path] = []
    for first, end in itertools.pairwise([0, *ends]):
        before = anchor_of(paths[-1]) if paths else None
        within = OffsetRange(LIFECYCLE, 0, before.note.next_offset if before else first, end)
        stretch = stretch_of(story.log, SETTINGS, within, run_id)
        path = folder / f"{run_id}-{first}-{end}.avro"
        assert seal(story.log, SETTINGS, stretch, path, before=before).exported is not None
        paths.append(path)
    return paths


def test_files_sealed_one_after_the_other_join_wherever_they_are_cut(story: Story, tmp_path: Path) -> None:
    """Between their decisions there may lie the end of a transaction."""
    for middle in range(3, story.end):
        first, second = sealed(story, tmp_path, middle, story.end)
        with FileLog([second]) as log:
            assert log.bounds(DECISIONS, 0).first == anchor_of(first).note.next_decision, "none is sealed twice"
        with FileLog([first, second]) as log:
            report = audit(log, SETTINGS, stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)).report
        assert report.passed
        assert (report.decided, report.undecided) == (story.end, 0)
        for path in tmp_path.iterdir():
            path.unlink()


def test_they_join_also_where_the_sealed_part_has_left_the_log(story: Story, tmp_path: Path) -> None:
    middle = 3
    (first,) = sealed(story, tmp_path, middle)
    with FileLog([first]) as log:
        decided = log.bounds(DECISIONS, 0).end
    story.log.lose(LIFECYCLE, 0, middle)
    story.log.lose(DECISIONS, 0, decided)
    rest = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)
    seal(story.log, SETTINGS, rest, tmp_path / "rest.avro", before=anchor_of(first))
    with FileLog([first, tmp_path / "rest.avro"]) as log:
        report = audit(log, SETTINGS, stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)).report
    assert (report.passed, report.decided, report.undecided) == (True, story.end, 0)


def test_seals_of_a_run_join_over_records_and_decisions_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the anchor on, wherever the next record of the run lies."""
    story = Story().opened()
    other = Story("run-b", log=story.log, ledger=story.ledger).opened()
    middle = story.end
    story.update("u0", [group(story, "a", "sums")])
    policy(story, 1, 0, "u0")
    other.update("theirs", [group(other, "z", "products")])
    ranges = [OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)]
    whole = str(export(story.log, SETTINGS, ranges, tmp_path / "whole.avro").path)
    folder = tmp_path / "sealed"
    folder.mkdir()
    ask = ["history", "seal", whole, "--run", story.run_id, "--out", str(folder)]
    assert rollbook([*ask, f"lifecycle:0:-{middle}"]) == 0
    first = folder / "lifecycle-0-0.avro"
    assert anchor_of(first).note.next_offset < middle - 1, "the last records below are of the other run"
    assert rollbook([*ask, "--anchor", str(first)]) == 0
    files = sorted(map(str, folder.iterdir()))
    assert len(files) == 2
    capsys.readouterr()
    assert rollbook(["prove", "--run", story.run_id, "--policy", "1", *files]) == 0
    assert "1 update, 1 optimizer step, 2 trajectories" in capsys.readouterr().out
    assert rollbook(["audit", "--run", story.run_id, *files]) == 0
    assert "not decided yet" not in capsys.readouterr().out


@pytest.mark.parametrize("of_run", [None, "run-a"])
@pytest.mark.parametrize("asked", [[], ["lifecycle:0:-"]])
def test_an_open_start_is_at_the_anchor_in_files_as_it_is_in_kafka(
    story: Story, of_run: str | None, asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where files were narrowed to runs, whose first offsets are known."""
    middle, ranges = story.end // 2, [OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)]
    whole = str(export(story.log, SETTINGS, ranges, tmp_path / "whole.avro", run_id=of_run).path)
    first, second = (str(tmp_path / f"{name}.avro") for name in ("first", "second"))
    assert rollbook(["history", "seal", whole, f"lifecycle:0:-{middle}", "--out", first]) == 0
    from_there = [whole, *asked, "--anchor", first]
    for command in (["audit"], ["audit", "--with", "max_lag=9"], ["history", "seal", "--out", second]):
        capsys.readouterr()
        assert rollbook([*command, *from_there]) == 0, capsys.readouterr()
        assert f"{LIFECYCLE}:0:{middle}-{story.end}" in capsys.readouterr().out
    assert rollbook(["audit", first, "--anchor", second]) == 2
    assert f"is the state before {LIFECYCLE}:0:{story.end}-, and the range begins at" in capsys.readouterr().err
    assert rollbook(["audit", whole, f"lifecycle:0:0-{middle}", "--anchor", first]) == 2, "a START that is given stands"


def test_a_proof_from_sealed_files_and_the_rest_is_that_of_the_whole_log(story: Story, tmp_path: Path) -> None:
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    asked = Asked.of(task_ids=["sums", "tensors"])
    whole = prove(story.log, stretch, OfPolicy(2), asked=asked)
    for run_id in (None, story.run_id):
        paths = sealed(story, tmp_path, 7, 12, run_id=run_id)
        end = anchor_of(paths[-1]).note.next_offset
        ranges = [OffsetRange(LIFECYCLE, 0, end, None), OffsetRange(DECISIONS, 0, None, None)]
        paths.append(export(story.log, SETTINGS, ranges, tmp_path / f"rest-{run_id}.avro").path)
        with FileLog(paths) as log:
            assert prove(log, stretch_of(log, SETTINGS, None, story.run_id), OfPolicy(2), asked=asked) == whole


def test_a_proof_of_files_that_do_not_join_is_refused(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a policy that the first of them has whole: what the others hold was not looked at."""
    first, second, third = sealed(story, tmp_path, 12, 15, story.end)
    ask = ["prove", "--run", story.run_id, "--policy", "1"]
    assert rollbook([*ask, str(first), str(third)]) == 2
    assert f"{LIFECYCLE}:0:12-15 is in none of the files" in capsys.readouterr().err
    assert rollbook([*ask, str(first), str(third), "lifecycle:0:-12"]) == 2
    assert f"{LIFECYCLE}:0:12-15 is in none of the files" in capsys.readouterr().err
    assert rollbook([*ask, str(first)]) == 0
    assert rollbook([*ask, str(third), str(first), str(second)]) == 0
    capsys.readouterr()
    assert rollbook([*ask, str(second), str(third)]) == 2
    said = capsys.readouterr().err
    assert "number 13 of the run; what lies before it is in all weights that followed" in said
    assert "begin with the run's first record; the files that hold it may be given together" in said
    assert "--anchor" not in said, "a proof has no such option"
    clean = tmp_path / "clean.txt"
    clean.write_text("tensors\n")
    assert rollbook([*ask, str(second), str(third), "--absent", str(clean)]) == 2


def test_decisions_that_do_not_join_are_a_gap_like_any_other(story: Story, tmp_path: Path) -> None:
    parts = (OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0, 0, 5)), (OffsetRange(DECISIONS, 0, 9, None),)
    paths = [export(story.log, SETTINGS, part, tmp_path / f"{n}.avro").path for n, part in enumerate(parts)]
    with FileLog(paths) as log, pytest.raises(BadInput, match=f"{DECISIONS}:0:5-9 is in none of the files"):
        prove(log, stretch_of(log, SETTINGS, None, story.run_id), OfPolicy(1))


def test_a_file_of_another_run_closes_no_gap(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the offsets, and not the run's records at them."""
    middle = story.end
    other = Story("run-b", log=story.log, ledger=story.ledger).opened()
    story.update("u2", [group(story, "e", "evaluation")])
    policy(story, 3, 2, "u2")
    ranges = [OffsetRange(LIFECYCLE, 0, None, middle), OffsetRange(DECISIONS, 0)]
    start = export(story.log, SETTINGS, ranges, tmp_path / "start.avro", run_id=story.run_id).path
    theirs = export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0)], tmp_path / "b.avro", run_id=other.run_id).path
    with FileLog([start, theirs]) as log, pytest.raises(BadInput, match="was exported of run run-b alone"):
        prove(log, stretch_of(log, SETTINGS, None, story.run_id), OfPolicy(3))
    ask = ["prove", "--run", story.run_id, str(start), str(theirs), "--policy"]
    assert rollbook([*ask, "3"]) == 2
    assert "the run has no policy 3" in capsys.readouterr().err
    assert rollbook([*ask, "2"]) == 0


def test_partitions_are_sealed_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, folder = str(two_partitions(tmp_path / "whole.avro")), tmp_path / "sealed"
    assert rollbook(["history", "seal", whole, "lifecycle:0:-6", "lifecycle:1:-7", "--out", str(folder)]) == 0
    told = capsys.readouterr().out
    first = [folder / "lifecycle-0-0.avro", folder / "lifecycle-1-0.avro"]
    assert sorted(folder.iterdir()) == first
    assert "may leave Kafka: t.lifecycle:0:0-6, t.decisions:0:0-" in told
    assert f"written: {first[1]}" in told
    anchors = [part for path in first for part in ("--anchor", str(path))]
    rest = [whole, "lifecycle:0:-", "lifecycle:1:7-"]
    assert rollbook(["history", "seal", *rest, *anchors, "--out", str(folder)]) == 0
    assert sorted(folder.iterdir()) == sorted([*first, folder / "lifecycle-0-6.avro", folder / "lifecycle-1-7.avro"])
    for partition, begin in ((0, 6), (1, 7)):
        files = [str(folder / f"lifecycle-{partition}-{offset}.avro") for offset in (0, begin)]
        assert rollbook(["audit", *files, f"lifecycle:{partition}:-"]) == 0
    assert "not decided yet" not in capsys.readouterr().out
    assert rollbook(["audit", *map(str, folder.iterdir())]) == 0
    assert capsys.readouterr().out.count("PASS") == 2


def test_of_several_partitions_those_are_sealed_that_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, folder = str(two_partitions(tmp_path / "whole.avro", tampered=True)), tmp_path / "sealed"
    assert rollbook(["history", "seal", whole, "--out", str(folder)]) == 1
    assert "not sealed: t.lifecycle:0 " in capsys.readouterr().err
    assert list(folder.iterdir()) == [folder / "lifecycle-1-0.avro"]


def test_what_is_in_the_way_of_a_seal_is_told_before_anything_is_written(story: Story, tmp_path: Path) -> None:
    (path,) = sealed(story, tmp_path, 7)
    anchor, out = anchor_of(path), tmp_path / "out"

    def stretch(partition: int, start: int) -> Stretch:
        return stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, partition, start), None)

    with pytest.raises(BadInput, match="two ranges are of partition 0"):
        plan([stretch(0, 0), stretch(0, 7)], [anchor], out)
    with pytest.raises(BadInput, match="two anchors are of partition 0"):
        plan([stretch(0, 7)], [anchor, anchor], out)
    with pytest.raises(BadInput, match="is the state before"):
        plan([stretch(0, 8)], [anchor], out)
    with pytest.raises(BadInput, match="exists"):
        plan([stretch(0, 7)], [anchor], path)
    with pytest.raises(BadInput, match="leave it out"):
        plan([], [anchor], out)
    assert not out.exists()
    assert [one.out for one in plan([stretch(0, 7)], [anchor], tmp_path)] == [tmp_path / "lifecycle-0-7.avro"]


def two_partitions(path: Path, *, tampered: bool = False) -> Path:
    """A run in each of two partitions, in one file; `tampered`: one of them was."""
    log = MemoryLog(2)
    for name in (next(name for name in NAMES if partition_of(name, 2) == partition) for partition in (0, 1)):
        history = History(name, topic_partitions=2).opened()
        for count in range(9):
            history.generated(f"t{count}")
        for record, folded in zip(history.log.records, history.log.folded, strict=True):
            log.append(LIFECYCLE, record.partition, record.key or b"", record.value or b"")
            log.append(DECISIONS, record.partition, name.encode(), folded.encoded)
            log.marker(DECISIONS, record.partition)
    if tampered:
        log.tamper(LIFECYCLE, 0, 3, b"no record of ours")
    ranges = [OffsetRange(topic, partition) for topic in (LIFECYCLE, DECISIONS) for partition in (0, 1)]
    return export(log, SETTINGS, ranges, path).path


def test_files_of_two_clusters_are_told_apart_and_of_one_they_may_have_different_topics(
    story: Story, tmp_path: Path
) -> None:
    only_decisions = export(story.log, SETTINGS, [OffsetRange(DECISIONS, 0)], tmp_path / "decisions.avro").path
    with FileLog([only_decisions, *sealed(story, tmp_path, story.end)]) as log:
        assert (log.partitions(LIFECYCLE), log.partitions(DECISIONS)) == (1, 1)
    with pytest.raises(BadInput, match="were exported from different clusters"):
        FileLog([only_decisions, two_partitions(tmp_path / "two.avro")])
