"""Several exported files are one log: each offset once, run by run where they were narrowed to runs, and no command
passes over a gap."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.keys import position_key
from rollbook.replay.history.export import export, ranges_of_run
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.joined import gap_in, joined
from rollbook.replay.history.known import check_known
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, LogClosed, NotTheLog, OutOfRange
from rollbook.replay.history.targets import opened, opened_for
from rollbook.replay.materialize.walk import wanted_of
from rollbook.replay.updates.replayed import UpdateOutcome, replay_history
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PayloadRef
from rollbook.schemas.types import Part
from rollbook.tests.replay.materialized import tree
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, PAYLOADS, SETTINGS, Story

ALL = OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)


@pytest.fixture
def story() -> Story:
    """Run a, with run b beside it in the same partition."""
    a = Story("run-a").opened()
    b = Story("run-b", a.log, a.ledger, learner_id="learner-b").opened()
    for one, name in ((a, "u0"), (b, "v0"), (a, "u1"), (b, "v1")):
        one.update(name, [one.group(f"group of {name}")])
    return a


@pytest.fixture
def whole(story: Story, tmp_path: Path) -> str:
    return written(story, tmp_path / "whole.avro", *ALL)


@pytest.fixture
def runs(story: Story, tmp_path: Path) -> list[str]:
    """A file of each run alone."""
    return [written(story, tmp_path / f"{name}.avro", *ALL, run_id=name) for name in ("run-a", "run-b")]


def written(story: Story, path: Path, *ranges: OffsetRange, run_id: str | None = None) -> str:
    return str(export(story.log, SETTINGS, ranges, path, run_id=run_id, payloads=True).path)


def parts(story: Story, folder: Path, *cuts: int | None) -> list[str]:
    """The lifecycle cut before these offsets, all decisions in the first file."""
    found = []
    for number, (start, end) in enumerate(zip((0, *cuts), (*cuts, None), strict=True)):
        ranges = [OffsetRange(LIFECYCLE, 0, start, end), *([OffsetRange(DECISIONS, 0)] if not number else [])]
        found.append(written(story, folder / f"part-{number}.avro", *ranges))
    return found


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What a command prints; of the refusal its only line."""
    assert rollbook(list(arguments)) == code, capsys.readouterr()
    out, err = capsys.readouterr()
    assert code != 2 or err.count("\n") == 1
    return err if code == 2 else out


def no(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert rollbook(["history", *arguments]) == 1
    return capsys.readouterr().err


def offsets(log: FileLog, topic: str = LIFECYCLE) -> list[int]:
    bounds = log.bounds(topic, 0)
    return [stored.offset for stored in log.read(topic, 0, bounds.first, bounds.end)]


def test_stretches_are_joined_wherever_they_touch() -> None:
    assert joined([Bounds(5, 9), Bounds(0, 3), Bounds(2, 5), Bounds(11, 12), Bounds(6, 7)]) == [
        Bounds(0, 9),
        Bounds(11, 12),
    ]


@pytest.mark.parametrize(
    ("wanted", "gap"),
    [
        (Bounds(2, 6), None),
        (Bounds(2, 7), Bounds(6, 7)),
        (Bounds(2, 12), Bounds(6, 9)),
        (Bounds(7, 12), Bounds(7, 9)),
        (Bounds(9, 13), Bounds(12, 13)),
        (Bounds(0, 3), Bounds(0, 2)),
        (Bounds(13, 14), Bounds(13, 14)),
        (Bounds(7, 7), None),
    ],
)
def test_the_first_gap_of_what_is_wanted(wanted: Bounds, gap: Bounds | None) -> None:
    assert gap_in(wanted, [Bounds(2, 6), Bounds(9, 12)]) == gap


def test_files_that_overlap_are_read_once_and_in_order(story: Story, runs: list[str], whole: str) -> None:
    files = list(map(Path, (runs[1], runs[0], whole, whole)))
    for some in (files, files[:2], files[2:]):
        with FileLog(some) as log:
            assert offsets(log) == list(range(story.end))
            wanted = [1, 3, story.end - 1]
            assert [stored.offset for stored in log.read_at(LIFECYCLE, 0, wanted)] == wanted
    with FileLog(files, "run-a") as log, FileLog([files[2]]) as all_of_it:
        assert list(log.read(LIFECYCLE, 0, 2, 9)) == list(all_of_it.read(LIFECYCLE, 0, 2, 9))
        assert {one.run for one in log.sections} == {None, "run-a"}


def test_files_that_hold_different_records_at_one_place_are_refused(story: Story, whole: str, tmp_path: Path) -> None:
    stored = next(iter(story.log.read(LIFECYCLE, 0, 4, 5)))
    story.log.put(LIFECYCLE, 0, 5, [replace(stored, timestamp_ms=1)])
    other = written(story, tmp_path / "other.avro", OffsetRange(LIFECYCLE, 0))
    with FileLog([Path(whole), Path(other)]) as log:
        for reading in (log.read(LIFECYCLE, 0, 0, 6), log.read_at(LIFECYCLE, 0, [4])):
            with pytest.raises(NotTheLog, match=f"hold different records at {LIFECYCLE}:0@4"):
                list(reading)


def test_a_gap_is_told_before_the_first_record(story: Story, tmp_path: Path) -> None:
    first, _, third = parts(story, tmp_path, 6, 9)
    with FileLog([Path(third), Path(first)]) as log:
        assert log.bounds(LIFECYCLE, 0) == Bounds(0, story.end)
        assert [stored.offset for stored in log.read(LIFECYCLE, 0, 9, 11)] == [9, 10]
        for start, end, gap in ((2, 20, "6-9"), (7, 8, "7-8"), (8, 12, "8-9")):
            with pytest.raises(OutOfRange, match=f"{LIFECYCLE}:0:{gap} is in none of the files .*part-2"):
                next(log.read(LIFECYCLE, 0, start, end))


def commands(folder: Path, story: Story, files: Sequence[str]) -> list[list[str]]:
    """Every command over a history, of files alone."""
    ask = ["--run", story.run_id]
    return [
        ["audit", *files],
        ["audit", *ask, *files],
        ["audit", *files, "--with", "max_lag=1"],
        ["replay", *files],
        ["replay", *ask, *files],
        ["materialize", *files, "--out", str(folder / "bundles")],
        ["prove", *ask, "--policy", "0", *files],
        ["diff", story.run_id, "run-b", *files],
        ["history", "show", *files],
        ["history", "export", *files, "--out", str(folder / "again.avro")],
        ["history", "seal", *files, "--out", str(folder / "sealed.avro")],
    ]


def command_text(out: str, folder: Path) -> str:
    """But for the names of files."""
    return re.sub(rf"{folder.parent}[^ ]*?(, |$|: )", "", out.replace(f"{folder}/", ""), flags=re.MULTILINE)


def test_every_command_takes_files_that_join_and_says_of_them_what_it_says_of_the_whole(
    story: Story, whole: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for name, files in (("joined", [*parts(story, tmp_path, 14, 25), whole]), ("one", [whole])):
        folder = tmp_path / name
        folder.mkdir()
        for command in commands(folder, story, files):
            code = rollbook(command)
            said.append((code, command_text(capsys.readouterr().out, folder)))
    of_parts, of_whole = said[: len(said) // 2], said[len(said) // 2 :]
    assert of_parts == of_whole
    assert {code for code, _ in of_parts} == {0}
    for name in ("again.avro", "sealed.avro"):
        assert (tmp_path / "joined" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert tree(tmp_path / "joined" / "bundles") == tree(tmp_path / "one" / "bundles")


@pytest.mark.parametrize("topic", [LIFECYCLE, DECISIONS])
def test_every_command_refuses_a_gap(
    story: Story, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = DECISIONS if topic == LIFECYCLE else LIFECYCLE
    files = [
        written(story, tmp_path / "first.avro", OffsetRange(topic, 0, 0, 20), OffsetRange(other, 0)),
        written(story, tmp_path / "third.avro", OffsetRange(topic, 0, 23)),
    ]
    for command in commands(tmp_path, story, files):
        assert f"{topic}:0:20-23" in told(capsys, *command, code=2), command
    shown = told(capsys, "history", "show", *files, f"{topic}:0:19-20", f"{topic}:0:23-25", "--json")
    assert {json.loads(line)["offset"] for line in shown.splitlines()} <= {19, 23, 24}
    assert f"{topic}:0:20-23" in told(capsys, "history", "show", *files, f"{topic}:0:-", code=2)


def test_two_runs_of_one_partition_each_in_its_file(
    story: Story, runs: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    updates = [line for line in told(capsys, "replay", *runs).splitlines() if "update" in line]
    assert "4 committed updates: 4 pass" in updates[-1]
    assert [sum(f"{run} " in line for line in updates) for run in ("run-a", "run-b")] == [2, 2]
    assert "2 committed updates: 2 pass" in told(capsys, "replay", "--run", "run-b", *runs)
    audits = [line for line in told(capsys, "audit", *runs).splitlines() if line.startswith(("PASS", "FAIL"))]
    assert [line.split(" of run ") for line in audits] == [
        [f"PASS  {LIFECYCLE}:0:0-{story.end}", run] for run in ("run-a", "run-b")
    ]
    assert told(capsys, "audit", "--run", "run-b", *runs).startswith(audits[1])
    told(capsys, "prove", "--run", "run-b", "--policy", "0", *runs)
    told(capsys, "materialize", *runs, "--out", str(tmp_path / "both"))
    assert len(list((tmp_path / "both").glob("*.provenance.json"))) == 8
    shown = told(capsys, "history", "show", *runs, "--json")
    assert len(shown.splitlines()) == len(set(shown.splitlines()))


def test_what_goes_out_of_files_of_runs_says_so_in_the_next_file(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else it would have all records of its ranges, and those of other runs would never have been there."""
    both = tmp_path / "both.avro"
    said = told(capsys, "history", "export", *runs, "--payloads", "--out", str(both)).splitlines()
    assert [line.split()[0] + line.partition(" of run ")[2][:5] for line in said[:4]] == [
        f"{topic}:0:0-{end}{run}" for topic, end in ((LIFECYCLE, 38), (DECISIONS, 50)) for run in ("run-a", "run-b")
    ]
    with FileLog([both]) as log, FileLog(list(map(Path, runs))) as before:
        assert [one.run for one in log.sections if one.topic == LIFECYCLE] == ["run-a", "run-b"]
        assert [one.run for one in log.sections if one.topic == DECISIONS] == ["run-a", "run-b"]
        assert offsets(log) == offsets(before)
        assert offsets(log, DECISIONS) == offsets(before, DECISIONS)
    assert "4 pass" in told(capsys, "replay", str(both))
    assert f"{LIFECYCLE}:0:2-3 of run run-b" in no(capsys, "show", runs[1], "lifecycle:0:2-3")
    with FileLog([Path(runs[0])]) as log:
        done = export(log, SETTINGS, [OffsetRange(LIFECYCLE, 0)], tmp_path / "again.avro")
        assert [one.run for one in done.sections] == ["run-a"]


def test_a_range_of_files_of_runs_is_one_of_each_run(
    runs: list[str], story: Story, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with opened([*runs, "lifecycle:0:4-"]) as of:
        assert of.ranges == tuple(OffsetRange(LIFECYCLE, 0, 4, story.end, run) for run in ("run-a", "run-b"))
    late = written(story, tmp_path / "late.avro", OffsetRange(LIFECYCLE, 0, 30), OffsetRange(DECISIONS, 0), run_id="c")
    with opened([*runs, late, "lifecycle:0:-36"]) as of:
        assert [(one.run, one.start, one.end) for one in of.ranges] == [
            ("c", 30, 36),
            ("run-a", 0, 36),
            ("run-b", 0, 36),
        ]
    assert f"{LIFECYCLE}:0:4-30 of run c is in none of the files" in told(
        capsys, "replay", *runs, late, "lifecycle:0:4-", code=2
    )


def test_a_file_of_a_run_and_one_of_all_need_a_word_on_what_is_meant(
    runs: list[str], story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = written(story, tmp_path / "rest.avro", OffsetRange(LIFECYCLE, 0, 20))
    for command in (["audit"], ["replay"], ["history", "show"], ["audit", "lifecycle:0:-"]):
        assert "was exported of run run-a alone, and" in told(capsys, *command, runs[0], rest, code=2)
        told(capsys, *command[:2], "--run", "run-a", runs[0], rest) if len(command) < 2 else None


def test_a_run_that_is_in_none_of_the_files_is_told(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["audit"], ["replay"], ["history", "show"], ["prove", "--policy", "0"]):
        assert "run run-b is not in" in told(capsys, *command, "--run", "run-b", runs[0], code=2)


def test_a_question_about_one_run_needs_its_name_only_where_there_are_several(
    runs: list[str], whole: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["prove", "--policy", "0"], ["report"]):
        assert told(capsys, *command, runs[0]) == told(capsys, *command, "--run", "run-a", runs[0])
        for several in ([whole], runs):
            found = told(capsys, *command, *several, code=2)
            assert "records of 2 runs are there, and one is wanted: add --run with one of run-a, run-b" in found


def test_what_belongs_to_no_run_makes_no_second_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever may write can put anything under any key; the processor holds it for a stray, whosever name it has."""
    one = Story("run-a").opened()
    one.update("u0", [one.group("group")])
    for key in (b"\xff\x00", b"run-b", b"run-a"):
        one.stray(key)
    file = written(one, tmp_path / "strays.avro", *ALL)
    assert told(capsys, "report", file) == told(capsys, "report", "--run", "run-a", file)


def test_a_run_that_is_nowhere_is_refused_by_every_command(
    story: Story, whole: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing found in nothing reads like an answer, and a file of it like a history."""
    ask = ["--run", "no-such-run"]
    for command in commands(tmp_path, story, [whole]):
        asked = ["diff", "run-a", "no-such-run", whole] if command[0] == "diff" else [*command, *ask]
        assert "there is no record of run no-such-run in" in told(capsys, *asked, code=2), asked
    named = [whole, "lifecycle:0:2-5", *ask]
    for command in (["show"], ["export", "--out", str(tmp_path / "again.avro")]):
        assert "there is no record of run no-such-run" in told(capsys, "history", *command, *named, code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["whole.avro"]


def test_a_run_may_have_no_record_in_a_range(whole: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who goes through a log in pieces comes by such."""
    end = Story("run-a").opened().end
    piece = [whole, f"lifecycle:0:{end}-{end + 1}"]
    told(capsys, "history", "export", *piece, "--run", "run-a", "--out", str(tmp_path / "piece.avro"))
    assert f"no such record is in {LIFECYCLE}:0:{end}-" in no(capsys, "show", *piece, "--run", "run-a")


def test_a_position_of_the_ledger_is_no_record_of_a_run(story: Story) -> None:
    ledger = SETTINGS.topic(Topic.LEDGER)
    story.log.append(ledger, 0, position_key(0), b"")
    check_known(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0, 0, 1), OffsetRange(ledger, 0)], "run-b")
    with pytest.raises(BadInput, match="no record of run no-such-run"):
        check_known(story.log, SETTINGS, [OffsetRange(ledger, 0)], "no-such-run")


def test_between_payloads_that_files_name_there_is_no_gap(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies there they do not name. Elsewhere, too, they are the named ones and not all of a range."""
    first, _, third = parts(story, tmp_path, 14, 25)
    with FileLog([Path(first), Path(third)]) as log:
        one, other = sorted((one.start, one.end) for one in log.sections if one.topic == PAYLOADS)
        assert one[1] < other[0]
        assert offsets(log, PAYLOADS) == [*range(*one), *range(*other)]
    told(capsys, "history", "export", first, third, "payloads:0:-", "--out", str(tmp_path / "payloads.avro"))
    with FileLog([tmp_path / "payloads.avro"]) as log:
        assert [(section.start, section.end, section.only_referenced) for section in log.sections] == [
            (one[0], other[1], True)
        ]


def test_a_payload_of_a_partition_that_the_files_do_not_have_is_in_no_exports_way(tmp_path: Path) -> None:
    story = Story(log=MemoryLog(2)).opened()
    good = story.payload

    def bad(key: str, record: Part) -> PayloadRef:
        return good(key, record).model_copy(update={"partition": 1, "offsets": (9,)})

    story.group("a")
    story.log.append(PAYLOADS, 1, b"k", b"v")
    story.payload = bad  # type: ignore[method-assign]
    story.group("b")
    path = Path(written(story, tmp_path / "run.avro", *ALL))
    with FileLog([path]) as log:
        done = export(log, SETTINGS, ALL, tmp_path / "again.avro", payloads=True)
    assert (done.gone, done.unknown) == (0, 2)
    assert done.path.read_bytes() == path.read_bytes()


def test_decisions_of_a_run_with_a_gap_are_not_those_of_another(
    story: Story, runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read together with those of another run they would have every offset."""
    ranges = OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0, 0, 20), OffsetRange(DECISIONS, 0, 23)
    torn = written(story, tmp_path / "torn.avro", *ranges, run_id="run-a")
    for named in ([], ["lifecycle:0:-"], ["lifecycle:0:0-36"]):
        for command in ("audit", "replay"):
            refusal = told(capsys, command, torn, runs[1], *named, code=2)
            assert f"{DECISIONS}:0:20-23 of run run-a is in none of the files" in refusal


def test_of_files_of_several_clusters_those_of_the_run_are_taken(story: Story, runs: list[str], tmp_path: Path) -> None:
    """Its payloads may be in a file of their own; those of another cluster would be in the way."""
    log = MemoryLog()
    log.append("u.payloads", 0, b"k", b"v")
    elsewhere = export(log, Settings(topic_prefix="u."), [OffsetRange("u.payloads", 0)], tmp_path / "u.avro").path
    own = export(story.log, SETTINGS, [OffsetRange(PAYLOADS, 0)], tmp_path / "own.avro").path
    with opened_for([*runs, elsewhere, own], "run-a") as of:
        assert isinstance(of.log, FileLog)
        assert of.log.names == f"{runs[0]}, {own}"


def one_of(run: str, learner: str, tasks: Sequence[str] = ("g", "h", "i")) -> Story:
    """A run on a cluster of its own, whose topics have the same names."""
    made = Story(run, learner_id=learner).opened()
    for number, task in enumerate(tasks):
        made.update(f"u{number}", [made.group(task)])
    return made


def test_runs_of_two_clusters_whose_topics_have_the_same_names_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parts of a log in which the run says nothing belong to it; what is of the other is left out, payloads too."""
    a, b = one_of("run-a", "learner-a"), one_of("run-b", "learner-b")
    for number in range(5):
        a.log.append(LIFECYCLE, 0, b"run-c", b"%d" % number)
        b.log.append(LIFECYCLE, 0, b"run-d", b"%d" % number)
    of_a = [
        written(a, tmp_path / "a-0.avro", OffsetRange(LIFECYCLE, 0, None, a.end - 5), OffsetRange(DECISIONS, 0)),
        written(a, tmp_path / "a-1.avro", OffsetRange(LIFECYCLE, 0, a.end - 5)),
        written(a, tmp_path / "a-2.avro", OffsetRange(PAYLOADS, 0)),
    ]
    of_b = [
        written(b, tmp_path / "b-0.avro", *ALL),
        written(b, tmp_path / "b-1.avro", OffsetRange(PAYLOADS, 0)),
    ]
    for files in ([*of_a, *of_b], [*of_b, *of_a]):
        for run, own in (("run-a", of_a), ("run-b", of_b)):
            with opened_for(files, run) as of:
                assert isinstance(of.log, FileLog)
                assert of.log.names == ", ".join(own)
    assert told(capsys, "diff", "run-a", "run-b", *of_a, *of_b).startswith("SAME")


def test_a_run_of_the_same_name_on_two_clusters_is_not_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = one_of("run-a", "learner-a"), one_of("run-a", "learner-b")
    files = [written(one, tmp_path / f"{one.learner_id}.avro", *ALL) for one in (a, b)]
    assert "hold different records at" in told(capsys, "diff", "run-a", "run-a", *files, code=2)


def test_what_belongs_to_no_run_is_asked_without_one(whole: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["show"], ["export", "--out", "x.avro"]):
        refusal = told(capsys, "history", *command, "--run", "run-a", whole, "payloads:0:-", code=2)
        assert f"records of {PAYLOADS} belong to no run: leave --run out" in refusal


def test_a_run_of_which_nothing_is_decided_yet_is_what_there_is(story: Story) -> None:
    story.log.put(DECISIONS, 0, 0, [])
    story.log.put(SETTINGS.topic(Topic.LEDGER), 0, 0, [])
    assert ranges_of_run(story.log, SETTINGS, "run-a") == [OffsetRange(LIFECYCLE, 0)]


def test_updates_replayed_after_their_log_was_closed_are_refused(whole: str) -> None:
    with opened([whole]) as of:
        (wanted,) = wanted_of(of)
        updates = replay_history(of.log, wanted).updates
        assert next(updates).outcome is UpdateOutcome.PASSED
    with pytest.raises(LogClosed, match=r"whole\.avro was closed"):
        next(updates)


def test_ranges_that_overlap_are_refused_by_every_command(whole: str, capsys: pytest.CaptureFixture[str]) -> None:
    ranges = ["lifecycle:0:0-20", "lifecycle:0:19-"]
    for command in (["audit"], ["replay"], ["history", "show"], ["materialize", "--out", "x"]):
        assert "overlap: give each offset once" in told(capsys, *command, whole, *ranges, code=2)


def test_payloads_alone_are_asked_for_by_a_range(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that were named are no range of their own."""
    with FileLog([Path(written(story, tmp_path / "all.avro", *ALL))]) as log:
        file = str(export(log, SETTINGS, [OffsetRange(PAYLOADS, 0)], tmp_path / "payloads.avro").path)
    for command in (["show"], ["export", "--out", str(tmp_path / "x.avro")]):
        refusal = told(capsys, "history", *command, file, code=2)
        assert f"nothing but named payloads is there: name a range, such as {PAYLOADS}:0:-" in refusal
    assert len(told(capsys, "history", "show", file, "payloads:0:-").splitlines()) == story.log.bounds(PAYLOADS, 0).end


def test_a_history_is_known_by_what_it_is_and_not_by_its_name(
    whole: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = Path(whole).rename(tmp_path / "history.of-march")
    assert "4 committed updates: 4 pass" in told(capsys, "replay", str(other))
    (tmp_path / "notes.txt").write_text("Obj")
    assert "is a file, a bundle is a folder" in told(capsys, "replay", str(tmp_path / "notes.txt"), code=2)


def test_a_pipe_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody writes to this one: who opened it would wait for ever."""
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    for command in (["audit"], ["replay"], ["history", "show"], ["diff", "run-a", "run-b"]):
        assert "is a pipe or a device" in told(capsys, *command, pipe, code=2)


def test_one_text_in_place_of_a_list_is_told(whole: str) -> None:
    for given in (whole, Path(whole)):
        for refused in (opened(given), opened_for(given, "run-a")):  # type: ignore[arg-type]
            with pytest.raises(BadInput, match="is one text: give a list of files or ranges"), refused:
                pass
    with opened([Path(whole)]) as of:
        assert of.ranges


def test_records_taken_of_a_log_that_is_closed_are_refused(whole: str) -> None:
    with opened([whole]) as of:
        records = of.log.read(LIFECYCLE, 0, 0, 9)
        assert next(records).offset == 0
    for late in (records, of.log.read(LIFECYCLE, 0, 0, 9), of.log.read_at(LIFECYCLE, 0, [3])):
        with pytest.raises(LogClosed, match=r"whole\.avro was closed"):
            list(late)
