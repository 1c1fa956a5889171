"""What part of a bundle to replay. A part never splits a group: what was normalised together is recomputed together."""

from dataclasses import dataclass

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import StageId
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput


@dataclass(frozen=True, slots=True)
class Selection:
    """Stages and micro-batches; empty means all."""

    stages: tuple[StageId, ...] = ()
    batches: tuple[str, ...] = ()

    def has(self, stage: StageId) -> bool:
        return not self.stages or stage in self.stages


def stage_of(name: str) -> StageId:
    """The stage of this name; raises `BadInput` naming those there are."""
    try:
        return StageId(name)
    except ValueError:
        raise BadInput(f"no stage '{visible(name)}': the stages are {', '.join(StageId)}") from None


def positions_of(bundle: Bundle, selection: Selection) -> tuple[int, ...] | None:
    """Positions of the selected samples with the rest of their groups, in index order; None for all of them.

    Raises `BadInput` for a micro-batch that the bundle does not record.
    """
    if not selection.batches:
        return None
    recorded = bundle.index.identity.micro_batch_ids
    name = visible(bundle.bundle_id)
    if not recorded:
        raise BadInput(f"bundle {name} records no micro-batch membership: replay it whole, without --batch")
    for batch in selection.batches:
        if batch not in recorded:
            has = ", ".join(map(visible, recorded[:10]))
            raise BadInput(f"bundle {name} has no micro-batch '{visible(batch)}': it has {has}")
    samples = bundle.index.samples
    chosen = [sample for sample in samples if sample.micro_batch_id in selection.batches]
    groups = {sample.group_index for sample in chosen} - {None}
    positions = tuple(
        at
        for at, sample in enumerate(samples)
        if sample.micro_batch_id in selection.batches or sample.group_index in groups
    )
    return None if len(positions) == len(samples) else positions
