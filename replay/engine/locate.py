"""Which bundle a path means: the bundle itself, or in a folder of bundles the one of a step or rollout."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rollbook.replay.bundle.folder import Folder, open_folder
from rollbook.replay.bundle.layout import (
    is_leftover,
    looks_like_cohort,
    max_json_bytes,
    rank_complete,
    rank_folders,
)
from rollbook.replay.bundle.model import (
    COMPLETE,
    INDEX,
    MANIFEST,
    Identity,
    Index,
    RankComplete,
    ShardComplete,
)
from rollbook.replay.bundle.problems import Refused
from rollbook.replay.bundle.strictjson import parse
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_STEP = re.compile(r"^([0-9]{1,15}):([0-9]{1,15})$", re.ASCII)
_MAX_ENTRIES = 10_000
_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True, order=True)
class Coordinates:
    """Of a bundle: an optimizer step, or with `step_id` -1 a whole rollout, which comes before its steps."""

    rollout_id: int
    step_id: int = -1

    def __str__(self) -> str:
        return f"rollout {self.rollout_id}" if self.step_id < 0 else f"step {self.rollout_id}:{self.step_id}"


@dataclass(frozen=True, slots=True)
class Found:
    """A bundle in a folder; `at` is None where its files do not say whose it is."""

    path: Path
    at: Coordinates | None


def wanted(step: str | None, rollout: int | None) -> Coordinates | None:
    """What --step and --rollout ask for; raises `BadInput` for both, and for what is no step."""
    if step is not None and rollout is not None:
        raise BadInput("--step and --rollout exclude one another: a bundle is of a step or of a rollout, give one")
    if rollout is not None:
        if rollout < 0:
            raise BadInput(f"--rollout {rollout}: give a rollout_id, 0 or above")
        return Coordinates(rollout)
    if step is None:
        return None
    match = _STEP.match(step)
    if match is None:
        raise BadInput(f"--step '{visible(step)}' is no step: give ROLLOUT_ID:STEP_ID, for example 120:0")
    return Coordinates(int(match[1]), int(match[2]))


def coordinates(identity: Identity | RankComplete) -> Coordinates | None:
    """Whose a bundle is, by its own word."""
    step = identity.actor_step_id
    if step is not None:
        return Coordinates(step.rollout_id, step.step_id)
    return None if identity.rollout_id is None else Coordinates(identity.rollout_id)


def locate(path: Path, which: Coordinates | None) -> Path:
    """The bundle at `path`, or the one in the folder there that `which` names, or its only one.

    Raises `BadInput` when it is another one, and when none or several match. Where nothing tells whose the bundle is,
    it is left to its reader, who says what is wrong with it.
    """
    with open_folder(path) as folder:
        if (here := _found(folder)) is not None:
            if which is not None and here.at is not None and here.at != which:
                raise BadInput(f"{visible(path)} is the bundle of {here.at}, not of {which}: correct the option")
            return path
        inside = tuple(_inside(folder))
    if not inside:
        return path
    matching = [found for found in inside if which is None or found.at == which]
    if len(matching) == 1:
        return matching[0].path
    names = _few(found.path.name for found in matching or inside)
    if which is None:
        raise BadInput(
            f"{visible(path)} is not a bundle, it holds bundles, name one: {names} (or --step R:S, --rollout R)"
        )
    if matching:
        raise BadInput(f"{visible(path)} holds {len(matching)} bundles of {which}, name one: {names}")
    has = _few(dict.fromkeys(str(found.at or f"{found.path.name}, unreadable") for found in sorted(inside, key=_order)))
    raise BadInput(f"{visible(path)} holds no bundle of {which}: it has {has}")


def bundles_in(path: Path) -> tuple[Found, ...]:
    """Every bundle in the folder at `path`, in the order in which a training makes them; a bundle itself is alone."""
    with open_folder(path) as folder:
        here = _found(folder)
        found = (here,) if here is not None else tuple(_inside(folder))
    return tuple(sorted(found, key=_order))


def _order(found: Found) -> tuple[bool, Coordinates, str]:
    return found.at is None, found.at or Coordinates(0), found.path.name


def _inside(folder: Folder) -> Iterable[Found]:
    names = folder.names()
    if len(names) > _MAX_ENTRIES:
        raise BadInput(f"{visible(folder.path)} has {len(names):,} entries: give the folder of one bundle")
    for name in names:
        if is_leftover(name):
            continue
        try:
            with folder.subfolder(name) as child:
                found = _found(child)
        except Refused:  # a file or a link beside the bundles
            continue
        if found is not None:
            yield found


def _found(folder: Folder) -> Found | None:
    names = folder.names()
    if looks_like_cohort(names):
        return Found(folder.path, _of_ranks(folder, names))
    if MANIFEST in names or COMPLETE in names:
        return Found(folder.path, _of_rank(folder, names))
    return None


def _of_ranks(folder: Folder, names: tuple[str, ...]) -> Coordinates | None:
    for rank in rank_folders(names):
        record = rank_complete(int(rank.removeprefix("rank-")))
        try:
            if record in names:
                return coordinates(parse(record, folder.read(record, max_json_bytes(record)), ShardComplete))
            with folder.subfolder(rank) as child:
                return _of_rank(child, child.names())
        except Refused:
            continue
    return None


def _of_rank(folder: Folder, names: tuple[str, ...]) -> Coordinates | None:
    """From the small COMPLETE.<rank>; from the index, which may be large, only where there is none."""
    try:
        for name in names:
            if name.startswith(f"{COMPLETE}."):
                return coordinates(parse(name, folder.read(name, max_json_bytes(name)), RankComplete))
        return coordinates(parse(INDEX, folder.read(INDEX, max_json_bytes(INDEX)), Index).identity)
    except Refused:
        return None


def _few(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _MAX_SHOWN:,} more" if len(every) > _MAX_SHOWN else ""
    return ", ".join(map(visible, every[:_MAX_SHOWN])) + more
