"""What a training loop hands over, and the bundle's writer made of it later, in another thread."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rollbook.replay.bundle.arrays import ArrayLike, nbytes, snapshot
from rollbook.replay.bundle.contextparallel import ContextParallel
from rollbook.replay.bundle.model import Capability, Config, Links, Producer, StageId
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.bundle.writing.bundle_writer import BundleWriter
from rollbook.replay.bundle.writing.rows import NotConsumed, Origin, Rows, index_of

_COLUMNS = ("group_index", "response_lengths", "total_lengths", "loss_mask", "raw_rewards", "rewards")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One rank of an optimizer step, or with `step_id=None` of a rollout, as the trainer has it.

    Arrays are numpy's or torch's, on any device; `tensors` are flat over the response tokens of all rows, as in
    BundleWriter, or of a context-parallel shard over those that this rank holds. `loss` and `value_loss` are the step's
    scalars, `terms` each row's share of them. `cohort`: what rewards were normalised with and was not consumed.
    `remote_rewards`: nobody can compute the raw rewards again.
    """

    rollout_id: int
    step_id: int | None
    rows: Rows
    config: Config
    tensors: Mapping[str, ArrayLike]
    loss: Mapping[str, ArrayLike] | None = None
    value_loss: Mapping[str, ArrayLike] | None = None
    terms: Mapping[str, ArrayLike] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)
    links: Links | None = None
    cohort: NotConsumed | None = None
    context_parallel: ContextParallel | None = None
    remote_rewards: bool = False

    @property
    def bundle_id(self) -> str:
        """`replay-7-0` for a step, `replay-7` for a rollout."""
        return f"replay-{self.rollout_id}" if self.step_id is None else f"replay-{self.rollout_id}-{self.step_id}"


def size_bytes(recorded: Recorded) -> int:
    """What a copy takes, nearly: the arrays alone."""
    return sum(map(nbytes, recorded.tensors.values())) + sum(
        nbytes(column) for column in _columns(recorded.rows).values() if column is not None
    )


def copied(recorded: Recorded) -> Recorded:
    """A copy that the training's next step leaves as it is, every array where it was."""
    rows = recorded.rows
    return replace(
        recorded,
        rows=Rows(
            sample_ids=tuple(rows.sample_ids),
            micro_batch_ids=None if rows.micro_batch_ids is None else tuple(rows.micro_batch_ids),
            labels=None if rows.labels is None else tuple(rows.labels),
            unmeasured=dict(rows.unmeasured),
            **{name: None if column is None else snapshot(column) for name, column in _columns(rows).items()},
        ),
        tensors=_snapshots(recorded.tensors),
        cohort=None if recorded.cohort is None else _members(recorded.cohort),
        loss=None if recorded.loss is None else _snapshots(recorded.loss),
        value_loss=None if recorded.value_loss is None else _snapshots(recorded.value_loss),
        terms=_snapshots(recorded.terms),
    )


def writer_of(
    recorded: Recorded, folder: Path, *, producer: Producer, rank: int, attempt: str, redactor: Redactor
) -> BundleWriter:
    """The writer that has everything. Raises BadInput for what no bundle can hold."""
    index = index_of(
        recorded.bundle_id,
        recorded.rows,
        recorded.config,
        rollout_id=recorded.rollout_id,
        step_id=recorded.step_id,
        origin=recorded.origin,
        links=recorded.links,
        cohort=recorded.cohort,
        context_parallel=recorded.context_parallel,
        redactor=redactor,
    )
    writer = BundleWriter(
        folder / recorded.bundle_id, index=index, producer=producer, rank=rank, attempt=attempt, redactor=redactor
    )
    for name, tensor in recorded.tensors.items():
        writer.payload(name, tensor)
    for name, values in recorded.terms.items():
        writer.terms(name, values)
    writer.expect(
        raw_rewards=recorded.rows.raw_rewards,
        rewards=recorded.rows.rewards,
        loss=recorded.loss,
        value_loss=recorded.value_loss,
    )
    if recorded.remote_rewards:
        writer.promise(StageId.REWARD_RAW, capability=Capability.RECORDED_ONLY)
    return writer


def _members(cohort: NotConsumed) -> NotConsumed:
    return NotConsumed(tuple(cohort.sample_ids), snapshot(cohort.group_index), snapshot(cohort.raw_rewards))


def _columns(rows: Rows) -> dict[str, Any]:
    return {name: getattr(rows, name) for name in _COLUMNS}


def _snapshots(arrays: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    return {name: snapshot(array) for name, array in arrays.items()}
