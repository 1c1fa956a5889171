"""What part of a bundle to replay. A part never splits a group: what was normalised together is recomputed together."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import StageId
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

Positions = tuple[int, ...]
_GROUP = re.compile(r"^(?:g-)?(0|[1-9][0-9]{0,18})$", re.ASCII)
_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Selection:
    """Stages, samples, groups and micro-batches; empty means all. A group is named by its index, 3 or g-3, since that
    is what the format ties samples to."""

    stages: tuple[StageId, ...] = ()
    samples: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()

    @property
    def is_part(self) -> bool:
        return bool(self.samples or self.groups or self.batches)

    def has(self, stage: StageId) -> bool:
        return not self.stages or stage in self.stages


def stage_of(name: str) -> StageId:
    """The stage of this name; raises `BadInput` naming those there are."""
    try:
        return StageId(name)
    except ValueError:
        raise BadInput(f"no stage '{visible(name)}': the stages are {', '.join(StageId)}") from None


def positions_of(bundles: Sequence[Bundle], selection: Selection) -> tuple[Positions | None, ...]:
    """Of each rank the positions of its selected samples with the rest of their groups, in index order; None for all.

    A group may lie on several ranks, so its members are looked for on all of them. Raises `BadInput` for what no rank
    records, and where a rank does not record which samples belong together.
    """
    if not selection.is_part:
        return (None,) * len(bundles)
    _require_membership(bundles, selection)
    groups: set[int | None] = {_group_index(bundles, name) for name in selection.groups}
    for bundle in bundles:
        groups |= {
            sample.group_index
            for sample in bundle.index.samples
            if sample.sample_id in selection.samples or sample.micro_batch_id in selection.batches
        }
    found: list[Positions | None] = []
    for bundle in bundles:
        samples = bundle.index.samples
        positions = tuple(at for at, sample in enumerate(samples) if sample.group_index in groups)
        found.append(None if len(positions) == len(samples) else positions)
    return tuple(found)


def _require_membership(bundles: Sequence[Bundle], selection: Selection) -> None:
    name = visible(bundles[0].bundle_id)
    if selection.batches:
        recorded = _listed(batch for bundle in bundles for batch in bundle.index.identity.micro_batch_ids)
        if not recorded:
            raise BadInput(f"bundle {name} records no micro-batch membership: replay it whole, without --batch")
        _require(name, "micro-batch", selection.batches, recorded)
    samples = [sample for bundle in bundles for sample in bundle.index.samples]
    _require(name, "sample", selection.samples, _listed(sample.sample_id for sample in samples))
    if any(sample.group_index is None for sample in samples):
        raise BadInput(
            f"bundle {name} records no group membership (a sample without group_index), so no part of it is whole: "
            "replay it without --sample, --group and --batch"
        )


def _require(bundle: str, noun: str, wanted: Iterable[str], recorded: Sequence[str]) -> None:
    there = frozenset(recorded)
    for one in wanted:
        if one not in there:
            raise BadInput(f"bundle {bundle} has no {noun} '{visible(one)}': it has {_few(recorded)}")


def _group_index(bundles: Sequence[Bundle], name: str) -> int:
    samples = (sample for bundle in bundles for sample in bundle.index.samples)
    recorded = sorted({sample.group_index for sample in samples if sample.group_index is not None})
    match = _GROUP.match(name)
    if match is not None and int(match[1]) in recorded:
        return int(match[1])
    named = any(name in bundle.index.identity.semantic_group_ids for bundle in bundles)
    why = " tied to samples (the format ties them to indexes)" if named else ""
    raise BadInput(
        f"bundle {visible(bundles[0].bundle_id)} has no group '{visible(name)}'{why}: it has "
        f"{_few([f'g-{index}' for index in recorded])}; or name one of its samples, --sample"
    )


def _listed(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_SHOWN:,} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(map(visible, names[:_MAX_SHOWN])) + more
