"""Bundles of several ranks: all of them at once or nothing, byte for byte what was read."""

import filecmp
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rollbook.replay.bundle.layout import is_leftover
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.bundle.writing.drafts import Draft, check_cohort
from rollbook.replay.bundle.writing.writer import write_cohort
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Verdict
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.tests.replay.reseal import FIXTURES

TWO = FIXTURES / "two-rank"
Drafts = dict[int, Draft]


def two() -> Drafts:
    return {bundle.rank: Draft.of(bundle) for bundle in read_cohort(TWO).bundles}


def test_read_and_written_again_is_the_same_cohort(tmp_path: Path) -> None:
    written = write_cohort(tmp_path / "again", two())
    names = sorted(str(path.relative_to(TWO)) for path in TWO.rglob("*") if path.is_file())
    assert sorted(str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()) == names
    assert filecmp.cmpfiles(TWO, written, names, shallow=False) == (names, [], [])


def test_it_is_valid_and_every_rank_replays(tmp_path: Path) -> None:
    written = write_cohort(tmp_path / "again", dict(reversed(two().items())))
    assert validate(written).valid
    report = replay_cohort(read_cohort(written))
    assert report.verdict is Verdict.PASSED
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


def of_rank(rank: int, change: Callable[[Draft], Draft]) -> Callable[[Drafts], Drafts]:
    return lambda drafts: {**drafts, rank: change(drafts[rank])}


def other_index(draft: Draft, **fields: object) -> Draft:
    return replace(draft, index=draft.index.model_copy(update=fields))


def other_config(draft: Draft) -> Draft:
    return other_index(draft, config=draft.index.config.model_copy(update={"eps_clip": 0.3}))


REFUSED: list[tuple[str, Callable[[Drafts], Drafts], str]] = [
    ("a rank missing", lambda d: {0: d[0]}, r"rank-0/COMPLETE: expected_ranks: \[0, 1\], but \[0\] are there; wait"),
    ("a rank too many", lambda d: {**d, 2: replace(d[1], rank=2)}, r"\[0, 1\], but \[0, 1, 2\] are there"),
    ("no rank", lambda d: {}, "COMPLETE: ranks: none"),
    ("a rank under another", lambda d: {0: d[1], 1: d[0]}, "rank-0/COMPLETE: ranks: the draft is of rank 1"),
    ("two bundles", of_rank(1, lambda d: other_index(d, bundle_id="x")), "rank-1/index.json: bundle_id: not the one"),
    ("two configs", of_rank(1, other_config), "rank-1/index.json: config: not the one of rank-0"),
    ("a bad rank", of_rank(1, lambda d: replace(d, tensors={})), "rank-1/manifest.json: payloads.advantages: missing"),
]


@pytest.mark.parametrize(("change", "what"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_a_reader_would_refuse_is_never_written(
    tmp_path: Path, change: Callable[[Drafts], Drafts], what: str
) -> None:
    drafts = change(two())
    with pytest.raises(BadInput, match=what):
        write_cohort(tmp_path / "cohort", drafts)
    assert list(tmp_path.iterdir()) == []
    assert check_cohort(drafts)


def test_good_drafts_have_no_problem() -> None:
    assert check_cohort(two()) == ()


def test_an_existing_path_is_refused(tmp_path: Path) -> None:
    write_cohort(tmp_path / "cohort", two())
    with pytest.raises(BadInput, match="exists: bundles are never overwritten"):
        write_cohort(tmp_path / "cohort", two())


def test_a_disk_that_fills_up_at_any_moment_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.fsync, 0

    def counted(fd: int) -> None:
        nonlocal calls
        calls += 1
        real(fd)

    monkeypatch.setattr(os, "fsync", counted)
    write_cohort(tmp_path / "whole", two())
    for failing in range(1, calls, 5):
        left = [failing]

        def full(fd: int, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(EnvironmentFault, match="No space left on device"):
            write_cohort(tmp_path / "cohort", two())
        assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_the_final_complete_is_the_last_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the rename there is but a leftover, in which COMPLETE appears only after every rank's own record."""
    seen: list[set[str]] = []

    def look(_: int) -> None:
        (leftover,) = tmp_path.iterdir()
        if is_leftover(leftover.name):
            seen.append({path.name for path in leftover.iterdir()})

    monkeypatch.setattr(os, "fsync", look)
    write_cohort(tmp_path / "cohort", two())
    assert all({"COMPLETE.0", "COMPLETE.1", "rank-0", "rank-1"} <= names for names in seen if "COMPLETE" in names)
    assert "COMPLETE" not in seen[-4]
