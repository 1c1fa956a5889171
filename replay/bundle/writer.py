"""Writing a bundle: whole or not at all, and only what a strict reader accepts.

1. everything is checked in memory; 2. a hidden folder beside the target takes payloads, then the JSON files, then
COMPLETE.<rank>, then COMPLETE, each fsynced, and of several ranks these again beside the ranks' folders; 3. one rename
publishes it. Two writers on one path cannot mix: the second rename fails. The same draft gives the same bytes.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from rollbook.replay.bundle.drafts import (
    Draft,
    File,
    RankFiles,
    check_cohort,
    check_draft,
    check_ranks,
    files_of,
    json_file,
    recomputable,
)
from rollbook.replay.bundle.layout import PAYLOADS, leftover_name, rank_complete, rank_folder
from rollbook.replay.bundle.model import COMPLETE, CohortComplete, ShardComplete
from rollbook.replay.bundle.problems import BadBundle, Problem, Refused
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput, EnvironmentFault

__all__ = ["Draft", "check_cohort", "check_draft", "recomputable", "write_bundle", "write_cohort"]


def write_bundle(path: Path, draft: Draft) -> Path:
    """Publish the bundle of one rank at `path`, which must not exist yet; its parent folders are made.

    Raises `BadBundle` for a draft that a strict reader would refuse, `BadInput` when `path` exists, `EnvironmentFault`
    when the disk does not play along.
    """
    _refuse_existing(path)
    try:
        files = files_of(draft)
    except Refused as refused:
        raise BadBundle(str(path), *refused.problems) from None
    return _publish(path, lambda folder: _write_rank(folder, files))


def write_cohort(path: Path, drafts: Mapping[int, Draft]) -> Path:
    """Publish the bundles of all ranks of one step at `path`, by rank; raises like `write_bundle`.

    All of the expected ranks or nothing: the final COMPLETE says that they are there, and a bundle once published is
    never added to.
    """
    _refuse_existing(path)
    if problems := check_ranks(drafts):
        raise BadBundle(str(path), *problems)

    def write(folder: Path) -> None:
        # Rank by rank, so that no more than one is held twice; a rank that is refused takes the others with it.
        shards = {rank: _write_shard(path, folder, draft) for rank, draft in sorted(drafts.items())}
        _write(folder, (json_file(rank_complete(rank), shard) for rank, shard in shards.items()))
        by_name = {str(rank): shard for rank, shard in shards.items()}
        _write(folder, [json_file(COMPLETE, CohortComplete(ranks=tuple(shards), shards=by_name))])

    return _publish(path, write)


def _write_shard(path: Path, folder: Path, draft: Draft) -> ShardComplete:
    name = rank_folder(draft.rank)
    try:
        files = files_of(draft)
    except Refused as refused:
        raise BadBundle(str(path), *(_within(name, problem) for problem in refused.problems)) from None
    (folder / name).mkdir()
    _write_rank(folder / name, files)
    return ShardComplete.model_validate({**files.record.model_dump(), "relpath": name})


def _within(name: str, problem: Problem) -> Problem:
    return replace(problem, file=f"{name}/{problem.file}")


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise BadInput(f"{visible(path)} exists: bundles are never overwritten, write to another path")


def _publish(path: Path, write: Callable[[Path], None]) -> Path:
    temporary = path.parent / leftover_name(path.name, secrets.token_hex(8))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        write(temporary)
        temporary.rename(path)
        _sync_folder(path.parent)
    except OSError as error:
        if path.exists() and temporary.exists():
            raise BadInput(f"{visible(path)} was written by someone else meanwhile: write to another path") from None
        raise EnvironmentFault(
            f"cannot write bundle {visible(path)}: {error.strerror}; check disk and folder"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def _write_rank(folder: Path, files: RankFiles) -> None:
    (folder / PAYLOADS).mkdir()
    _write(folder / PAYLOADS, files.payloads)
    _write(folder, files.others)


def _write(folder: Path, files: Iterable[File]) -> None:
    for file in files:
        with (folder / file.name).open("xb") as out:
            out.write(file.content)
            out.flush()
            os.fsync(out.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
