"""What a bundle can promise by itself: to recompute every stage whose inputs and results were recorded."""

from collections import Counter
from collections.abc import Iterator

from rollbook.replay.bundle.model import Capability, StageContract, StageId
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.stages.table import ROLLOUT_LEVEL, STAGES


def contracts_of(draft: Draft) -> tuple[StageContract, ...]:
    """A contract for each stage of which anything was recorded; one whose convention or topology no kernel here
    computes is named as unsupported, and not left out."""
    return tuple(_contracts(draft))


def _contracts(draft: Draft) -> Iterator[StageContract]:
    level = ROLLOUT_LEVEL if draft.index.identity.actor_step_id is None else frozenset(StageId)
    for name, stage in STAGES.items():
        if name not in level or stage.capability is not Capability.RECOMPUTE or not _has_all(name, draft):
            continue
        yield StageContract(stage=name, capability=_capability(name, draft))


def _capability(name: StageId, draft: Draft) -> Capability:
    if STAGES[name].refuses(draft.index) is not None:
        return Capability.UNSUPPORTED
    if STAGES[name].grouped and not _whole_groups(draft):
        return Capability.RECORDED_ONLY  # a mini-batch, or a rank, has a part of a group only
    return Capability.RECOMPUTE


def _whole_groups(draft: Draft) -> bool:
    """Also under a named convention, which takes groups of any size: that a smaller one is whole only its writer
    knows, who can promise it."""
    members = Counter(sample.group_index for sample in draft.index.samples)
    members.update(one.group_index for one in draft.index.cohort or ())
    return set(members.values()) == {draft.index.config.n_samples_per_prompt}


def _has_all(name: StageId, draft: Draft) -> bool:
    stage = STAGES[name]
    if any(payload not in draft.tensors for payload in stage.payloads(draft.index.config)):
        return False
    if stage.grouped and any(sample.group_index is None for sample in draft.index.samples):
        return False
    needed = [output for output in stage.outputs if not output.optional]
    return all(
        (output.payload is None or output.payload in draft.tensors)
        and (output.expected is None or output.expected(draft.expected) is not None)
        for output in needed
    )
