"""Bundles that an audit is given: none passes unseen, what cannot be checked is no difference, and what is written in
one breaks nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.replay.audit.bundles import BundlesChecked, check_bundles
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.provenance import provenance_path
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, PAYLOADS, SETTINGS, Story

Json = dict[str, Any]


@pytest.fixture
def story() -> Story:
    made = Story().opened()
    made.update("u0", [made.group("a"), made.group("b")])
    made.update("u1", [made.group("c")])
    return made


@pytest.fixture
def bundles(story: Story, tmp_path: Path) -> Path:
    out = tmp_path / "bundles"
    assert materialize(story.log, Wanted.of_run(story.run_id, story.log, SETTINGS), out).complete
    return out


def first(bundles: Path) -> Path:
    return next(path for path in sorted(bundles.iterdir()) if path.is_dir())


def checked(story: Story, *paths: Path) -> BundlesChecked:
    return check_bundles(story.log, SETTINGS, paths)


def exported(story: Story, path: Path, payloads: bool, first: int = 0) -> Path:
    ranges = [OffsetRange(LIFECYCLE, 0, first), OffsetRange(DECISIONS, 0)]
    return export(story.log, SETTINGS, ranges, path, payloads=payloads).path


def without_provenance(one: Path) -> None:
    provenance_path(one).unlink()


def into_a_folder(one: Path) -> None:
    (one.parent / "more").mkdir()
    for path in (one, provenance_path(one)):
        path.rename(one.parent / "more" / path.name)


def without_its_folder(one: Path) -> None:
    shutil.rmtree(one)


@pytest.mark.parametrize("hide", [without_provenance, into_a_folder, without_its_folder])
def test_no_bundle_is_passed_over(story: Story, bundles: Path, hide: Callable[[Path], None]) -> None:
    assert checked(story, bundles).made == 5
    hide(first(bundles))
    with pytest.raises(BadInput, match="provenance"):
        checked(story, bundles)


@pytest.mark.parametrize("name", [".", "../{name}", "..", ""])
def test_a_folder_may_be_given_from_within(
    story: Story, bundles: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    inside = first(bundles)
    monkeypatch.chdir(inside)
    found = checked(story, Path(name.format(name=inside.name)))
    assert (found.made, found.findings) == (5 if name == ".." else 1, ())
    (inside / "more").mkdir()
    monkeypatch.chdir(inside / "more")
    assert checked(story, Path("..")).made == 1
    with pytest.raises(BadInput, match="is no bundle with a provenance beside it"):
        checked(story, Path("/"))


def test_what_is_given_twice_counts_once(story: Story, bundles: Path) -> None:
    assert checked(story, bundles, bundles, first(bundles), bundles / ".").made == 5


def test_what_is_no_bundle_may_lie_among_them(story: Story, bundles: Path) -> None:
    """What a crash of materialize left behind, and reports."""
    shutil.copytree(first(bundles), bundles / ".x.writing-0123456789abcdef")
    (bundles / "reports").mkdir()
    (bundles / "reports" / "index.json").write_text("{}")
    (bundles / "reports" / "audit.md").write_text("# Audit")
    assert checked(story, bundles).findings == ()


@pytest.mark.parametrize(
    "redaction", ['{"prompts": "bogus"}', '["x"]', '{"task_id": ["hash"]}', '"hash"', "7", "[" * 200_000]
)
@pytest.mark.parametrize("name", ["manifest.json", "index.json"])
def test_whatever_a_manifest_says_is_a_finding(story: Story, bundles: Path, name: str, redaction: str) -> None:
    file = next(first(bundles).rglob(name))
    file.write_text(f'{{"redaction": {redaction}}}')
    found = checked(story, bundles)
    assert {one.place for one in found.findings} == {str(first(bundles))}
    assert found.made == 5


def test_a_provenance_that_names_no_commit_is_a_finding(story: Story, bundles: Path) -> None:
    def nameless(said: Json) -> None:
        said["records"] = [one for one in said["records"] if one["record_type"] != "Commit"]

    def another(said: Json) -> None:
        for one in said["records"]:
            one["record_type"] = "Commit"

    for change, what in ((nameless, "names no Commit"), (another, "is none")):
        edit(first(bundles), change)
        (found,) = checked(story, bundles).findings
        assert what in found.what


def edit(bundle: Path, change: Callable[[Json], None]) -> None:
    said = json.loads(provenance_path(bundle).read_text())
    change(said)
    provenance_path(bundle).write_text(json.dumps(said))


def test_payloads_that_are_not_in_the_file_are_no_difference(
    story: Story, bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = exported(story, tmp_path / "bare.avro", payloads=False)
    assert rollbook(["audit", str(bare), "--bundle", str(bundles)]) == 2
    said = capsys.readouterr().err
    assert "none of the bundles can be held against these records" in said
    assert f"5 bundles: not in the log (any more) is what they were made from, such as {PAYLOADS}:" in said
    whole = exported(story, tmp_path / "whole.avro", payloads=True)
    assert rollbook(["audit", str(whole), "--bundle", str(bundles)]) == 0
    assert "5 bundles made again from the log" in capsys.readouterr().out


def test_what_differs_is_told_also_where_no_bundle_can_be_checked(
    story: Story, bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story.log.remove(LIFECYCLE, 0, story.end - 1)
    bare = exported(story, tmp_path / "bare.avro", payloads=False)
    assert rollbook(["audit", str(bare), "--bundle", str(bundles)]) == 1
    assert "record_gone" in capsys.readouterr().out


def test_what_is_no_bundle_is_refused_before_anything_is_folded(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = exported(story, tmp_path / "run.avro", payloads=False)
    monkeypatch.setattr("rollbook.replay.histories.audit", None)
    assert rollbook(["audit", str(file), "--bundle", str(tmp_path / "nowhere")]) == 2
    assert "is no bundle with a provenance beside it" in capsys.readouterr().err


def test_what_retention_took_is_no_difference(story: Story, bundles: Path) -> None:
    story.log.lose(PAYLOADS, 0, 8)
    found = checked(story, bundles)
    assert found.findings == ()
    assert 0 < found.made < 5, "those of the second update"
    assert f"{5 - found.made} bundles" in found.unchecked[0]


def test_bundles_of_what_lies_before_the_files_are_not_checked(story: Story, bundles: Path, tmp_path: Path) -> None:
    with FileLog([exported(story, tmp_path / "late.avro", payloads=True, first=story.end - 2)]) as late:
        found = check_bundles(late, SETTINGS, [bundles])
    assert (found.made, found.findings) == (0, ())
    assert "5 bundles" in found.unchecked[0]


def test_bundles_of_what_lies_behind_the_files_are_not_checked(story: Story, bundles: Path, tmp_path: Path) -> None:
    ranges = [OffsetRange(topic, 0, 0, story.log.bounds(topic, 0).end - 5) for topic in (LIFECYCLE, DECISIONS)]
    with FileLog([export(story.log, SETTINGS, ranges, tmp_path / "early.avro", payloads=True).path]) as early:
        found = check_bundles(early, SETTINGS, [bundles])
    assert (found.made, found.findings) == (3, ()), "those of the first update"
    assert found.unchecked[0].startswith("2 bundles")


def test_a_provenance_alone_is_not_believed_that_a_payload_is_gone(story: Story, bundles: Path, tmp_path: Path) -> None:
    """Else an edited bundle is made one that cannot be checked."""

    def elsewhere(said: Json) -> None:
        said["payloads"][0]["chunks"][0]["offset"] = 99_999

    edit(first(bundles), elsewhere)
    for log in (story.log, FileLog([exported(story, tmp_path / "whole.avro", payloads=True)])):
        (found,) = check_bundles(log, SETTINGS, [bundles]).findings
        assert f"{PAYLOADS}:0@99999" in found.what


@pytest.mark.parametrize("also", ["run_id", "update_id"])
def test_nor_that_the_commit_is(
    story: Story, bundles: Path, tmp_path: Path, also: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that the log has say of which update the bundle is, also where it names another, or is redacted."""

    def elsewhere(said: Json) -> None:
        said[also] = "another"
        (commit,) = (one for one in said["records"] if one["record_type"] == "Commit")
        commit["position"]["offset"] = 1_000_000

    edited = first(bundles)
    (expected, *_) = edited.rglob("expected.json")
    expected.write_text(f"{expected.read_text()} ")
    edit(edited, elsewhere)
    whole = exported(story, tmp_path / "whole.avro", payloads=True)
    with FileLog([whole]) as log:
        found = check_bundles(log, SETTINGS, [bundles])
    (finding,) = found.findings
    assert (finding.place, found.made) == (str(edited), 5)
    assert finding.said == {"commit": f"{LIFECYCLE}:0@1000000"}
    assert finding.derived["commit"].startswith(f"{LIFECYCLE}:0@")
    assert rollbook(["audit", str(whole), "--bundle", str(edited)]) == 1


def test_a_record_that_is_not_there_any_more_is_a_difference(story: Story, bundles: Path) -> None:
    story.log.remove(LIFECYCLE, 0, 3)
    assert f"{LIFECYCLE}:0@3, which it was made from" in {one.what for one in checked(story, bundles).findings}
