"""Several ranks that write one bundle, each by itself and none waiting for another.

1. a rank writes its folder whole under a hidden name; 2. it is renamed into the hidden folder that all ranks of one
attempt share, as `rank-N`; 3. `COMPLETE.N` is put beside it; 4. whoever finds every expected `COMPLETE.N` there puts
the final `COMPLETE` beside them, and 5. renames the shared folder to the bundle's path. What a crash leaves keeps its
hidden name, so at the path there is a whole bundle or nothing.

An attempt is one start of the training. Ranks of two attempts never share a folder, so a bundle never holds numbers of
two; nor do ranks that contradict one another in what all of them must agree on.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rollbook.replay.bundle.folder import open_folder
from rollbook.replay.bundle.layout import leftover_name, max_json_bytes, rank_complete, rank_folder
from rollbook.replay.bundle.model import Index, ShardComplete
from rollbook.replay.bundle.problems import BadBundle, Refused
from rollbook.replay.bundle.strictjson import parse, render
from rollbook.replay.bundle.writing.disk import (
    disk_faults,
    hidden_folder,
    publish_folder,
    refuse_existing,
    taken,
    write_once,
    write_rank,
)
from rollbook.replay.bundle.writing.drafts import Draft, complete_file, files_of, json_file, shard_of
from rollbook.schemas.errors import BadInput

_TOKEN_LENGTH = 32


def write_shard(path: Path, draft: Draft, attempt: str) -> tuple[int, ...]:
    """Write one rank's share of the bundle at `path`, and publish the bundle if it was the last.

    Returns the expected ranks that are not there yet. Raises like `write_bundle`, also where this rank of this attempt
    was written already.
    """
    if not attempt:
        raise BadInput("ranks that write by themselves need an attempt: one text for all ranks, another at each start")
    refuse_existing(path)
    try:
        files = files_of(draft)
    except Refused as refused:
        raise BadBundle(str(path), *refused.problems) from None
    shared = shared_folder(path, draft.index, draft.expected_ranks, attempt)
    with disk_faults(path):
        try:
            with hidden_folder(path) as folder:
                write_rank(folder, files)
                shared.mkdir(exist_ok=True)
                publish_folder(folder, shared / rank_folder(draft.rank))
            record = shard_of(files.record, draft.rank)
            write_once(shared, json_file(rank_complete(draft.rank), record), hidden_beside=path)
        except FileNotFoundError:
            if os.path.lexists(path):
                raise taken(path) from None
            raise
        return publish_shards(path, shared, draft.expected_ranks)


def publish_shards(path: Path, shared: Path, expected_ranks: Iterable[int]) -> tuple[int, ...]:
    """Publish a bundle all of whose ranks are there; returns those that are not. Any rank may try, any number of
    times."""
    expected = sorted(expected_ranks)
    with disk_faults(path):
        try:
            names = {entry.name for entry in shared.iterdir()}
            missing = tuple(rank for rank in expected if rank_complete(rank) not in names)
            if missing:
                return missing
            write_once(shared, complete_file(_read_shards(shared, expected)), hidden_beside=path)
            publish_folder(shared, path)
        except (FileNotFoundError, BadInput, Refused) as error:
            if not shared.exists() and os.path.lexists(path):
                return ()  # another rank that found them all was quicker: the shared folder is the bundle by now
            if isinstance(error, Refused):
                raise BadBundle(str(shared), *error.problems) from None
            raise
    return ()


def shared_folder(path: Path, index: Index, expected_ranks: Iterable[int], attempt: str) -> Path:
    """Where the ranks of one attempt meet. Its name follows from all that they must agree on, so that those which do
    not agree never meet."""
    agreed = (
        attempt,
        index.bundle_id,
        repr(index.identity.actor_step_id),
        repr(index.identity.rollout_id),
        render(index.identity.rank).decode(),
        render(index.config).decode(),
        "" if index.links is None else render(index.links).decode(),
        repr(sorted(expected_ranks)),
        *_dealt_out(index),
    )
    token = hashlib.sha256("\0".join(agreed).encode("utf-8", "surrogatepass")).hexdigest()[:_TOKEN_LENGTH]
    return path.parent / leftover_name(path.name, token)


def _dealt_out(index: Index) -> Iterator[str]:
    """What is the same in all context-parallel groups of a training; whether the shards of one group fit together is
    known to whoever has them all."""
    if (layout := index.context_parallel) is not None:
        yield from (layout.order, layout.held_by, layout.scalars)


def _read_shards(shared: Path, ranks: Iterable[int]) -> dict[int, ShardComplete]:
    with open_folder(shared) as folder:
        names = {rank: rank_complete(rank) for rank in ranks}
        return {
            rank: parse(name, folder.read(name, max_json_bytes(name)), ShardComplete) for rank, name in names.items()
        }
