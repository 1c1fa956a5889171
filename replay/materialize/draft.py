"""One optimizer step as a bundle: built from the log, completed from the recording. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum

import numpy as np
from pydantic import ValidationError

from rollbook.replay.bundle.drafts import Draft
from rollbook.replay.bundle.model import (
    INDEX,
    ActorStepId,
    Capability,
    Config,
    Expected,
    Identity,
    Index,
    PolicyLoss,
    Producer,
    Sample,
    StageContract,
    StageId,
    WeightLineage,
    World,
)
from rollbook.replay.bundle.problems import problems_of
from rollbook.replay.bundle.tensorfile import Tensor
from rollbook.replay.materialize.checks import RankStep, Row
from rollbook.replay.materialize.evidence import Recording
from rollbook.replay.materialize.membership import Membership
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.replay.stages import ROLLOUT_LEVEL, STAGES
from rollbook.schemas.digests import digest_of_digests, floats_of, mask_of
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.payload import ArrayName

_SCALARS = ("loss", "pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")
_TERMS = _SCALARS[1:]
_REQUIRED = (ArrayName.OLD_LOG_PROBS, ArrayName.LOG_PROBS, ArrayName.ENTROPY, ArrayName.ADVANTAGES)
_WITH_KL = (ArrayName.REF_LOG_PROBS, ArrayName.KL)
_DISTANCE = (ArrayName.OLD_LOG_PROBS.value, ArrayName.REF_LOG_PROBS.value, ArrayName.KL.value)
_REWARDS = (ArrayName.ADVANTAGES.value, ArrayName.RETURNS.value)
_OPTIONAL = (*_WITH_KL, ArrayName.RETURNS)
_STAGES = (
    StageId.SAMPLE,
    StageId.REWARD_RAW,
    StageId.REWARD_POST_PROCESS,
    StageId.ADVANTAGE_KL,
    StageId.ADVANTAGE_ESTIMATE,
    StageId.LOSS_POLICY,
)
# How far a sum of float32 terms may be off, whatever the order of its additions.
_SUM_ATOL, _SUM_RTOL = 1e-6, 1e-5
_MAX_LINEAGE = 4096


def drafts_of(bundle_id: str, ranks: Sequence[RankStep], membership: Membership) -> dict[int, Draft]:
    """The drafts of a step, by rank, whose recordings do not contradict the log. Raises CannotWrite."""
    drafts: dict[int, Draft] = {}
    for found in ranks:
        try:
            drafts[found.rank] = _draft_of(bundle_id, found, ranks, membership)
        except ValidationError as error:
            problems = (f"{found.recording.place}: {problem}" for problem in problems_of(INDEX, error))
            raise CannotWrite(NotWritten.NOT_REPRESENTABLE, *problems) from None
    return drafts


def _draft_of(bundle_id: str, of_rank: RankStep, ranks: Sequence[RankStep], membership: Membership) -> Draft:
    recording, rows, step = of_rank.recording, of_rank.rows, of_rank.recording.step
    groups = groups_of(ranks)
    absent = membership.absent(step.cohorts, [row.row for row in rows], groups)
    index = Index(
        bundle_id=bundle_id,
        identity=_identity(recording, rows),
        samples=_samples(rows, groups),
        config=_config(recording),
        cohort=absent,
    )
    is_part = membership.is_part([row.row for row in rows], absent or (), groups, step.config.n_samples_per_prompt)
    raw = {member.trajectory_id: member.raw_reward for cohort in step.cohorts for member in cohort.members}
    tensors = _token_tensors(recording, rows)
    return Draft(
        producer=Producer(
            commit=f"{step.kernel.package} {step.kernel.version}",
            dirty_patch_digest="",
            torch_version=step.framework_version,
        ),
        index=index,
        expected=Expected.of(
            raw_rewards=tuple(raw[row.row.trajectory_id] for row in rows),
            rewards=tuple(row.row.reward for row in rows),
            loss=_loss(recording),
        ),
        tensors=tensors,
        contracts=contracts_of(index, tensors, is_remote=is_remote(rows), is_part=is_part),
        terms=_row_terms(recording),
        rank=step.rank,
        expected_ranks=tuple(found.rank for found in ranks),
    )


def groups_of(ranks: Sequence[RankStep]) -> dict[str, int]:
    """The groups of all these ranks, numbered: a group that several of them share has one number in all of them."""
    names = unique(row.row.group_id for found in ranks for row in found.rows)
    return {name: index for index, name in enumerate(names)}


def _samples(rows: Sequence[Row], groups: Mapping[str, int]) -> tuple[Sample, ...]:
    return tuple(_sample(row, groups[row.row.group_id]) for row in rows)


def _sample(row: Row, group_index: int) -> Sample:
    trajectory = row.trajectory
    record = trajectory.generated.record
    segment = record.segments[row.row.segment]
    name = record.identity.trajectory_id
    return Sample(
        sample_id=name if len(record.segments) == 1 else f"{name}/{row.row.segment}",
        group_index=group_index,
        response_length=segment.response_length,
        total_length=segment.prompt_length + segment.response_length,
        loss_mask=row.row.loss_mask,
        raw_reward=trajectory.reward_item.raw_reward,
        reward=row.row.reward,
        label_hash=trajectory.reward.record.label_hash,
        micro_batch_id=row.row.micro_batch_id,
    )


def _identity(recording: Recording, rows: Sequence[Row]) -> Identity:
    step = recording.step
    used = {row.row.trajectory_id for row in rows}
    generated = [row.trajectory.generated.record for row in rows]
    cohorts = [cohort for cohort in step.cohorts if any(member.trajectory_id in used for member in cohort.members)]
    return Identity(
        actor_step_id=ActorStepId(rollout_id=step.rollout_id, step_id=step.step_id),
        rollout_id=None,
        rollout_partition_ids=unique(record.provenance.rollout_partition_id for record in generated),
        consumer_batch_ids=(step.consumer_batch_id,),
        micro_batch_ids=unique(row.row.micro_batch_id for row in rows),
        semantic_group_ids=unique(row.row.group_id for row in rows),
        normalization_cohort_ids=unique(cohort.cohort_id for cohort in cohorts),
        weight_lineage=WeightLineage(rollout_weight=lineage_of(rows), actor_weight=_name(step.policy)),
        rank=World(dp=step.world.dp, tp=step.world.tp, pp=step.world.pp, cp=step.world.cp),
    )


def lineage_of(rows: Sequence[Row]) -> str:
    """The policies that generated the rows."""
    generated = (row.trajectory.generated.record for row in rows)
    spans = (span for record in generated for segment in record.segments for span in segment.spans)
    policies = {span.policy for span in spans if span.policy is not None}
    names = [_name(policy) for policy in sorted(policies, key=lambda ref: (ref.version, ref.artifact_hash))]
    text = ", ".join(names)
    return text if len(text) <= _MAX_LINEAGE else f"{len(names)} policies, sha256 {digest_of_digests(names)}"


def _name(policy: PolicyRef) -> str:
    return f"{policy.version}:{policy.artifact_hash}"


def _config(recording: Recording) -> Config:
    return Config.model_validate(recording.step.config.model_dump())


def _token_tensors(recording: Recording, rows: Sequence[Row]) -> Mapping[str, Tensor]:
    """The arrays without the tokens of padding rows."""
    recorded = {array.name: array.data for array in recording.step.arrays}
    with_kl = recording.step.config.kl_coef != 0
    for name in (*_REQUIRED, *(_WITH_KL if with_kl else ())):
        if name not in recorded:
            raise CannotWrite(
                NotWritten.INCOMPLETE_RECORDING, f"{recording.place} has no array {name.value}: record it"
            )
    tokens = sum(len(row.loss_mask) for row in recording.step.rows)
    kept = np.zeros(tokens, np.bool_)
    for row in rows:
        kept[row.start : row.end] = True
    tensors = {}
    for name in (*_REQUIRED, *_OPTIONAL):
        if (data := recorded.get(name)) is None:
            continue
        if len(data) != 4 * tokens:
            raise CannotWrite(
                NotWritten.DISAGREEMENT,
                f"{recording.place}: array {name.value} has {len(data)} bytes, its rows have {tokens} tokens",
            )
        tensors[name.value] = floats_of(data)[kept]
    return _finite_where_masked(tensors, rows)


def _finite_where_masked(tensors: dict[str, Tensor], rows: Sequence[Row]) -> Mapping[str, Tensor]:
    """A bundle holds finite values only, a recording anything where its mask is 0: there 0 is written for what is not
    finite, so that each stage gives again what stands there (the distance of 0 to 0 is 0, an advantage is its row's
    reward). Active values are left as they are, for the format to refuse."""
    if all(np.isfinite(tensor).all() for tensor in tensors.values()):
        return tensors
    masked = ~np.concatenate([mask_of(row.row.loss_mask) for row in rows])
    rewards = np.repeat([row.row.reward for row in rows], [len(row.row.loss_mask) for row in rows])
    distance = [tensors[name] for name in _DISTANCE if name in tensors]
    unknown = ~np.logical_and.reduce([np.isfinite(tensor) for tensor in distance])
    found = {}
    for name, tensor in tensors.items():
        noise = masked & (unknown if name in _DISTANCE else ~np.isfinite(tensor))
        found[name] = np.where(noise, rewards.astype(np.float32) if name in _REWARDS else np.float32(0), tensor)
    return found


def _row_terms(recording: Recording) -> Mapping[str, Tensor]:
    """The results split by row, where the trainer recorded them; padding rows contribute nothing to a sum."""
    step = recording.step
    kept = np.array([not row.padding for row in step.rows], np.bool_)
    results = {result.name: result.value for result in step.results}
    found = {}
    for terms in step.row_terms:
        if terms.name not in _TERMS:
            continue
        values = np.asarray(terms.values, np.float64)
        place = f"{recording.place}: row_terms {terms.name}"
        if terms.name in found:
            raise CannotWrite(NotWritten.DISAGREEMENT, f"{place} are there twice")
        if len(values) != len(step.rows):
            raise CannotWrite(NotWritten.DISAGREEMENT, f"{place} has {len(values)} values for {len(step.rows)} rows")
        total = fsum(values)
        allowed = _SUM_ATOL + _SUM_RTOL * float(np.abs(values).sum())
        if abs(total - results.get(terms.name, total)) > allowed:
            raise CannotWrite(
                NotWritten.DISAGREEMENT, f"{place} add up to {total!r}, results have {results[terms.name]!r}"
            )
        if values[~kept].any():
            raise CannotWrite(NotWritten.DISAGREEMENT, f"{place} has a value other than 0 for a row that is padding")
        found[terms.name] = values[kept]
    return found


def _loss(recording: Recording) -> PolicyLoss:
    step = recording.step
    if step.normalizer != 1:
        raise CannotWrite(
            NotWritten.NOT_REPRESENTABLE,
            f"{recording.place}: normalizer {step.normalizer!r}, but format 1.0.0 holds plain sums over rows",
        )
    results = {result.name: result.value for result in step.results}
    missing = [name for name in _SCALARS if name not in results]
    if missing or len(results) != len(step.results):
        what = f"results lack {', '.join(missing)}" if missing else "results name one twice"
        raise CannotWrite(NotWritten.INCOMPLETE_RECORDING, f"{recording.place}: {what}")
    return PolicyLoss(**{name: results[name] for name in _SCALARS})


def contracts_of(
    index: Index, tensors: Mapping[str, Tensor], *, is_remote: bool, is_part: bool
) -> tuple[StageContract, ...]:
    """What a reader is promised: to recompute what a kernel exists for. A remote reward nobody can run again, a group
    of which only a part is there nobody can normalise, and where kl_coef is 0 a trainer need not have written down that
    kl is 0."""
    recorded_only = {StageId.REWARD_RAW: is_remote, StageId.REWARD_POST_PROCESS: is_part}
    found = []
    for stage in _STAGES:
        left_out = stage is StageId.ADVANTAGE_KL and ArrayName.KL.value not in tensors
        if left_out or (index.identity.actor_step_id is None and stage not in ROLLOUT_LEVEL):
            continue
        only = recorded_only.get(stage, False) or STAGES[stage].refuses(index) is not None
        found.append(StageContract(stage=stage, capability=Capability.RECORDED_ONLY if only else Capability.RECOMPUTE))
    return tuple(found)


def is_remote(rows: Iterable[Row]) -> bool:
    """Whether a service gave any of the rewards."""
    return any(row.trajectory.reward.record.remote for row in rows)


def unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
