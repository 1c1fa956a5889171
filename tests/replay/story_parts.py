"""The parts of a told run: its run settings, one trajectory's arrays, and the recording of a step over trajectories."""

from collections.abc import Sequence

import numpy as np

from rollbook.schemas.digests import (
    contract_hash,
    evidence_digest,
    float32_bytes,
    int32_bytes,
    mask_bytes,
    tokens_digest,
)
from rollbook.schemas.records.common import LearnerRef, PayloadRef, PolicyRef
from rollbook.schemas.records.payload import (
    Cohort,
    CohortMember,
    Kernel,
    OldSource,
    RecordedArray,
    RecordedRow,
    Role,
    RowTerms,
    SegmentPayload,
    StepRecording,
    World,
)
from rollbook.schemas.records.rollout import Origin, Segment, Span
from rollbook.schemas.records.run import (
    Admission,
    Artifact,
    ArtifactKind,
    DriftGate,
    InitialPolicy,
    LagUnit,
    LogProbKind,
    RewardIdentity,
    Sampling,
)
from rollbook.schemas.types import NamedNumber
from rollbook.tests.replay.numbers import CONFIG, TrainedRow, step_numbers

WEIGHTS = PolicyRef(version=0, artifact_hash="weights-0")
RULE = RewardIdentity(rule_id="exact", version="1", hash="rule-1")
SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=8, log_probs=LogProbKind.RAW)
CONTRACT = {"tokenizer": "digits", "template": "plain", "engine": "toy 1.0"}
CONTRACT_HASH = contract_hash(tokenizer="digits", template="plain", engine="toy 1.0", sampling=SAMPLING)
ADMISSION = Admission(max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=DriftGate.REQUIRED)
INITIAL = InitialPolicy(version=0, artifact=Artifact(hash=WEIGHTS.artifact_hash, kind=ArtifactKind.FILE))
PROMPT = (7, 8, 9)
ROLLOUT_ID = 3


def row_of(trajectory_id: str, group_id: str, raw_reward: float, length: int, seed: int) -> TrainedRow:
    """A row whose third token is a tool's."""
    mask = np.ones(length, np.bool_)
    mask[2] = False
    log_probs = -np.random.default_rng(seed).uniform(0.1, 2.0, length).astype(np.float32)
    return TrainedRow(trajectory_id, group_id, raw_reward, mask, log_probs)


def arrays_of(run_id: str, row: TrainedRow) -> SegmentPayload:
    """What the worker puts on the payloads topic."""
    return SegmentPayload(
        run_id=run_id,
        trajectory_id=row.trajectory_id,
        segment=0,
        prompt_ids=int32_bytes(PROMPT),
        response_ids=int32_bytes(range(len(row.loss_mask))),
        action_mask=mask_bytes(row.loss_mask),
        log_probs=float32_bytes(row.log_probs),
    )


def segment_of(row: TrainedRow, ref: PayloadRef | None, policy: PolicyRef = WEIGHTS) -> Segment:
    """What Generated says of it."""
    length = len(row.loss_mask)
    return Segment(
        prompt_length=len(PROMPT),
        response_length=length,
        spans=(
            Span(start=0, end=2, origin=Origin.MODEL, policy=policy),
            Span(start=2, end=3, origin=Origin.TOOL),
            Span(start=3, end=length, origin=Origin.MODEL, policy=policy),
        ),
        active_tokens=int(row.loss_mask.sum()),
        tokens_digest=tokens_digest(PROMPT, range(length)),
        evidence_digest=evidence_digest(row.loss_mask, row.log_probs),
        payload=ref,
    )


def recording_of(
    run_id: str, learner: LearnerRef, update_id: str, step_id: int, rows: Sequence[TrainedRow], rank: int = 0
) -> StepRecording:
    """What the trainer records of a step, two rows a micro-batch; each group is a cohort."""
    numbers = step_numbers(rows, seed=step_id)
    groups = list(dict.fromkeys(row.group_id for row in rows))
    return StepRecording(
        run_id=run_id,
        update_id=update_id,
        learner=learner,
        role=Role.ACTOR,
        rollout_id=ROLLOUT_ID,
        step_id=step_id,
        epoch=0,
        rank=rank,
        world=World(),
        consumer_batch_id="batch-3",
        policy=WEIGHTS,
        config=CONFIG,
        cohorts=tuple(_cohort(group_id, rows) for group_id in groups),
        rows=tuple(
            RecordedRow(
                trajectory_id=row.trajectory_id,
                segment=0,
                group_id=row.group_id,
                micro_batch_id=f"mb-{index // 2:04d}",
                prompt_length=len(PROMPT),
                loss_mask=mask_bytes(row.loss_mask),
                reward=numbers.rewards[index],
            )
            for index, row in enumerate(rows)
        ),
        arrays=tuple(RecordedArray(name=name, data=float32_bytes(data)) for name, data in numbers.arrays.items()),
        old_source=OldSource.ROLLOUT,
        normalizer=1.0,
        results=tuple(NamedNumber(name=name, value=value) for name, value in numbers.results.items()),
        row_terms=tuple(RowTerms(name=name, values=values) for name, values in numbers.row_terms.items()),
        kernel=Kernel(implementation="numpy", package="toy", version="1.0", function="step"),
        framework_version="none",
    )


def _cohort(group_id: str, rows: Sequence[TrainedRow]) -> Cohort:
    members = (
        CohortMember(trajectory_id=row.trajectory_id, raw_reward=row.raw_reward)
        for row in rows
        if row.group_id == group_id
    )
    return Cohort(cohort_id=f"cohort-{group_id}", group_id=group_id, members=tuple(members))
