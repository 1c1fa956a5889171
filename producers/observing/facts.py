"""What an observed update publishes, in the observing thread: facts of a training that has waited for no answer."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rollbook.producers.arrays import Field, copied, log_probs, mask_array, size_of
from rollbook.producers.clients.trainer import Trainer
from rollbook.producers.updates.drift import admit_item, current_payloads
from rollbook.producers.updates.recorders import Recorders
from rollbook.producers.updates.recording import StepArrays
from rollbook.producers.updates.records import UpdateRecords
from rollbook.schemas.digests import FloatArray, Mask, evidence_digest, trajectory_evidence_digest
from rollbook.schemas.records.common import Lifecycle, PayloadRef, PolicyRef
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.update import (
    AbortDisposition,
    Admit,
    CommitStep,
    Disposition,
    DroppedItem,
    ReserveItem,
    ReserveMode,
)

_ANY_REVISION = 0
"""Who waits for no decision cannot know revisions: in a run that observes the ledger compares none."""


@dataclass(frozen=True)
class ObservedRow:
    """A trajectory as its trainer has it: for each segment its behavior log-probs and action mask, [T] each, and the
    current log-probs of all segments joined."""

    trajectory_id: str
    behavior: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]]
    current_log_probs: npt.ArrayLike

    def snapshot(self) -> "ObservedRow":
        """A copy that the training cannot change any more."""
        behavior = [(copied(values), copied(mask)) for values, mask in self.behavior]
        return ObservedRow(self.trajectory_id, behavior, copied(self.current_log_probs))

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        arrays = [array for pair in self.behavior for array in pair]
        return sum(size_of(array) for array in (*arrays, self.current_log_probs))

    @property
    def evidence_digest(self) -> str:
        return trajectory_evidence_digest([evidence_digest(mask, values) for values, mask in self._segments])

    @property
    def log_probs(self) -> FloatArray:
        return np.concatenate([values for values, _ in self._segments])

    @property
    def action_mask(self) -> Mask:
        return np.concatenate([mask for _, mask in self._segments])

    @cached_property
    def _segments(self) -> list[tuple[FloatArray, Mask]]:
        segments = []
        for index, (values, mask) in enumerate(self.behavior):
            place = Field("Admit", f"behavior.{index}")
            checked = mask_array(place / "action_mask", mask)
            segments.append((log_probs(place / "log_probs", values, checked), checked))
        return segments


@dataclass(frozen=True, slots=True)
class Done:
    """What the training did by its own account: the rows of each step, and why it did not train on others."""

    steps: tuple[tuple[str, ...], ...]
    not_trained: Mapping[str, tuple[str, Disposition]]


@dataclass(slots=True)
class _Sides:
    """What can only be made with a started trainer."""

    records: UpdateRecords
    recorders: Recorders


@dataclass
class Facts:
    """The thread's side of one update. Only the observing thread calls it, in the order of the training's calls."""

    update_id: str
    rollout_id: int
    rank: int
    last_sent: float | None = None
    """When the ledger was last told of it, on the monotonic clock; none before the first time."""
    is_over: bool = False
    """Whether the training has left it: nothing is renewed any more."""
    _made: _Sides | None = None
    _reserve_part: int = 0
    _admit_part: int = 0

    def reserve(self, trainer: Trainer, ids: Sequence[str], policy: PolicyRef) -> None:
        """The training took these rows."""
        items = [ReserveItem(trajectory_id=one, expected_revision=_ANY_REVISION) for one in ids]
        records = self._of(trainer).records
        self._publish(trainer, records.reserve(self._reserve_part, policy, ReserveMode.AVAILABLE, items=items))
        self._reserve_part += 1

    def admit(self, trainer: Trainer, rows: Sequence[ObservedRow], policy: PolicyRef, *, keep: bool) -> None:
        """How far the policy has drifted on these rows."""
        items = [admit_item(Field("Admit", f"items.{n}"), row, row.current_log_probs) for n, row in enumerate(rows)]
        record = self._of(trainer).records.admit(self._admit_part, policy, trainer.own_updates, items)
        self._admit_part += 1

        def build(refs: tuple[PayloadRef, ...]) -> Admit:
            paid = [item.model_copy(update={"payload": ref}) for item, ref in zip(items, refs, strict=False)]
            return record.model_copy(update={"items": tuple(paid)}) if paid else record

        current = {row.trajectory_id: row.current_log_probs for row in rows} if keep else {}
        payloads = current_payloads(trainer.run_id, self.update_id, current)
        trainer.outbox.publish(build, payloads)

    def start(self, trainer: Trainer) -> None:
        """The rows enter the weights from here on."""
        self._publish(trainer, self._of(trainer).records.started())

    def record(self, trainer: Trainer, step_id: int, step: StepArrays, rank: int | None = None) -> None:
        """The recording of a step, or of another rank's share of it."""
        self._of(trainer).recorders.record(step_id, step, rank)

    def record_again(self, trainer: Trainer, recording: StepRecording) -> None:
        """What was recorded of a step under an update that was undone, and is in the weights as one of this one."""
        self._of(trainer).recorders.record_again(recording)

    def commit(self, trainer: Trainer, done: Done, ranks: Sequence[int] | None = None) -> None:
        """The steps are in the weights. `ranks` are those whose recordings come afterwards, up to `seal`; by default
        those that have recorded, which are sealed here."""
        sides = self._of(trainer)
        steps = [
            CommitStep(rollout_id=self.rollout_id, step_id=number, trajectory_ids=ids)
            for number, ids in enumerate(done.steps)
        ]
        stepped = {one for ids in done.steps for one in ids}
        dropped = [
            DroppedItem(trajectory_id=one, reason=trainer.redaction.name(reason), disposition=disposition)
            for one, (reason, disposition) in done.not_trained.items()
            if one not in stepped
        ]
        expected = sides.recorders.ranks if ranks is None else ranks
        self._publish(trainer, sides.records.commit(steps, dropped, expected))
        trainer.committed(self.update_id)
        if ranks is None:
            sides.recorders.seal()

    def seal(self, trainer: Trainer) -> None:
        """All recordings are there that the commit said would come."""
        self._of(trainer).recorders.seal()

    def abort(self, trainer: Trainer, text: str) -> None:
        """The training gave it up before it was started."""
        self._publish(trainer, self._of(trainer).records.abort(text, AbortDisposition.RELEASE))

    def renew(self, trainer: Trainer) -> None:
        """The training lives."""
        self._publish(trainer, self._of(trainer).records.renew())

    def _publish(self, trainer: Trainer, record: Lifecycle) -> None:
        trainer.outbox.publish(lambda _: record)
        self.last_sent = time.monotonic()

    def _of(self, trainer: Trainer) -> _Sides:
        if self._made is None:
            recorders = Recorders(
                trainer.outbox,
                trainer.header,
                learner=trainer.learner,
                update_id=self.update_id,
                rollout_id=self.rollout_id,
                rank=self.rank,
                redaction=trainer.redaction,
            )
            self._made = _Sides(UpdateRecords(trainer, self.update_id), recorders)
        return self._made


def snapshot(step: StepArrays) -> StepArrays:
    """A recording that the training cannot change any more."""
    rows = [replace(row, loss_mask=copied(row.loss_mask)) for row in step.rows]
    arrays = {name: copied(values) for name, values in step.arrays.items()}
    terms = {name: list(values) for name, values in step.row_terms.items()}
    return replace(step, rows=rows, arrays=arrays, results=dict(step.results), row_terms=terms)
