"""Writing a bundle: whole or not at all, and only what a strict reader accepts.

1. everything is checked in memory; 2. a hidden folder beside the target takes payloads, then the JSON files, then
COMPLETE.<rank>, then COMPLETE, each fsynced, and of several ranks these again beside the ranks' folders; 3. one rename
publishes it. Two writers on one path cannot mix: the second rename fails. The same draft gives the same bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rollbook.replay.bundle.layout import rank_complete, rank_folder
from rollbook.replay.bundle.model import ShardComplete
from rollbook.replay.bundle.problems import BadBundle, Problem, Refused
from rollbook.replay.bundle.writing.disk import (
    disk_faults,
    hidden_folder,
    publish_folder,
    refuse_existing,
    write_files,
    write_rank,
)
from rollbook.replay.bundle.writing.drafts import (
    Draft,
    check_cohort,
    check_draft,
    check_ranks,
    complete_file,
    files_of,
    json_file,
    recomputable,
    shard_of,
)

__all__ = ["Draft", "check_cohort", "check_draft", "recomputable", "write_bundle", "write_cohort"]


def write_bundle(path: Path, draft: Draft) -> Path:
    """Publish the bundle of one rank at `path`, which must not exist yet; its parent folders are made.

    Raises `BadBundle` for a draft that a strict reader would refuse, `BadInput` when `path` exists, `EnvironmentFault`
    when the disk does not play along.
    """
    refuse_existing(path)
    try:
        files = files_of(draft)
    except Refused as refused:
        raise BadBundle(str(path), *refused.problems) from None
    return _publish(path, lambda folder: write_rank(folder, files))


def write_cohort(path: Path, drafts: Mapping[int, Draft]) -> Path:
    """Publish the bundles of all ranks of one step at `path`, by rank; raises like `write_bundle`.

    All of the expected ranks or nothing: the final COMPLETE says that they are there, and a bundle once published is
    never added to.
    """
    refuse_existing(path)
    if problems := check_ranks(drafts):
        raise BadBundle(str(path), *problems)

    def write(folder: Path) -> None:
        # Rank by rank, so that no more than one is held twice; a rank that is refused takes the others with it.
        shards = {rank: _write_shard(path, folder, draft) for rank, draft in sorted(drafts.items())}
        write_files(folder, (json_file(rank_complete(rank), shard) for rank, shard in shards.items()))
        write_files(folder, [complete_file(shards)])

    return _publish(path, write)


def _write_shard(path: Path, folder: Path, draft: Draft) -> ShardComplete:
    name = rank_folder(draft.rank)
    try:
        files = files_of(draft)
    except Refused as refused:
        raise BadBundle(str(path), *(_within(name, problem) for problem in refused.problems)) from None
    (folder / name).mkdir()
    write_rank(folder / name, files)
    return shard_of(files.record, draft.rank)


def _within(name: str, problem: Problem) -> Problem:
    return replace(problem, file=f"{name}/{problem.file}")


def _publish(path: Path, write: Callable[[Path], None]) -> Path:
    with disk_faults(path), hidden_folder(path) as folder:
        write(folder)
        publish_folder(folder, path)
    return path
