"""Ranks that write one bundle by themselves: whole or hidden, at every crash, in every order, with any rival."""

import filecmp
import os
import signal
from collections.abc import Callable, Sequence
from itertools import count, permutations
from pathlib import Path
from typing import Any

import pytest

from rollbook.replay.bundle.layout import is_leftover
from rollbook.replay.bundle.reading.cohort import inspect, read_cohort, validate
from rollbook.replay.bundle.writing.bundle_writer import BundleWriter, Finalized
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.bundle.writing.shards import write_shard
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Verdict
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay import by_hand, independent_reader
from rollbook.tests.replay.reseal import FIXTURES


def rank(path: Path, number: int, attempt: str = "start-1") -> BundleWriter:
    return by_hand.writer(path, rank=number, attempt=attempt)


def write(path: Path, number: int, ranks: Sequence[int], attempt: str = "start-1") -> Finalized:
    return rank(path, number, attempt).finalize(ranks=ranks)


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.glob(".*") if is_leftover(path.name)]


@pytest.mark.parametrize("order", list(permutations((0, 1, 4))), ids=str)
def test_the_last_rank_publishes_whatever_the_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    path = tmp_path / "step-7-0"
    for at, number in enumerate(order):
        assert not path.exists()
        assert write(path, number, [0, 1, 4]).missing_ranks == tuple(sorted(order[at + 1 :]))
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-7-0"]
    names = {"COMPLETE", *(f"{noun}{number}" for number in order for noun in ("rank-", "COMPLETE."))}
    assert {entry.name for entry in path.iterdir()} == names
    assert validate(path).ranks == (0, 1, 4)
    assert len(independent_reader.read(path)) == 3
    assert replay_cohort(read_cohort(path)).verdict is Verdict.PASSED


def test_ranks_that_write_by_themselves_write_what_others_write(tmp_path: Path) -> None:
    """The fixture of two ranks, byte for byte."""
    two = FIXTURES / "two-rank"
    for bundle in read_cohort(two).bundles:
        write_shard(tmp_path / "again", Draft.of(bundle), "start-1")
    names = sorted(str(path.relative_to(two)) for path in two.rglob("*") if path.is_file())
    assert filecmp.cmpfiles(two, tmp_path / "again", names, shallow=False) == (names, [], [])
    assert sum(path.is_file() for path in (tmp_path / "again").rglob("*")) == len(names)


def test_until_then_it_can_be_inspected_and_is_no_bundle(tmp_path: Path) -> None:
    write(tmp_path / "b", 0, [0, 1])
    (shared,) = leftovers(tmp_path)
    assert {entry.name for entry in shared.iterdir()} == {"rank-0", "COMPLETE.0"}
    (found,) = inspect(shared)
    assert (found.label, found.complete) == ("rank-0", False)
    with pytest.raises(BadInput, match="left behind: delete it"):
        validate(shared)
    assert not validate(shared / "rank-0").valid


def test_two_starts_never_meet_in_one_bundle(tmp_path: Path) -> None:
    path = tmp_path / "b"
    write(path, 0, [0, 1], "start-1")
    assert write(path, 1, [0, 1], "start-2").missing_ranks == (0,)
    assert not path.exists()
    assert write(path, 0, [0, 1], "start-2").published
    with pytest.raises(BadInput, match="exists: bundles are never overwritten"):
        write(path, 1, [0, 1], "start-1")
    assert validate(path).valid


def test_ranks_that_contradict_one_another_never_meet(tmp_path: Path) -> None:
    other = by_hand.index("b", config=by_hand.CONFIG.model_copy(update={"eps_clip": 0.3}))
    write(tmp_path / "b", 0, [0, 1])
    assert by_hand.writer(tmp_path / "b", rank=1, attempt="start-1", index=other).finalize([0, 1]).missing_ranks == (0,)
    assert write(tmp_path / "b", 1, [0, 1, 2]).missing_ranks == (0, 2)
    assert not (tmp_path / "b").exists()


def test_a_rank_writes_once_a_start(tmp_path: Path) -> None:
    write(tmp_path / "b", 0, [0, 1])
    with pytest.raises(BadInput, match="rank-0 was written by someone else meanwhile"):
        write(tmp_path / "b", 0, [0, 1])
    assert write(tmp_path / "b", 1, [0, 1]).published


def test_a_rank_without_an_attempt_or_not_among_the_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="need an attempt"):
        write(tmp_path / "b", 0, [0, 1], attempt="")
    with pytest.raises(BadInput, match="rank 3 is not among them"):
        write(tmp_path / "b", 3, [0, 1])
    assert list(tmp_path.iterdir()) == []


def test_whoever_tries_again_publishes_what_the_last_rank_could_not(tmp_path: Path) -> None:
    path = tmp_path / "b"
    first, second = rank(path, 0), rank(path, 1)
    assert first.finalize(ranks=[0, 1]).missing_ranks == (1,)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rollbook.replay.bundle.writing.shards.publish_shards", lambda *_: (0,))
        second.finalize(ranks=[0, 1])
    assert not path.exists()
    assert first.finalize(ranks=[0, 1]).published
    assert second.finalize(ranks=[0, 1]).published
    assert validate(path).valid


DISK = ("fsync", "mkdir", "rename", "replace")
"""What changes the disk for good: a process is killed just before the nth of them."""


def dying(writer: BundleWriter, ranks: Sequence[int], step: int) -> int:
    """Finalize in a process of its own, killed before a step; 0 for one that got through, else the signal."""
    child = os.fork()
    if child == 0:
        left = [step]
        code = 1
        try:
            for name in DISK:
                setattr(os, name, _killing(getattr(os, name), left))
            writer.finalize(ranks)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def _killing(real: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **named)

    return call


def test_killed_at_any_step_a_bundle_of_one_rank_is_whole_or_not_there(tmp_path: Path) -> None:
    for step in count(1):
        path = tmp_path / str(step) / "b"
        if dying(by_hand.writer(path), [0], step) == 0:
            break
        if path.exists():
            assert validate(path).valid
            continue
        for leftover in leftovers(path.parent):
            with pytest.raises(BadInput, match="left behind: delete it"):
                validate(leftover)
        assert by_hand.writer(path).finalize().published
    assert validate(path).valid
    assert step > 15


def test_killed_at_any_step_the_last_rank_leaves_a_whole_bundle_or_none(tmp_path: Path) -> None:
    for step in count(1):
        path = tmp_path / str(step) / "b"
        first = rank(path, 0)
        first.finalize(ranks=[0, 1])
        if (outcome := dying(rank(path, 1), [0, 1], step)) == 0:
            break
        assert outcome == signal.SIGKILL
        if not path.exists():
            for leftover in leftovers(path.parent):
                with pytest.raises(BadInput, match=r"left behind: delete it|is a file, a bundle is a folder"):
                    validate(leftover)
            # The other rank publishes what needs nothing but a rename; else the next start writes it all anew.
            if not first.finalize(ranks=[0, 1]).published:
                write(path, 0, [0, 1], "start-2")
                assert write(path, 1, [0, 1], "start-2").published
        assert validate(path).valid
        assert [entry for entry in path.parent.iterdir() if not is_leftover(entry.name)] == [path]
    assert validate(path).valid
    assert step > 18


def racing(writers: Sequence[BundleWriter], ranks: Sequence[int]) -> None:
    """Finalize them all at once, each in a process of its own; every one is done when this returns."""
    children = []
    reader, gate = os.pipe()
    for writer in writers:
        child = os.fork()
        if child == 0:
            try:
                os.close(gate)
                os.read(reader, 1)  # until the last end that can be written to is closed
                writer.finalize(ranks)
            finally:
                os._exit(0)
        children.append(child)
    os.close(gate)
    os.close(reader)
    for child in children:
        os.waitpid(child, 0)


def test_ranks_that_end_at_once_publish_one_whole_bundle(tmp_path: Path) -> None:
    for attempt in range(25):
        path = tmp_path / str(attempt) / "b"
        racing([rank(path, number) for number in range(3)], [0, 1, 2])
        assert validate(path).valid
        assert {entry.name for entry in path.parent.iterdir()} == {"b"}
        assert len(list(path.iterdir())) == 7


def test_two_starts_at_once_publish_the_numbers_of_one(tmp_path: Path) -> None:
    """Their labels differ, and nothing else: only the numbers can tell whose a rank is."""
    for attempt in range(15):
        path = tmp_path / str(attempt) / "b"
        writers = [
            by_hand.writer(path, rank=number, attempt=start, index=by_hand.index("b", rows=by_hand.rows(labels=labels)))
            for start, labels in (("start-1", ["x", "x"]), ("start-2", ["y", "y"]))
            for number in (0, 1)
        ]
        racing(writers, [0, 1])
        cohort = read_cohort(path)
        assert len({sample.label_hash for bundle in cohort.bundles for sample in bundle.index.samples}) == 1
