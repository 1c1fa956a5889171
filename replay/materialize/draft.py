"""One optimizer step as a bundle: built from the log, completed from the recording. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from pydantic import ValidationError

from rollbook.replay.bundle.convention import Unmeasured
from rollbook.replay.bundle.model import (
    INDEX,
    ActorStepId,
    Capability,
    Config,
    Expected,
    Identity,
    Index,
    Producer,
    Sample,
    StageContract,
    StageId,
    WeightLineage,
    World,
)
from rollbook.replay.bundle.problems import problems_of
from rollbook.replay.bundle.tensorfile import Tensor
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.materialize.checks import RankStep, Row
from rollbook.replay.materialize.conventions import stated
from rollbook.replay.materialize.evidence import Recording
from rollbook.replay.materialize.membership import Membership
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.replay.materialize.results import policy_loss, row_terms, value_loss
from rollbook.replay.materialize.tensors import token_tensors
from rollbook.replay.stages.conventional import names_advantages
from rollbook.replay.stages.table import ROLLOUT_LEVEL, STAGES
from rollbook.schemas.digests import digest_of_digests
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.payload import ArrayName

_STAGES = (
    StageId.SAMPLE,
    StageId.REWARD_RAW,
    StageId.REWARD_POST_PROCESS,
    StageId.ADVANTAGE_KL,
    StageId.ADVANTAGE_ESTIMATE,
    StageId.LOSS_POLICY,
    StageId.LOSS_VALUE,
)
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
    config = config_of(recording)
    index = Index(
        bundle_id=bundle_id,
        identity=_identity(recording, rows),
        samples=_samples(rows, groups),
        config=config,
        cohort=absent,
        unmeasured=unmeasured_of(config, rows),
    )
    is_part = membership.is_part([row.row for row in rows], absent or (), groups, step.config.n_samples_per_prompt)
    raw = {member.trajectory_id: member.raw_reward for cohort in step.cohorts for member in cohort.members}
    tensors = token_tensors(recording, rows, config)
    return Draft(
        producer=Producer(
            commit=f"{step.kernel.package} {step.kernel.version}",
            dirty_patch_digest="",
            torch_version=step.framework_version,
        ),
        index=index,
        expected=Expected.of(
            raw_rewards=tuple(raw.get(row.row.trajectory_id, 0.0) for row in rows),
            rewards=tuple(row.row.reward for row in rows),
            loss=policy_loss(recording, config),
            value_loss=value_loss(recording, config),
        ),
        tensors=tensors,
        contracts=contracts_of(index, tensors, is_remote=is_remote(rows), is_part=is_part),
        terms=row_terms(recording, config),
        rank=step.rank,
        expected_ranks=tuple(found.rank for found in ranks),
    )


def groups_of(ranks: Sequence[RankStep]) -> dict[str, int]:
    """The groups of all these ranks, numbered: a group that several of them share has one number in all of them. Those
    without a row, which others were normalised with, come last."""
    of_rows = (row.row.group_id for found in ranks for row in found.rows)
    of_cohorts = (cohort.group_id for found in ranks for cohort in found.recording.step.cohorts)
    return {name: index for index, name in enumerate(unique(chain(of_rows, of_cohorts)))}


def sample_id_of(row: Row) -> str:
    """A trajectory's, and its segment's where it has several."""
    record = row.trajectory.generated.record
    name = record.identity.trajectory_id
    return name if len(record.segments) == 1 else f"{name}/{row.row.segment}"


def unmeasured_of(config: Config, rows: Iterable[Row]) -> tuple[Unmeasured, ...] | None:
    """Rows that a named convention does not measure: of a trajectory that nothing scored, and all but one of a
    trajectory of several rows, since it is trajectories that are members of a cohort."""
    if not names_advantages(config):
        return None
    first: dict[str, str] = {}
    found = []
    for row in rows:
        name, sample_id = row.row.trajectory_id, sample_id_of(row)
        if row.trajectory.reward is None:
            found.append(Unmeasured(sample_id=sample_id))
        elif first.setdefault(name, sample_id) != sample_id:
            found.append(Unmeasured(sample_id=sample_id, like=first[name]))
    return tuple(found) or None


def _samples(rows: Sequence[Row], groups: Mapping[str, int]) -> tuple[Sample, ...]:
    return tuple(_sample(row, groups[row.row.group_id]) for row in rows)


def _sample(row: Row, group_index: int) -> Sample:
    trajectory = row.trajectory
    segment = trajectory.generated.record.segments[row.row.segment]
    return Sample(
        sample_id=sample_id_of(row),
        group_index=group_index,
        response_length=segment.response_length,
        total_length=segment.prompt_length + segment.response_length,
        loss_mask=row.row.loss_mask,
        raw_reward=trajectory.raw_reward,
        reward=row.row.reward,
        label_hash="" if trajectory.reward is None else trajectory.reward.record.label_hash,
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


def config_of(recording: Recording) -> Config:
    """The conventions of a step as a bundle has them."""
    step = recording.step
    return Config(**step.config.model_dump(), conventions=stated(step.conventions))


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
        unnamed = STAGES[stage].unknown(index.config) is not None
        if left_out or unnamed or (index.identity.actor_step_id is None and stage not in ROLLOUT_LEVEL):
            continue
        only = recorded_only.get(stage, False) or STAGES[stage].refuses(index) is not None
        found.append(StageContract(stage=stage, capability=Capability.RECORDED_ONLY if only else Capability.RECOMPUTE))
    return tuple(found)


def is_remote(rows: Iterable[Row]) -> bool:
    """Whether a service gave any of the rewards."""
    return any(row.trajectory.reward.record.remote for row in rows if row.trajectory.reward is not None)


def unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
