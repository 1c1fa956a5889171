"""The clients of a TRL training in one run: what both trainers, and both modes of each, do with them. Every call may
wait."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack

from rollbook.producers.clients.client import Client
from rollbook.producers.clients.coordinator import Coordinator
from rollbook.producers.clients.reward import Reward, RewardService
from rollbook.producers.clients.rollout import RolloutWorker
from rollbook.producers.clients.segments import SegmentArrays
from rollbook.producers.clients.trainer import Trainer
from rollbook.producers.errors import OutOfOrder
from rollbook.producers.observing.facts import ObservedRow
from rollbook.producers.reading.epochs import current_epoch
from rollbook.producers.reading.verdicts import Verdicts
from rollbook.producers.trl.facts import Conditions, Generation, RowFacts
from rollbook.producers.trl.resuming import Resumed, Standing, standing, start_again, tell
from rollbook.producers.trl.run import LedgerRun
from rollbook.producers.trl.spans import spans_of
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.policy import EvidenceKind
from rollbook.schemas.records.reward import RewardFailure
from rollbook.schemas.records.rollout import FinishReason, TaskSource
from rollbook.schemas.records.run import (
    Admission,
    Artifact,
    ArtifactKind,
    DriftGate,
    Enforcement,
    InitialPolicy,
    LagUnit,
)
from rollbook.schemas.records.update import Checkpoint, CheckpointSaved

ARRIVES_S = 30.0
REWARDED = 2
"""The revision of a trajectory that was generated and rewarded, and nothing else."""
_NOT_RESUMED = "checkpoints of this trainer are not told to the ledger: begin a run anew"


class RunIsUsed(BadInput):
    """A training would begin in a run in which its learner has trained already."""


class Clients(ABC):
    """Opened once, at the training's beginning or where it goes on; closed at its end."""

    _counts = "step"
    """What TRL's number of a policy counts."""

    def __init__(
        self, run: LedgerRun, conditions: Conditions, initial: PolicyRef, resumed: Resumed | None = None
    ) -> None:
        self._run = run
        self._conditions = conditions
        self._initial = initial
        self._resumed = resumed
        self._policy = initial
        self._offset = 0
        self._contract_hash = ""
        self._has_tried = False
        self._clients = ExitStack()

    def open(self) -> None:
        """Connect, configure the run or go on with it, start the learner. Raises EnvironmentFault, Refused, NotOurs,
        RunIsUsed."""
        run, options = self._run, self._run.options
        with ExitStack() as made:
            coordinator = Coordinator(run.settings, run.run_id, f"{run.learner_id}-coordinator", options=options)
            self._coordinator = made.enter_context(coordinator)
            self._rollout = made.enter_context(
                RolloutWorker(run.settings, run.run_id, run.worker_id, keep_tokens=True, options=options)
            )
            self._rewards = made.enter_context(
                RewardService(
                    run.settings, run.run_id, f"{run.worker_id}-rewards", self._conditions.reward, options=options
                )
            )
            self._trainer = made.enter_context(self._make_trainer())
            epoch = current_epoch(run.settings, run.run_id, run.learner_id)
            if self._resumed is None:
                self._open_run(epoch)
            self._contract_hash = self._rollout.register_contract(
                tokenizer=self._conditions.tokenizer,
                template=self._conditions.template,
                engine=self._conditions.engine,
                sampling=self._conditions.sampling,
            )
            if self._resumed is None:
                # Of two that start at once the one that the ledger refuses says nothing of what is served.
                self._trainer.start(expected_epoch=epoch)
                self._rollout.acknowledge(self._initial, EvidenceKind.ENGINE_ECHO)
            else:
                saved, observes = self._resumed.saved, run.enforcement is Enforcement.OBSERVE
                tell(start_again(self._trainer, run.settings, saved, epoch, observes=observes), saved)
                self._go_on(self._resumed)
            self._clients = made.pop_all()

    def named(self, policy: PolicyRef) -> PolicyRef:
        """Weights that TRL numbers by its `global_step`, as the run numbers them."""
        return policy.model_copy(update={"version": policy.version + self._offset})

    def _open_run(self, epoch: int) -> None:
        """Configure a run of our own. A start from no checkpoint undoes all that the learner has committed, which a
        script that is merely run again does not mean; and the policies of another learner's training have the same
        numbers. What came after an attempt of our own, whose answer did not, is that attempt's."""
        is_again, self._has_tried = self._has_tried, True
        was_used = bool(epoch) or self._configure().outcome is Outcome.DUPLICATE
        if was_used and not is_again:
            raise RunIsUsed(
                f"a training has begun in run {self._run.run_id} before: give a run_id of its own, or go on from a "
                "checkpoint of that training with train(resume_from_checkpoint=...)"
            )

    def _configure(self) -> Decision:
        run = self._run
        return self._coordinator.configure(
            admission=Admission(
                max_lag=run.max_lag,
                lag_unit=LagUnit.DEPTH,
                max_mean_abs_log_ratio=run.max_mean_abs_log_ratio,
                drift_gate=DriftGate.REQUIRED,
            ),
            required_workers=[run.worker_id],
            initial_policy=InitialPolicy(
                version=self._initial.version, artifact=artifact_of(self._initial), label="initial"
            ),
            enforcement=run.enforcement,
        )

    def _go_on(self, resumed: Resumed) -> None:
        """What the weights hold besides the checkpoint's commits is trained as an update; then the weights as they are
        become the active policy, unless they are already."""
        found = standing(self._run.settings, self._run.run_id, resumed.saved)
        update_id = self._train_again(resumed, found)
        self._policy = found.policy
        if found.policy == found.active and found.policy.artifact_hash == self._initial.artifact_hash:
            self._offset = found.policy.version - self._initial.version
            self._rollout.acknowledge(found.policy, EvidenceKind.ENGINE_ECHO)
            arrived(self._rollout)
            return
        self._offset = found.newest_version + 1 - self._initial.version
        restores = found.policy.artifact_hash == self._initial.artifact_hash
        active = found.policy if found.active is None else found.active
        self._release(
            self.named(self._initial),
            [*resumed.saved.unreleased, *([] if update_id is None else [update_id])],
            active_version=active.version,
            rollback_of=found.policy.version if restores else None,
        )

    def _train_again(self, resumed: Resumed, found: Standing) -> str | None:
        """The update of what the weights have seen of the one that was open when they were saved."""
        raise OutOfOrder(_NOT_RESUMED)

    @abstractmethod
    def give_up(self, error: BaseException) -> None:
        """The training failed within an update."""

    def settle(self) -> None:  # noqa: B027 -- who does nothing in the background need not wait for it
        """Wait until what was finished is told. Raises what became of it."""

    def before_saving(self) -> None:
        """The weights are about to be saved: a learner that the ledger has fenced writes over nobody's. Raises
        StartAnew."""
        self.settle()

    def saved(self, checkpoint: Checkpoint) -> str:
        """The weights as they are now are on disk; the chain head that the learner has read, where it reads."""
        raise OutOfOrder(_NOT_RESUMED)

    def close(self) -> None:
        self._clients.close()

    def _checkpoint_saved(self, checkpoint: Checkpoint) -> CheckpointSaved:
        """The ledger's checkpoint is of the updates that are committed; what the weights hold besides, the folder
        says."""
        return CheckpointSaved(
            header=self._trainer.header(),
            learner=self._trainer.learner,
            checkpoint=checkpoint,
            last_update_id=self._trainer.last_update_id,
            policy=self._policy,
            chain=self._trainer.decisions.chain,
        )

    def _make_trainer(self) -> Trainer:
        run = self._run
        return Trainer(
            run.settings,
            run.run_id,
            run.learner_id,
            options=run.options,
            enforcement=run.enforcement,
            verdicts=Verdicts() if run.enforcement is Enforcement.OBSERVE else None,
        )

    def _publish(self, generation: Generation) -> None:
        for row in generation.rows:
            self._publish_row(row, generation)
        # A reward that comes first waits for its trajectory and is no revision of its own: the Reserve names revisions.
        arrived(self._rollout)
        for row in generation.rows:
            if row.raw_reward is None:
                text = "no reward function had an opinion"
                self._rewards.failed(row.trajectory_id, RewardFailure.INVALID_OUTPUT, retriable=False, text=text)
        if generation.scored:
            self._rewards.rewards(
                [Reward(row.trajectory_id, row.raw_reward or 0.0, row.components) for row in generation.scored]
            )
        arrived(self._rewards)

    def _publish_row(self, row: RowFacts, generation: Generation) -> None:
        segment = SegmentArrays(
            row.prompt_ids,
            row.response_ids,
            row.behavior,
            action_mask=row.action_mask,
            spans=spans_of(row.action_mask, generation.policy),
        )
        self._rollout.generated(
            row.identity,
            [segment],
            task=TaskSource(
                task_id=row.prompt_hash[:16], prompt_hash=row.prompt_hash, dataset=self._run.dataset, row=row.number
            ),
            contract_hash=self._contract_hash,
            finish_reason=FinishReason.STOP if row.is_stopped else FinishReason.LENGTH,
            rollout_partition_id=f"generation-{generation.rollout_id}",
        )

    def _release(
        self,
        policy: PolicyRef,
        update_ids: Sequence[str],
        *,
        active_version: int | None = None,
        rollback_of: int | None = None,
    ) -> None:
        """The new weights become the active policy. `active_version`: the one that is active, where it is not their
        parent."""
        self._prepare(policy, update_ids, rollback_of=rollback_of)
        self._activate(policy, active_version=active_version)

    def _prepare(self, policy: PolicyRef, update_ids: Sequence[str], *, rollback_of: int | None = None) -> None:
        """There are new weights, made of the last policy's and these updates."""
        self._coordinator.prepare(
            version=policy.version,
            artifact=artifact_of(policy),
            parent_version=self._policy.version,
            update_ids=update_ids,
            label=f"{self._counts} {policy.version - self._offset}",
            rollback_of=rollback_of,
            committed=True,
        )

    def _activate(self, policy: PolicyRef, *, active_version: int | None = None) -> None:
        """What TRL generates with from here on."""
        self._rollout.acknowledge(policy, EvidenceKind.ENGINE_ECHO)
        arrived(self._rollout)
        active_version = self._policy.version if active_version is None else active_version
        self._coordinator.activate(policy, active_version, wait_for_acks_s=ARRIVES_S)
        self._policy = policy


def observed(row: RowFacts) -> ObservedRow:
    return ObservedRow(row.trajectory_id, [(row.behavior, row.action_mask)], row.current)


def artifact_of(policy: PolicyRef) -> Artifact:
    return Artifact(hash=policy.artifact_hash, kind=ArtifactKind.DECLARED)


def arrived(client: Client) -> None:
    """Wait until what was published is on the log: the next record, of another client, comes after it."""
    if left := client.flush(ARRIVES_S):
        raise EnvironmentFault(f"{left} events did not reach the broker in {ARRIVES_S:.0f} s: see its log")
