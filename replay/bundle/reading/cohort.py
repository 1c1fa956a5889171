"""A bundle as a path names it: one rank's folder, or the folders of all ranks under the final COMPLETE."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rollbook.replay.bundle.bundle import Bundle, Cohort
from rollbook.replay.bundle.folder import Folder, open_folder
from rollbook.replay.bundle.layout import (
    bundles_within,
    is_leftover,
    looks_like_cohort,
    max_json_bytes,
    rank_complete,
    rank_folder,
    rank_folders,
)
from rollbook.replay.bundle.model import COMPLETE, INDEX, MANIFEST, CohortComplete, Sample, ShardComplete
from rollbook.replay.bundle.problems import CAPTURE_AGAIN, BadBundle, Problem, Refused
from rollbook.replay.bundle.reading.checks import check_agreement
from rollbook.replay.bundle.reading.reader import MAX_PROBLEMS, Loaded, Metadata, Seal, load, read_json_files
from rollbook.replay.bundle.reading.reassembly import reassembled
from rollbook.replay.bundle.strictjson import parse
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_WAIT = "wait until every rank has finished, or capture the bundle again"


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Everything that is wrong with a bundle; valid when nothing is."""

    path: Path
    ranks: tuple[int, ...]
    problems: tuple[Problem, ...]

    @property
    def valid(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class Inspected:
    """One rank's metadata as it lies there, complete or not."""

    label: str
    complete: bool
    metadata: Metadata


def read_bundle(path: Path) -> Bundle:
    """The bundle of one rank; raises `BadBundle`, or `BadInput` when there is no bundle at `path`."""
    bundles = read_cohort(path).bundles
    if len(bundles) != 1:
        raise BadInput(f"{visible(path)} holds {len(bundles)} ranks: name one of its rank-* folders")
    return bundles[0]


def read_cohort(path: Path) -> Cohort:
    """The bundles of every rank, each context-parallel group as one; raises like `read_bundle`."""
    read = _load_all(path)
    if read.problems:
        raise BadBundle(str(path), *read.problems)
    return Cohort(path, read.bundles[0].bundle_id, read.bundles)


def validate(path: Path) -> ValidationReport:
    """Every problem of the bundle at `path`; raises `BadInput` only when there is no bundle to look at."""
    read = _load_all(path)
    return ValidationReport(path, read.ranks, read.problems)


def inspect(path: Path) -> tuple[Inspected, ...]:
    """The metadata of each rank, also of a bundle without COMPLETE; raises like `read_bundle`."""
    with open_folder(path) as folder:
        names = _entries(folder, leftovers=True)
        try:
            if not looks_like_cohort(names):
                return (Inspected("", COMPLETE in names, read_json_files(folder)),)
            found: list[Inspected] = []
            for name in rank_folders(names):
                with folder.subfolder(name) as rank:
                    found.append(Inspected(name, COMPLETE in names, read_json_files(rank)))
            return tuple(found)
        except Refused as refused:
            raise BadBundle(str(path), *refused.problems) from None


def _entries(folder: Folder, *, leftovers: bool = False) -> tuple[str, ...]:
    """The names in a folder that is a bundle; raises `BadInput` when it is something else."""
    names = folder.names()
    if not leftovers and is_leftover(folder.path.name):
        raise BadInput(f"{visible(folder.path)} is what a writer that died left behind: delete it")
    if not (MANIFEST in names or COMPLETE in names or looks_like_cohort(names)):
        inside = bundles_within(folder)
        hint = f"it holds bundles, name one: {', '.join(map(visible, inside))}" if inside else "check the path"
        raise BadInput(f"{visible(folder.path)} is not a bundle (no {MANIFEST} in it): {hint}")
    return names


@dataclass(frozen=True, slots=True)
class _Read:
    """What a path holds: the ranks on disk, and the bundles they make, none where there are problems."""

    ranks: tuple[int, ...] = ()
    bundles: tuple[Bundle, ...] = ()
    problems: tuple[Problem, ...] = ()


def _load_all(path: Path) -> _Read:
    with open_folder(path) as folder:
        names = _entries(folder)
        if looks_like_cohort(names):
            return _load_ranks(folder, names)
        loaded = load(folder)
    problems = loaded.problems
    if loaded.bundle is not None and loaded.seal is not None and loaded.seal.expected_ranks != (loaded.seal.rank,):
        problems = (*_check_final(path, loaded.seal), *_check_whole(loaded.bundle))
    if loaded.bundle is None or problems:
        return _Read(problems=problems)
    return _Read((loaded.bundle.rank,), (loaded.bundle,))


def _load_ranks(folder: Folder, names: tuple[str, ...]) -> _Read:
    if COMPLETE not in names:
        return _Read(problems=(Problem(COMPLETE, "", "missing beside the ranks", _WAIT),))
    bundles: list[Bundle] = []
    problems: list[Problem] = []
    of_groups: dict[tuple[int, ...], tuple[Sample, ...]] = {}
    try:
        complete = parse(COMPLETE, folder.read(COMPLETE, max_json_bytes(COMPLETE)), CohortComplete)
        problems += _check_ranks(complete, names)
        for rank in () if problems else sorted(complete.ranks):
            with folder.subfolder(rank_folder(rank)) as shard:
                loaded = load(Folder(shard.path, shard.fd))
            problems += (replace(found, file=f"{shard.label}{found.file}") for found in loaded.problems)
            if len(problems) >= MAX_PROBLEMS:
                break
            stated = complete.shards[str(rank)]
            written = parse(
                rank_complete(rank),
                folder.read(rank_complete(rank), max_json_bytes(rank_complete(rank))),
                ShardComplete,
            )
            problems += _check_shard(rank, stated, written, loaded)
            if loaded.bundle is not None:
                bundles.append(_sharing(loaded.bundle, of_groups))
        if not problems:
            problems += check_agreement({bundle.rank: bundle.index for bundle in bundles})
        if not problems:
            return _Read(tuple(bundle.rank for bundle in bundles), reassembled(bundles))
    except Refused as refused:
        problems += refused.problems
    return _Read(problems=tuple(problems))


def _sharing(bundle: Bundle, of_groups: dict[tuple[int, ...], tuple[Sample, ...]]) -> Bundle:
    """Each shard of a context-parallel group names the group's whole samples, with a mask entry a token: kept once, or
    the masks of many shards would take more than all their tensors."""
    index = bundle.index
    if index.context_parallel is None:
        return bundle
    samples = of_groups.setdefault(index.context_parallel.ranks, index.samples)
    if samples is index.samples or samples != index.samples:
        return bundle
    return replace(bundle, index=index.model_copy(update={"samples": samples}))


def _check_ranks(complete: CohortComplete, names: tuple[str, ...]) -> Iterator[Problem]:
    ranks = sorted(complete.ranks)
    if len(set(ranks)) != len(ranks) or {str(rank) for rank in ranks} != complete.shards.keys():
        yield Problem(COMPLETE, "shards", f"not one for each of the ranks {visible(ranks)}", CAPTURE_AGAIN)
        return
    for rank in ranks:
        shard = complete.shards[str(rank)]
        if sorted(shard.expected_ranks) != ranks:
            what = f"{visible(list(shard.expected_ranks))}, but {COMPLETE} has {visible(ranks)}"
            yield Problem(COMPLETE, f"shards.{rank}.expected_ranks", what, _WAIT)
        if shard.relpath != rank_folder(rank):
            what = f"'{visible(shard.relpath)}', only {rank_folder(rank)} is read"
            yield Problem(COMPLETE, f"shards.{rank}.relpath", what, CAPTURE_AGAIN)
    for name in sorted(set(rank_folders(names)) - {rank_folder(rank) for rank in ranks}):
        yield Problem(name, "", f"not among the ranks of {COMPLETE}", CAPTURE_AGAIN)


def _check_shard(rank: int, stated: ShardComplete, written: ShardComplete, loaded: Loaded) -> Iterator[Problem]:
    file = rank_complete(rank)
    if stated != written:
        yield Problem(file, "", f"not the record in {COMPLETE}", CAPTURE_AGAIN)
    if loaded.seal is None:
        return
    if loaded.seal.rank != rank:
        yield Problem(f"{rank_folder(rank)}/{COMPLETE}", "ranks", f"rank {loaded.seal.rank}", CAPTURE_AGAIN)
    if not _same_record(stated, loaded.seal):
        yield Problem(file, "", f"not the record in {rank_folder(rank)}/{file}", CAPTURE_AGAIN)


def _same_record(shard: ShardComplete, seal: Seal) -> bool:
    return shard.model_dump(exclude={"relpath"}) == seal.record.model_dump()


def _check_final(path: Path, seal: Seal) -> Iterator[Problem]:
    """A rank's folder given by itself counts only once the final COMPLETE beside it vouches for it."""
    others = f"it is one of the ranks {visible(list(seal.expected_ranks))}"
    try:
        with open_folder(path.resolve().parent) as parent:
            complete = parse(f"../{COMPLETE}", parent.read(COMPLETE, max_json_bytes(COMPLETE)), CohortComplete)
    except (Refused, BadInput):
        yield Problem(f"../{COMPLETE}", "", f"missing or unreadable, and {others}", _WAIT)
        return
    shard = complete.shards.get(str(seal.rank))
    if sorted(complete.ranks) != sorted(seal.expected_ranks) or shard is None or not _same_record(shard, seal):
        yield Problem(f"../{COMPLETE}", "shards", f"does not vouch for this folder, and {others}", _WAIT)


def _check_whole(bundle: Bundle) -> Iterator[Problem]:
    """A share of the tokens is no bundle by itself."""
    if bundle.index.context_parallel is not None:
        what = (
            f"it holds a share of the tokens only, with the ranks {visible(list(bundle.index.context_parallel.ranks))}"
        )
        yield Problem(INDEX, "context_parallel", what, "name the folder that holds all ranks")
