"""The trainer as a process, with the weight coordinator in it: claim, admit, train, commit, then the next policy.

    python -m rollbook.infra.demo.processes.trainer FOLDER [EPOCH]

With the epoch that the learner is in, it follows a trainer that died, and goes on from the last checkpoint.
It stands for any trainer: everything the ledger asks of one is in the calls of `Trainer`, `Update` and `Coordinator`
below.
"""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.learner import Learner
from rollbook.infra.demo.learning.model import TinyTransformer, use_one_thread
from rollbook.infra.demo.learning.plan import plan_update
from rollbook.infra.demo.learning.recording import step_arrays
from rollbook.infra.demo.learning.records import TrainingGroup, TrainingRow
from rollbook.infra.demo.learning.warmup import initial_policy
from rollbook.infra.demo.learning.weights import save_weights
from rollbook.infra.demo.processes.checkpoint import load_checkpoint, save_checkpoint
from rollbook.infra.demo.processes.ends import run_as_process
from rollbook.infra.demo.processes.faults import planned_faults
from rollbook.infra.demo.processes.folder import PATIENCE_S, Plan, Release, RunFolder, SavedCheckpoint
from rollbook.infra.demo.processes.waiting import Waiting
from rollbook.producers import Coordinator, LoadedTrajectory, NothingTaken, Refused, Trainer, Update
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.reward import DiscardReason
from rollbook.schemas.records.run import Admission, Artifact, ArtifactKind, DriftGate, InitialPolicy, LagUnit
from rollbook.schemas.records.update import Disposition, ReserveItem, ReserveMode

GROUPS_WAIT_S = 60.0
"""How long an update waits for its groups; then it does with fewer."""
RETURNED_WAIT_S = 2.0
"""The same where no groups are to come, but for what a worker is publishing just now."""


def main(folder: RunFolder, arguments: list[str]) -> None:
    use_one_thread()
    plan = folder.plan()
    follows = int(arguments[0]) if arguments else None
    saved = None if follows is None else folder.last_checkpoint()
    # This takes its time, while the broker starts.
    learner = (
        Learner(initial_policy(plan.config), plan.config)
        if saved is None
        else load_checkpoint(saved, folder, plan.config)
    )
    settings = folder.cluster()
    with (
        Coordinator(settings, plan.run_id, "coordinator-0") as coordinator,
        Trainer(settings, plan.run_id, plan.learner) as trainer,
        Waiting(settings, plan.run_id) as waiting,
    ):
        if saved is None or follows is None:
            standing = open_run(coordinator, learner.model, plan, folder)
            trainer.start()
        else:
            standing = start_again(trainer, saved, follows, folder)
        while standing.release.iteration < plan.config.updates:
            update = train(trainer, learner, standing, waiting, plan.config)
            # Leaving the update's block has read the decision on its Commit: from here on the weights may leave.
            standing = release(coordinator, learner.model, standing, update, folder)
            made = standing.release.iteration
            if made % plan.config.checkpoint_every == 0:
                save_checkpoint(trainer, learner, standing.release, folder)
            if saved is None and made == planned_faults(plan.config).crash_after_update:
                os.kill(os.getpid(), signal.SIGKILL)  # no farewell, as when memory runs out


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the training stands. `active_version` and `newest_version` are those of `release`, but for the first update
    after a roll-back: then they are of policies that it undid, and versions only rise."""

    release: Release
    active_version: int
    newest_version: int
    groups_wait_s: float = GROUPS_WAIT_S

    @property
    def policy(self) -> PolicyRef:
        """The policy of the learner's weights."""
        return self.release.policy

    def oldest_usable(self, max_lag: int) -> int:
        """The version below which trajectories are stale; a lag counts the versions of the lineage alone."""
        return self.release.lineage[max(0, self.release.iteration - max_lag)]


def open_run(coordinator: Coordinator, model: TinyTransformer, plan: Plan, folder: RunFolder) -> Standing:
    """Configure the run with its initial policy, then let the workers have it."""
    config = plan.config
    file = save_weights(model, folder.weights(0))
    coordinator.configure(
        admission=Admission(
            max_lag=config.max_lag,
            lag_unit=LagUnit.DEPTH,
            max_mean_abs_log_ratio=config.max_mean_abs_log_ratio,
            drift_gate=DriftGate.REQUIRED,
        ),
        required_workers=plan.workers,
        initial_policy=InitialPolicy(
            version=0, artifact=Artifact(hash=file.sha256, kind=ArtifactKind.FILE, uri=file.path.name), label="warm-up"
        ),
        horizon=config.horizon,
    )
    first = Release(PolicyRef(version=0, artifact_hash=file.sha256), lineage=(0,))
    folder.announce(first)
    return Standing(first, active_version=0, newest_version=0)


def start_again(trainer: Trainer, saved: SavedCheckpoint, follows_epoch: int, folder: RunFolder) -> Standing:
    """Take the learner over with the checkpoint's weights: the ledger takes back what they do not contain.

    The workers serve a policy that is undone until the next one is released, so nothing new can come for the first
    update: it makes do with what is there.
    """
    decision = trainer.start(saved.checkpoint, expected_epoch=follows_epoch)
    assert decision.active_policy is not None, "a configured run has an active policy"
    newest = folder.next_release(after=saved.release.version - 1)
    return Standing(saved.release, decision.active_policy.version, newest.version, groups_wait_s=RETURNED_WAIT_S)


def train(trainer: Trainer, learner: Learner, standing: Standing, waiting: Waiting, config: DemoConfig) -> Update:
    """One update: two optimizer steps on groups of the ledger's choice, each step recorded."""
    policy, rollout_id = standing.policy, standing.release.iteration
    with trainer.update(rollout_id) as update:
        groups = claim_groups(update, policy, config, standing.groups_wait_s)
        discard_stale(trainer, update, policy, waiting.older_than(standing.oldest_usable(config.max_lag)))
        rows = [row for group in groups for row in group.rows]
        current = learner.current_log_probs(rows)
        update.admit(dict(zip((row.trajectory_id for row in rows), current, strict=True)), policy)
        update.start()
        trainable = frozenset(update.trainable)
        # A refused row stays a member of its group: its reward counts in the group's mean, its tokens in no loss.
        admitted = [_mark(group, trainable) for group in groups]
        for plan in plan_update(admitted, rollout_id, config):
            step_id = update.step([planned.row.trajectory_id for planned in plan.rows if planned.row.admitted])
            record = learner.step(plan)
            update.record_step(step_id, step_arrays(record, policy, config))
    return update


def claim_groups(update: Update, policy: PolicyRef, config: DemoConfig, within_s: float) -> list[TrainingGroup]:
    """Whole groups, the oldest first, as many as an update wants, or as there are when the time is up."""
    deadline = time.monotonic() + within_s
    whole: list[TrainingGroup] = []
    partial: list[TrainingGroup] = []
    while len(whole) < config.groups_per_update:
        left = max(0.0, deadline - time.monotonic())
        try:
            update.claim(policy, max_groups=config.groups_per_update - len(whole), wait_s=left)
        except NothingTaken:
            break
        groups = groups_of(update.load())
        whole = [group for group in groups if len(group.rows) == config.samples_per_prompt]
        partial = [group for group in groups if group not in whole]
    for group in partial:
        # A member failed after the others were rewarded, so the ledger offers these; GRPO cannot use them.
        ids = [row.trajectory_id for row in group.rows]
        update.drop(ids, "incomplete_group", disposition=Disposition.DISCARD)
    if len(whole) < config.steps_per_update:
        raise EnvironmentFault(f"only {len(whole)} groups came within {within_s:.0f} s: see the workers' logs")
    return whole


def groups_of(loaded: Iterable[LoadedTrajectory]) -> list[TrainingGroup]:
    """Loaded trajectories as training rows, by group."""
    ordered = sorted(loaded, key=lambda one: (one.group_id, one.identity.sample_index))
    return [
        TrainingGroup(group_id, tuple(_training_row(one) for one in members))
        for group_id, members in groupby(ordered, key=lambda one: one.group_id)
    ]


def discard_stale(trainer: Trainer, update: Update, policy: PolicyRef, old: Sequence[ReserveItem]) -> None:
    """Ask for what the claims passed over as too old; what the ledger refuses as stale will never be of use again."""
    if not old:
        return
    try:
        decision = update.reserve(old, policy, mode=ReserveMode.AVAILABLE)
    except Refused as refusal:
        decision = refusal.decision
    stale = [item.trajectory_id for item in decision.items if item.reason == "stale_policy"]
    if stale:
        trainer.discarded(stale, DiscardReason.CUSTOM, text="stale_policy")


def release(
    coordinator: Coordinator, model: TinyTransformer, standing: Standing, update: Update, folder: RunFolder
) -> Standing:
    """Write the weights, announce them, and make them the active policy once every worker says that it serves them."""
    version = standing.newest_version + 1
    file = save_weights(model, folder.weights(version))
    policy = PolicyRef(version=version, artifact_hash=file.sha256)
    following = standing.release.then(policy)
    coordinator.prepare(
        version=version,
        artifact=Artifact(hash=file.sha256, kind=ArtifactKind.FILE, uri=file.path.name),
        parent_version=standing.policy.version,
        update_ids=[update.update_id],
        label=f"iteration {following.iteration}",
        committed=True,
    )
    folder.announce(following)
    coordinator.activate(policy, expected_active_version=standing.active_version, wait_for_acks_s=PATIENCE_S)
    return Standing(following, version, version)


def _training_row(loaded: LoadedTrajectory) -> TrainingRow:
    (segment,) = loaded.segments
    return TrainingRow(
        trajectory_id=loaded.trajectory_id,
        prompt_ids=tuple(segment.prompt_ids.tolist()),
        response_ids=tuple(segment.response_ids.tolist()),
        behavior_log_probs=segment.log_probs,
        raw_reward=loaded.raw_reward,
    )


def _mark(group: TrainingGroup, trainable: frozenset[str]) -> TrainingGroup:
    return replace(group, rows=tuple(replace(row, admitted=row.trajectory_id in trainable) for row in group.rows))


if __name__ == "__main__":
    run_as_process(main)
