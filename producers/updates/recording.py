"""Recordings of a trainer's optimizer steps: payloads first, then the seal of the rank that refers to them all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy.typing as npt

from rollbook.producers.arrays import Field, Number, mask_array, real, reals
from rollbook.producers.errors import DeliveryFailed
from rollbook.producers.redaction.identifiers import check_identifiers
from rollbook.producers.redaction.policy import Redaction
from rollbook.producers.sending.delivery import Payload
from rollbook.producers.sending.outbox import Outbox, PayloadBytes
from rollbook.schemas.codec import encode
from rollbook.schemas.digests import digest_of_digests, float32_bytes, mask_bytes
from rollbook.schemas.errors import BadInput, RollbookError
from rollbook.schemas.records.common import Header, LearnerRef, PayloadRef, PolicyRef
from rollbook.schemas.records.convention import Conventions
from rollbook.schemas.records.payload import (
    ArrayName,
    Cohort,
    GrpoConfig,
    Kernel,
    OldSource,
    RecordedArray,
    RecordedRow,
    Role,
    RowTerms,
    StepRecording,
    World,
)
from rollbook.schemas.records.update import RecordingRef, RecordingSealed
from rollbook.schemas.types import NamedNumber


@dataclass(frozen=True, slots=True)
class RowArrays:
    """A training row of a step; `loss_mask` [T] bools or 0 and 1 over its response tokens."""

    trajectory_id: str
    group_id: str
    micro_batch_id: str
    prompt_length: int
    loss_mask: npt.ArrayLike
    reward: Number
    segment: int = 0
    padding: bool = False


@dataclass(frozen=True, slots=True)
class StepArrays:
    """One optimizer step as the trainer computed it; see `StepRecording` for what each field means.

    `arrays` hold real values [N]: the response tokens of all rows joined in row order. `results` and `row_terms` (one
    number a row) are by name. `normalizer` is what the sum of row terms was divided by. `conventions`: formulas other
    than those of bundles of format 1.0.0, by the names that replay knows (docs/kernels.md).
    """

    consumer_batch_id: str
    policy: PolicyRef
    config: GrpoConfig
    cohorts: Sequence[Cohort]
    rows: Sequence[RowArrays]
    arrays: Mapping[ArrayName, npt.ArrayLike]
    old_source: OldSource
    results: Mapping[str, Number]
    kernel: Kernel
    normalizer: Number = 1.0
    row_terms: Mapping[str, Sequence[Number]] = field(default_factory=dict)
    epoch: int = 0
    role: Role = Role.ACTOR
    world: World = field(default_factory=World)
    framework_version: str = ""
    conventions: Conventions | None = None


class Recorder:
    """The recordings of one rank in one update.

    Whatever goes wrong here is told as the outbox tells of lost events (`on_error`, or else `flush`), and the rank then
    stays unsealed: recording never stops a training.
    """

    def __init__(
        self,
        outbox: Outbox,
        header: Callable[[], Header],
        *,
        learner: LearnerRef,
        update_id: str,
        rollout_id: int,
        rank: int,
        redaction: Redaction,
    ) -> None:
        self._outbox = outbox
        self._header = header
        self._learner = learner
        self._update_id = update_id
        self._rollout_id = rollout_id
        self._rank = rank
        self._redaction = redaction
        self._recorded: list[tuple[int, Payload]] = []
        self._spoiled = False
        self._sealed = False

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def used(self) -> bool:
        """Whether anything was recorded."""
        return self._spoiled or bool(self._recorded)

    def record(self, step_id: int, step: StepArrays) -> None:
        """Queue the recording of an optimizer step."""
        self._queue(
            step_id,
            lambda: recording_of(
                step_id,
                step,
                run_id=self._header().run_id,
                learner=self._learner,
                update_id=self._update_id,
                rollout_id=self._rollout_id,
                rank=self._rank,
                redaction=self._redaction,
            ),
        )

    def record_again(self, recording: StepRecording) -> None:
        """Queue the recording of a step that was made in an update which was given up, and is in the weights as one of
        this update."""
        here = {"learner": self._learner, "update_id": self._update_id, "rollout_id": self._rollout_id}
        self._queue(recording.step_id, lambda: recording.but(**here))

    def _queue(self, step_id: int, make: Callable[[], StepRecording]) -> None:
        try:
            recording = make()
            check_identifiers(recording)
            data = encode(recording)
            self._recorded.append((step_id, self._outbox.payload(PayloadBytes(self._update_id, data))))
        except RollbookError as error:
            self.spoil(error)
        except Exception as error:  # whatever was handed over: it must not reach the optimizer's loop
            problem = f"step {step_id} of update {self._update_id} cannot be recorded ({type(error).__name__}: {error})"
            self.spoil(BadInput(f"{problem}: hand over what StepArrays asks for"))

    def seal(self) -> None:
        """Publish that all recordings of this rank are written; once, and only when there is one for each step."""
        if self._sealed:
            return
        self._sealed = True
        if self._spoiled:
            self._outbox.lose(
                DeliveryFailed(
                    f"rank {self._rank} of update {self._update_id} is not sealed: a recording was lost, so that the "
                    "update cannot be replayed; see the error before this one"
                )
            )
            return
        header = self._header()
        handles = [handle for _, handle in self._recorded]

        def build(refs: tuple[PayloadRef, ...]) -> RecordingSealed:
            recordings = tuple(
                RecordingRef(rollout_id=self._rollout_id, step_id=step_id, payload=ref)
                for (step_id, _), ref in zip(self._recorded, refs, strict=True)
            )
            return RecordingSealed(
                header=header,
                learner=self._learner,
                update_id=self._update_id,
                rank=self._rank,
                recordings=recordings,
                digest=digest_of_digests([ref.sha256 for ref in refs]),
            )

        self._outbox.publish_after(handles, build)

    def spoil(self, error: RollbookError) -> None:
        """Tell of a recording that is lost: the rank stays unsealed."""
        self._spoiled = True
        self._outbox.lose(error)


def recording_of(
    step_id: int,
    step: StepArrays,
    *,
    run_id: str,
    learner: LearnerRef,
    update_id: str,
    rollout_id: int,
    rank: int,
    redaction: Redaction,
) -> StepRecording:
    """A rank's share of an optimizer step as it is published. Raises ContractViolation."""
    batches = redaction.distinct(row.micro_batch_id for row in step.rows)
    rows = tuple(_row(index, row, batches[row.micro_batch_id]) for index, row in enumerate(step.rows))
    cohorts = redaction.distinct(cohort.cohort_id for cohort in step.cohorts)
    return StepRecording(
        run_id=run_id,
        update_id=update_id,
        learner=learner,
        role=step.role,
        rollout_id=rollout_id,
        step_id=step_id,
        epoch=step.epoch,
        rank=rank,
        world=step.world,
        consumer_batch_id=redaction.name(step.consumer_batch_id),
        policy=step.policy,
        config=redaction.config(step.config),
        cohorts=tuple(one.model_copy(update={"cohort_id": cohorts[one.cohort_id]}) for one in step.cohorts),
        rows=rows,
        arrays=_arrays(step.arrays, sum(len(row.loss_mask) for row in rows)),
        old_source=step.old_source,
        normalizer=real(step.normalizer),
        results=redaction.named(_results(step.results)),
        row_terms=redaction.named(_row_terms(step.row_terms, len(rows))),
        kernel=redaction.kernel(step.kernel),
        framework_version=redaction.name(step.framework_version),
        conventions=None if step.conventions is None else redaction.conventions(step.conventions),
    )


def _row(index: int, row: RowArrays, micro_batch_id: str) -> RecordedRow:
    place = Field("StepRecording", f"rows.{index}")
    mask = mask_array(place / "loss_mask", row.loss_mask)
    with place.built_here():
        return RecordedRow(
            trajectory_id=row.trajectory_id,
            segment=row.segment,
            group_id=row.group_id,
            micro_batch_id=micro_batch_id,
            prompt_length=row.prompt_length,
            loss_mask=mask_bytes(mask),
            reward=real(row.reward),
            padding=row.padding,
        )


def _arrays(arrays: Mapping[ArrayName, npt.ArrayLike], length: int) -> tuple[RecordedArray, ...]:
    place = Field("StepRecording", "arrays")
    return tuple(
        RecordedArray(name=name, data=float32_bytes(reals(place / name, values, length)))
        for name, values in arrays.items()
    )


def _results(results: Mapping[str, Number]) -> tuple[NamedNumber, ...]:
    named = []
    for name, value in results.items():
        with Field("StepRecording", f"results.{name}").built_here():
            named.append(NamedNumber(name=name, value=real(value)))
    return tuple(named)


def _row_terms(terms: Mapping[str, Sequence[Number]], rows: int) -> tuple[RowTerms, ...]:
    recorded = []
    for name, values in terms.items():
        place = Field("StepRecording", f"row_terms.{name}")
        if len(values) != rows:
            raise place.violation(f"{len(values)} values for {rows} rows")
        with place.built_here():
            recorded.append(RowTerms(name=name, values=tuple(real(value) for value in values)))
    return tuple(recorded)
