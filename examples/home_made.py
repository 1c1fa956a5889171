"""A training loop of one's own with every call of the ledger in its place: `python examples/home_made.py [RUN]`.

The "model" is one row of logits, so that nothing but numpy is needed; the loop is a real one: it generates one batch
ahead, so that all rows but the first ones are one policy old, admits them by their drift, takes GRPO steps, and exports
and saves after each.

It needs a cluster with a processor: `rollbook broker start`, `rollbook topics create`, `rollbook processor run`.
"""

import hashlib
import sys

import numpy as np
import numpy.typing as npt

from rollbook.infra.settings import Settings
from rollbook.producers import (
    Coordinator,
    LoadedTrajectory,
    RewardService,
    RolloutWorker,
    RowArrays,
    SegmentArrays,
    StepArrays,
    Trainer,
    Update,
    new_id,
    new_identity,
)
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.payload import ArrayName, Cohort, CohortMember, GrpoConfig, Kernel, OldSource
from rollbook.schemas.records.policy import EvidenceKind
from rollbook.schemas.records.rollout import FinishReason, TaskSource
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

GROUPS, GROUP, LENGTH, VOCABULARY, UPDATES, RATE, CLIP = 2, 4, 6, 5, 6, 2.0, 0.2
CONFIG = GrpoConfig(
    advantage_estimator="grpo",
    n_samples_per_prompt=GROUP,
    grpo_std_normalization=False,
    kl_loss_type="k1",
    kl_coef=0.0,
    eps_clip=CLIP,
    eps_clip_high=CLIP,
    entropy_coef=0.0,
)
KERNEL = Kernel(implementation="numpy", package="home-made", version="1", function="optimizer_step")
RANDOM = np.random.default_rng(7)
Floats = npt.NDArray[np.float32]


def log_softmax(logits: Floats) -> Floats:
    values: Floats = (logits - np.log(np.exp(logits).sum())).astype(np.float32)
    return values


def policy_of(version: int, logits: Floats) -> PolicyRef:
    """A policy is a version and the hash of its weights: never one without the other."""
    return PolicyRef(version=version, artifact_hash=hashlib.sha256(logits.tobytes()).hexdigest())


def artifact_of(policy: PolicyRef) -> Artifact:
    return Artifact(hash=policy.artifact_hash, kind=ArtifactKind.DECLARED)


def generate(worker: RolloutWorker, rewards: RewardService, contract: str, logits: Floats, policy: PolicyRef) -> None:
    """The engine's side: sample groups, with the log-probs that they were sampled with, and reward them."""
    own = log_softmax(logits)
    for row in range(GROUPS):
        group_id = new_id()
        for sample in range(GROUP):
            tokens = (own + RANDOM.gumbel(size=(LENGTH, VOCABULARY))).argmax(axis=1)
            trajectory_id = worker.generated(
                new_identity(group_id, sample, GROUP),
                [SegmentArrays(prompt_ids=[0], response_ids=tokens, log_probs=own[tokens], policy=policy)],
                task=TaskSource(task_id="zeros", prompt_hash="0" * 64, dataset="made-up", row=row),
                contract_hash=contract,
                finish_reason=FinishReason.LENGTH,
                rollout_partition_id=f"batch-{policy.version}",
            )
            rewards.reward(trajectory_id, float(np.mean(tokens == 0)))
    for client in (worker, rewards):
        client.flush(30)  # so that the next claim finds whole groups: engines that run on would not wait here


def optimizer_step(update: Update, rows: tuple[LoadedTrajectory, ...], logits: Floats, policy: PolicyRef) -> Floats:
    """One step of GRPO on the rows that the ledger let through, and its recording; the new weights."""
    trainable = set(update.trainable)
    step_id = update.step(trainable)  # raises where a row is not ours to train on: before the weights change
    tokens = np.stack([row.segments[0].response_ids for row in rows])
    mask = np.stack([row.action_mask & (row.trajectory_id in trainable) for row in rows])
    raw = np.array([row.raw_reward for row in rows], np.float32)
    groups = np.array([row.group_id for row in rows])
    advantage = np.array([raw[n] - raw[groups == group].mean() for n, group in enumerate(groups)], np.float32)
    advantages = np.repeat(advantage[:, None], LENGTH, axis=1)
    own = log_softmax(logits)
    old, new = np.stack([row.log_probs for row in rows]), own[tokens]
    ratio = np.exp(new - old)
    plain, clipped = -advantages * ratio, -advantages * np.clip(ratio, 1 - CLIP, 1 + CLIP)
    entropy = np.full(tokens.shape, -(np.exp(own) * own).sum(), np.float32)

    def total(values: Floats) -> float:
        """The sum of the rows' means over their masks."""
        return float(((values * mask).sum(1) / np.maximum(mask.sum(1), 1)).sum())

    loss = total(np.maximum(plain, clipped))
    moved = np.where(mask & (plain >= clipped), plain, 0) / LENGTH
    onehot = np.eye(VOCABULARY, dtype=np.float32)[tokens]
    gradient = (moved[:, :, None] * (onehot - np.exp(own))).sum((0, 1))
    members = {
        group: tuple(
            CohortMember(trajectory_id=row.trajectory_id, raw_reward=row.raw_reward)
            for row in rows
            if row.group_id == group
        )
        for group in dict.fromkeys(groups.tolist())
    }
    arrays = {
        ArrayName.OLD_LOG_PROBS: old,
        ArrayName.LOG_PROBS: new,
        ArrayName.ENTROPY: entropy,
        ArrayName.ADVANTAGES: advantages,
    }
    update.record_step(
        step_id,
        StepArrays(
            consumer_batch_id=f"batch-{policy.version}",
            policy=policy,
            config=CONFIG,
            cohorts=[Cohort(cohort_id=group, group_id=group, members=those) for group, those in members.items()],
            rows=[
                RowArrays(row.trajectory_id, row.group_id, "mb-0000", 1, mask[n], advantage[n])
                for n, row in enumerate(rows)
            ],
            arrays={name: values.ravel() for name, values in arrays.items()},
            old_source=OldSource.ROLLOUT,
            results={
                "loss": loss,
                "pg_loss": loss,
                "entropy_loss": total(entropy),
                "pg_clipfrac": total((clipped > plain).astype(np.float32)),
                "ppo_kl": total(old - new),
            },
            kernel=KERNEL,
        ),
    )
    stepped: Floats = (logits - RATE * gradient).astype(np.float32)
    return stepped


def train(settings: Settings, run_id: str) -> Floats:
    """The loop; the final weights."""
    logits = np.zeros(VOCABULARY, np.float32)
    policy = policy_of(0, logits)
    rule = RewardIdentity(rule_id="zeros", version="1", hash="sha256-of-the-rule")
    sampling = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=LENGTH, log_probs=LogProbKind.RAW)
    with (
        Coordinator(settings, run_id, "coordinator") as coordinator,
        RolloutWorker(settings, run_id, "worker-0", keep_tokens=True) as worker,
        RewardService(settings, run_id, "rewards", rule) as rewards,
        Trainer(settings, run_id, "learner-0") as trainer,
    ):
        coordinator.configure(
            admission=Admission(
                max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.5, drift_gate=DriftGate.REQUIRED
            ),
            required_workers=["worker-0"],
            initial_policy=InitialPolicy(version=0, artifact=artifact_of(policy)),
        )
        contract = worker.register_contract(tokenizer="five", template="none", engine="numpy", sampling=sampling)
        worker.acknowledge(policy, EvidenceKind.FILE_HASH)
        trainer.start()
        generate(worker, rewards, contract, logits, policy)
        for rollout_id in range(UPDATES):
            generate(worker, rewards, contract, logits, policy)
            with trainer.update(rollout_id) as update:  # leaving it commits
                update.claim(policy, max_groups=GROUPS, wait_s=60)
                rows = update.load()
                own = log_softmax(logits)
                current = {row.trajectory_id: own[row.segments[0].response_ids] for row in rows}
                update.admit(current, policy)
                update.start()
                logits = optimizer_step(update, rows, logits, policy)
            new = policy_of(policy.version + 1, logits)
            coordinator.prepare(
                version=new.version,
                artifact=artifact_of(new),
                parent_version=policy.version,
                update_ids=[update.update_id],
                committed=True,
            )
            worker.acknowledge(new, EvidenceKind.FILE_HASH)  # the engine has loaded them
            coordinator.activate(new, policy.version, wait_for_acks_s=30)
            policy = new
            trainer.checkpoint_saved(trainer.new_checkpoint_id(), policy.artifact_hash, policy)
            chance = np.exp(log_softmax(logits))[0]
            print(f"update {rollout_id}: {len(update.admitted)} of {len(rows)} rows, a zero has now {chance:.0%}")
    return logits


if __name__ == "__main__":
    RUN = sys.argv[1] if len(sys.argv) > 1 else f"home-made-{new_id()}"
    train(Settings.from_env(), RUN)
    print(f"look at it with `rollbook ledger --run {RUN}`, replay it with")
    print(f"  rollbook materialize --run {RUN} --out bundles && rollbook replay --chain bundles")
