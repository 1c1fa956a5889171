"""`rollbook history show`: records of ranges, runs and files as a table and as lines of JSON."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.looking.show import SHOWN
from rollbook.infra.settings import Topic
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.schemas.codec import encode
from rollbook.schemas.records.ledger import Position
from rollbook.tests.replay.screen import read_all
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, PAYLOADS, SETTINGS, Story

LEDGER = SETTINGS.topic(Topic.LEDGER)
COMMAND = [sys.executable, "-m", "rollbook.infra.cli", "history", "show"]


@pytest.fixture
def story() -> Story:
    made = Story().opened()
    made.update("u0", [made.group("a")])
    return made


@pytest.fixture
def file(story: Story, tmp_path: Path) -> str:
    ranges = [OffsetRange(topic, 0) for topic in (LIFECYCLE, DECISIONS)]
    return str(export(story.log, SETTINGS, ranges, tmp_path / "run.avro", payloads=True).path)


def table(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    assert rollbook(["history", "show", *arguments]) == code
    return capsys.readouterr().out.splitlines()


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in table(capsys, *arguments, "--json")]


def test_the_table_has_a_line_for_each_record(story: Story, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = table(capsys, file, "lifecycle:0:-")
    assert len(lines) == story.end
    first = next(iter(story.log.read(LIFECYCLE, 0, 0, 1)))
    assert first.value is not None
    assert lines[0].split() == [
        f"{LIFECYCLE}:0@0",
        "1970-01-01",
        "00:00:01.000",
        "RunConfigured",
        f"{len(first.value)}",
        "B",
        "run-a",
    ]
    assert [line.split()[3] for line in lines[-3:]] == ["UpdateStarted", "Commit", "RecordingSealed"]


def test_a_line_of_json_has_the_whole_record(story: Story, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    stored = list(story.log.read(LIFECYCLE, 0, 0, story.end))
    lines = found(capsys, file, "lifecycle:0:-")
    assert [(one["offset"], one["sha256"], one["size"]) for one in lines] == [
        (one.offset, one.sha256, len(one.value or b"")) for one in stored
    ]
    assert {(one["topic"], one["partition"], one["key"]) for one in lines} == {(LIFECYCLE, 0, "run-a")}
    commit = lines[-2]
    assert commit["type"] == "Commit"
    assert commit["schema"] == (stored[-2].value or b"")[2:10].hex()
    assert commit["record"]["update_id"] == "u0"
    assert commit["record"]["header"]["run_id"] == "run-a"


def test_what_is_no_record_of_a_known_type_is_shown_as_far_as_it_goes(
    story: Story, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chunks of payloads, keys that were removed, headers of which one name comes twice, and keys that forge lines."""
    chunks = found(capsys, file, "payloads:0:-")
    assert [one["offset"] for one in chunks] == list(range(story.log.bounds(PAYLOADS, 0).end))
    assert {(one["type"], one["schema"], one["record"]) for one in chunks if one["type"] is None} == {(None,) * 3}
    assert {one["type"] for one in chunks} == {"SegmentPayload", None}
    headers = (("trace", b"\xff"), ("trace", None), ("\n", b""))
    odd = replace(next(iter(story.log.read(LIFECYCLE, 0, 0, 1))), key=b"a\nb\xff", value=None, headers=headers)
    story.log.put(LIFECYCLE, 0, 1, [odd])
    path = str(export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0)], tmp_path / "odd.avro").path)
    (line,) = table(capsys, path)
    assert line.split()[3:] == ["removed", "a\\nb\\xff"]
    (whole,) = found(capsys, path)
    assert (whole["key"], whole["size"], whole["type"], whole["record"]) == ("a\nb\\xff", None, None, None)
    assert whole["headers"] == [["trace", "ff"], ["trace", None], ["\n", ""]]


def test_a_time_that_no_calendar_has_is_shown_as_it_is(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = replace(next(iter(story.log.read(LIFECYCLE, 0, 0, 1))), timestamp_ms=2**62)
    story.log.put(LIFECYCLE, 0, 1, [odd])
    path = str(export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0)], tmp_path / "odd.avro").path)
    (line,) = table(capsys, path)
    assert line.split()[1:3] == [f"{2**62}", "ms"]


def test_a_type_that_there_is_not_is_told_with_those_that_there_are(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("commit", "Nosuch"):
        assert rollbook(["history", "show", file, "--type", "Commit", "--type", name]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(f"Error: --type '{name}' is no record type: ")
        assert {"Commit", "Decision", "TrajectoryState", "SegmentPayload"} <= set(re.findall(r"\w+", told.err))
    assert table(capsys, file, "--type", "Discarded", code=1) == []


def test_filters_leave_out_the_rest(story: Story, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    types = ["--type", "Commit", "--type", "Reserve"]
    assert [one["type"] for one in found(capsys, file, *types)] == ["Reserve", "Commit"]
    named = found(capsys, file, "--naming", "u0")
    assert {one["type"] for one in named} == {
        "Reserve",
        "Admit",
        "UpdateStarted",
        "Commit",
        "RecordingSealed",
        "Decision",
    }
    assert [one["type"] for one in found(capsys, file, "--naming", "u0", "--type", "Commit")] == ["Commit"]
    assert [one["offset"] for one in found(capsys, file, "--limit", "3")] == [0, 1, 2]
    assert [one["offset"] for one in found(capsys, file, "lifecycle:0:2-4")] == [2, 3]
    assert table(capsys, file, "--type", "Discarded", code=1) == []
    assert rollbook(["history", "show", file, "--naming", "nobody"]) == 1
    told = capsys.readouterr().err
    assert told == f"Error: no such record is in {LIFECYCLE}:0:0-{story.end}, {DECISIONS}:0:0-{decided(story)}\n"


def decided(story: Story) -> int:
    return story.log.bounds(DECISIONS, 0).end


def test_a_run_is_shown_alone_from_whatever_the_file_has_of_it(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no ledger here, and then no decisions either."""
    Story("run-b", story.log, story.ledger, learner_id="b").opened()
    path = str(
        export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)], tmp_path / "x.avro").path
    )
    shown = found(capsys, "--run", "run-b", path)
    assert [one["type"] for one in shown] == [
        "RunConfigured",
        "GenerationContract",
        "LearnerStarted",
        *["Decision"] * 3,
    ]
    assert {one["key"] for one in shown} == {"run-b"}
    out = tmp_path / "run.avro"
    assert rollbook(["history", "export", "--run", "run-b", path, "--out", str(out)]) == 0
    capsys.readouterr()
    assert found(capsys, str(out)) == shown
    only = str(export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0)], tmp_path / "only.avro").path)
    assert found(capsys, "--run", "run-b", only) == shown[:3]


def test_a_position_is_everybodys_and_shown_once(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    position = encode(Position(next_offset=story.end, transactional_id="host"))
    story.log.append(LEDGER, 0, b'["","position","0"]', position)
    paths = [
        str(export(story.log, SETTINGS, [OffsetRange(LEDGER, 0)], tmp_path / f"{run}.avro", run_id=run).path)
        for run in ("run-a", "run-b")
    ]
    assert [one["type"] for one in found(capsys, *paths)] == ["Position"]


def test_a_long_table_is_cut_and_says_so(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(SHOWN // 3):
        story.group(f"more-{number}")
    assert story.end > SHOWN
    path = str(export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0)], tmp_path / "long.avro").path)
    lines = table(capsys, path)
    assert (len(lines), lines[-1]) == (SHOWN + 1, "... and more; --limit shows as many as you like, --json all")
    assert len(table(capsys, path, "--limit", str(SHOWN + 1))) == SHOWN + 1
    assert len(table(capsys, path, "--limit", str(SHOWN))) == SHOWN
    assert len(found(capsys, path)) == story.end


def test_who_reads_no_further_ends_it_quietly(file: str) -> None:
    with subprocess.Popen([*COMMAND, file, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["offset"] == 0
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) in (0, 141)
    reading, writing = os.pipe()
    os.close(reading)
    for form in ([], ["--json"]):
        done = subprocess.run([*COMMAND, file, *form], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (141, "")
    os.close(writing)


def test_who_looks_at_the_terminal_while_records_go_elsewhere_sees_how_far_it_is(story: Story, file: str) -> None:
    terminal, other_end = os.openpty()
    done = subprocess.run([*COMMAND, file, "--json"], stdout=subprocess.PIPE, stderr=other_end, text=True, check=False)
    os.close(other_end)
    shown = read_all(terminal).decode()
    assert f"{LIFECYCLE}:0:0-{story.end}" in shown
    assert f"{story.end}/{story.end}" in shown
    assert len(done.stdout.splitlines()) == len(list(map(json.loads, done.stdout.splitlines()))) > story.end
