"""Which bundles make up a chain: all of a folder, or a bundle and those that its links name beside it."""

from collections.abc import Iterator
from pathlib import Path

from rollbook.replay.bundle.model import Index
from rollbook.replay.bundle.reading import cohort
from rollbook.replay.engine.locate import Found, bundles_in
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible


def members(path: Path, rollout: int | None) -> tuple[Path, ...]:
    """The bundles of the chain in the order of the training; of one rollout only, where it is given.

    Raises `BadInput` where there is none, and where one names another that is not there.
    """
    inside = bundles_in(path)
    alone = len(inside) == 1 and inside[0].path == path
    found = tuple(_linked(path, inside[0])) if alone else inside
    chosen = tuple(one for one in found if rollout is None or (one.at is not None and one.at.rollout_id == rollout))
    if not chosen:
        of = "" if rollout is None else f" of rollout {rollout}"
        raise BadInput(f"{visible(path)} holds no bundle{of}: give a bundle, or a folder of bundles")
    return tuple(one.path for one in chosen)


def named_by(index: Index) -> Iterator[str]:
    """The other bundles that an index names."""
    if index.links is not None:
        if index.links.update_bundle is not None:
            yield index.links.update_bundle
        yield from (step.bundle_id for step in index.links.step_bundles)


def _linked(path: Path, here: Found) -> Iterator[Found]:
    """A bundle, the update's bundle that it names, and the steps that name the same or are named by it."""
    index = _index_of(path)
    if index.links is None or here.at is None:
        yield here
        return
    # By its absolute path, since the bundles beside `.` are needed by name.
    own = path.absolute()
    update = index.links.update_bundle or own.name
    named = {own.name, update, *named_by(index)}
    for found in bundles_in(own.parent):
        if found.path == own:
            yield here
        elif found.path.name in named:
            yield found
        elif found.at is not None and found.at.rollout_id == here.at.rollout_id:
            links = _index_of(found.path).links
            if links is not None and links.update_bundle == update:
                yield found


def _index_of(path: Path) -> Index:
    return cohort.inspect(path)[0].metadata.index
