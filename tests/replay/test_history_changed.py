"""A file that was changed is told by every command that reads what was changed, and nothing of it goes into another."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.replay.history.container import write
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import NotTheLog, read_there
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, PAYLOADS, SETTINGS, Story

RUN = "run-a"


@pytest.fixture
def story() -> Story:
    made = Story(RUN).opened()
    for name in ("u0", "u1"):
        made.update(name, [made.group(f"group of {name}")])
    return made


@pytest.fixture
def honest(story: Story, tmp_path: Path) -> Path:
    ranges = [OffsetRange(topic, 0) for topic in (LIFECYCLE, DECISIONS)]
    return export(story.log, SETTINGS, ranges, tmp_path / "honest.avro", payloads=True).path


def changed(honest: Path, topic: str, place: int = -2) -> str:
    """With another time in one record, which neither a decision nor a payload's digest vouches for."""
    with FileLog([honest]) as log:
        (contents,) = log.contents
        bodies = [list(log.read(one.topic, 0, one.start, one.end)) for one in contents.sections]
    (at,) = (at for at, one in enumerate(contents.sections) if one.topic == topic)
    forged = [*bodies]
    forged[at] = [*bodies[at]]
    forged[at][place] = replace(bodies[at][place], timestamp_ms=1)
    path, same = honest.with_name("changed.avro"), honest.with_name("same.avro")
    for known, really in zip(write(same, contents, bodies), write(path, contents, forged), strict=True):
        path.write_bytes(path.read_bytes().replace(really.digest.encode(), known.digest.encode()))
    assert same.read_bytes() == honest.read_bytes()
    return str(path)


def commands(out: Path, file: str) -> list[list[str]]:
    return [
        ["audit", file, "--with", "max_lag=1"],
        ["replay", file],
        ["replay", "--run", RUN, file],
        ["replay", file, "lifecycle:0:2-"],
        ["materialize", file, "--out", str(out / "bundles")],
        ["diff", RUN, RUN, file],
        ["prove", "--run", RUN, "--policy", "0", file],
        ["history", "show", file],
        ["history", "show", file, "--json"],
        ["history", "show", file, "lifecycle:0:2-3"],
        ["history", "export", file, "--payloads", "--out", str(out / "again.avro")],
        ["history", "export", file, "lifecycle:0:2-3", "--out", str(out / "part.avro")],
    ]


@pytest.mark.parametrize("topic", [LIFECYCLE, DECISIONS])
def test_every_command_tells_it(honest: Path, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = changed(honest, topic)
    out = tmp_path / "out"
    out.mkdir()
    for command in commands(out, file):
        if topic == DECISIONS and "lifecycle:0:2-3" in command:  # reads none
            continue
        assert rollbook(command) in (1, 2), command
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert f"changed.avro: {topic}:0:0-" in told, command
        assert "the file was changed" in told
    assert list(out.rglob("*.avro*")) == []
    assert not (out / "bundles").exists() or list((out / "bundles").iterdir()) == []


@pytest.mark.parametrize("place", [0, 5, 9, -1])
def test_who_looks_decisions_up_is_told_before_he_makes_anything_of_them(
    honest: Path, place: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = changed(honest, DECISIONS, place), tmp_path / "bundles"
    for command in (
        ["materialize", file, "--run", RUN, "--update", "u0", "--out", str(out)],
        ["replay", file, "lifecycle:0:-12"],
        ["prove", "--run", RUN, "--policy", "0", file],
    ):
        assert rollbook(command) == 2, command
        assert f"changed.avro: {DECISIONS}:0:0-" in capsys.readouterr().err, command
    assert not out.exists() or list(out.iterdir()) == []


def test_payloads_are_told_where_they_are_read(
    honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = changed(honest, PAYLOADS)
    for command in (
        ["replay", file],
        ["materialize", file, "--out", str(tmp_path / "bundles")],
        ["history", "export", file, "--payloads", "--out", str(tmp_path / "again.avro")],
        ["history", "show", file, "payloads:0:-"],
    ):
        assert rollbook(command) == 2, command
        assert f"changed.avro: {PAYLOADS}:0:0-" in capsys.readouterr().err, command
    assert not (tmp_path / "again.avro").exists()


@pytest.mark.parametrize("topic", [LIFECYCLE, DECISIONS, PAYLOADS])
def test_an_audit_goes_on_and_has_it_among_its_findings(
    honest: Path, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = changed(honest, topic)
    assert rollbook(["audit", file, "--json"]) == 1
    (report,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["kind"] for one in report["findings"]] == ["file_changed"]
    sealed = tmp_path / "sealed.avro"
    assert rollbook(["history", "seal", file, "--out", str(sealed)]) == 1
    assert "file_changed" in capsys.readouterr().out
    assert not sealed.exists()


def test_a_payload_of_a_changed_file_is_not_one_that_is_gone(honest: Path) -> None:
    with FileLog([Path(changed(honest, PAYLOADS, -1))]) as log, pytest.raises(NotTheLog, match="was changed"):
        list(read_there(log, PAYLOADS, 0, [0]))


def test_of_two_files_the_changed_one_is_told(story: Story, honest: Path) -> None:
    with FileLog([honest, Path(changed(honest, LIFECYCLE, 5))]) as log:
        for reading in (
            log.read(LIFECYCLE, 0, 0, story.end),
            log.read(LIFECYCLE, 0, 2, 4),
            log.read_at(LIFECYCLE, 0, [1]),
        ):
            with pytest.raises(NotTheLog):
                list(reading)


def test_who_stops_before_the_end_was_told_of_no_more_than_he_read(
    honest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A section that is read from its first record on is not read twice for this."""
    assert rollbook(["history", "show", changed(honest, DECISIONS), "--limit", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_an_honest_file_is_looked_through_once(honest: Path) -> None:
    with FileLog([honest]) as log:
        for _ in range(2):
            assert [one.offset for one in log.read_at(LIFECYCLE, 0, [3])] == [3]
            assert [one.offset for one in log.read(LIFECYCLE, 0, 3, 5)] == [3, 4]
        (part,) = log._parts[LIFECYCLE, 0]
        assert part.found == part.total
