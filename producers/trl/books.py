"""The ledger's side of a TRL training: what gate and observe mode share, and the two modes. Every call may wait."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from rollbook.producers.client import Client
from rollbook.producers.command import Command
from rollbook.producers.coordinator import Coordinator
from rollbook.producers.epochs import current_epoch
from rollbook.producers.errors import OutOfOrder
from rollbook.producers.facts import Done, Facts, ObservedRow
from rollbook.producers.holdings import UNUSED
from rollbook.producers.reward import Reward, RewardService
from rollbook.producers.rollout import RolloutWorker
from rollbook.producers.segments import SegmentArrays
from rollbook.producers.trainer import Trainer
from rollbook.producers.trl.facts import Conditions, Generation, RowFacts, StepFacts
from rollbook.producers.trl.resuming import Resumed, Standing, standing, tell, tell_again, train_again
from rollbook.producers.trl.run import LedgerRun
from rollbook.producers.trl.scalars import step_arrays
from rollbook.producers.trl.spans import spans_of
from rollbook.producers.update import Update
from rollbook.producers.verdicts import Verdicts
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.policy import EvidenceKind
from rollbook.schemas.records.reward import RewardFailure
from rollbook.schemas.records.rollout import FinishReason, TaskSource
from rollbook.schemas.records.run import Admission, Artifact, ArtifactKind, DriftGate, InitialPolicy, LagUnit
from rollbook.schemas.records.update import Checkpoint, CheckpointSaved, Disposition, ReserveItem, ReserveMode

_ARRIVES_S = 30.0
_REWARDED = 2
"""The revision of a trajectory that was generated and rewarded, and nothing else."""
_HIDDEN = "cut_off"
"""Why completions are dropped that TRL hides from its loss (`mask_truncated_completions`)."""
_NOT_RESUMED = "checkpoints of this trainer are not told to the ledger: begin a run anew"


class Books(ABC):
    """One training in one run: opened once, then for each generation buffer take, stepping and stepped for each
    optimizer step, and finish."""

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
        self._clients = ExitStack()

    def open(self) -> None:
        """Connect, configure the run or go on with it, start the learner. Raises EnvironmentFault, Refused, NotOurs."""
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
            if self._resumed is None:
                self._configure()
            self._contract_hash = self._rollout.register_contract(
                tokenizer=self._conditions.tokenizer,
                template=self._conditions.template,
                engine=self._conditions.engine,
                sampling=self._conditions.sampling,
            )
            epoch = current_epoch(run.settings, run.run_id, run.learner_id)
            if self._resumed is None:
                self._rollout.acknowledge(self._initial, EvidenceKind.ENGINE_ECHO)
                self._trainer.start(expected_epoch=epoch)
            else:
                tell(self._trainer.start(self._resumed.saved.checkpoint, expected_epoch=epoch), self._resumed.saved)
                self._go_on(self._resumed)
            self._clients = made.pop_all()

    def named(self, policy: PolicyRef) -> PolicyRef:
        """Weights that TRL numbers by its `global_step`, as the run numbers them."""
        return policy.model_copy(update={"version": policy.version + self._offset})

    def _configure(self) -> None:
        run = self._run
        self._coordinator.configure(
            admission=Admission(
                max_lag=run.max_lag,
                lag_unit=LagUnit.DEPTH,
                max_mean_abs_log_ratio=run.max_mean_abs_log_ratio,
                drift_gate=DriftGate.REQUIRED,
            ),
            required_workers=[run.worker_id],
            initial_policy=InitialPolicy(
                version=self._initial.version, artifact=_artifact(self._initial), label="initial"
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
            _arrived(self._rollout)
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
    def take(self, generation: Generation, update_id: str) -> frozenset[str]:
        """Publish a generation buffer and take it for an update; the trajectories that must not be trained on."""

    @abstractmethod
    def stepping(self, trajectory_ids: Sequence[str]) -> None:
        """An optimizer step is about to be made with these."""

    @abstractmethod
    def stepped(self, step: StepFacts) -> None:
        """It was made."""

    @abstractmethod
    def finish(self, policy: PolicyRef) -> None:
        """The update is over; these are the weights now."""

    @abstractmethod
    def give_up(self, error: BaseException) -> None:
        """The training failed within an update."""

    def settle(self) -> None:  # noqa: B027 -- who does nothing in the background need not wait for it
        """Wait until what was finished is told. Raises what became of it."""

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

    @abstractmethod
    def _make_trainer(self) -> Trainer: ...

    def _publish(self, generation: Generation) -> None:
        for row in generation.rows:
            self._publish_row(row, generation)
        # A reward that comes first waits for its trajectory and is no revision of its own: the Reserve names revisions.
        _arrived(self._rollout)
        for row in generation.rows:
            if row.raw_reward is None:
                text = "no reward function had an opinion"
                self._rewards.failed(row.trajectory_id, RewardFailure.INVALID_OUTPUT, retriable=False, text=text)
        if generation.scored:
            self._rewards.rewards(
                [Reward(row.trajectory_id, row.raw_reward or 0.0, row.components) for row in generation.scored]
            )
        _arrived(self._rewards)

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
        """The new weights become the active policy: TRL's own generation serves them from here on. `active_version`:
        the one that is active, where it is not their parent."""
        self._coordinator.prepare(
            version=policy.version,
            artifact=_artifact(policy),
            parent_version=self._policy.version,
            update_ids=update_ids,
            label=f"step {policy.version - self._offset}",
            rollback_of=rollback_of,
            committed=True,
        )
        self._rollout.acknowledge(policy, EvidenceKind.ENGINE_ECHO)
        _arrived(self._rollout)
        active_version = self._policy.version if active_version is None else active_version
        self._coordinator.activate(policy, active_version, wait_for_acks_s=_ARRIVES_S)
        self._policy = policy


class GateBooks(Books):
    """The training waits for the ledger's answers, and trains on nothing else than what they let through."""

    _update: Update | None = None
    _hidden: frozenset[str] = frozenset()
    _ended: Future[None] | None = None

    def open(self) -> None:
        super().open()
        self._ender = ThreadPoolExecutor(1, thread_name_prefix="rollbook-trl-end")

    def take(self, generation: Generation, update_id: str) -> frozenset[str]:
        self.settle()
        self._publish(generation)
        if not generation.scored:  # an update of nothing cannot be reserved
            return frozenset(row.trajectory_id for row in generation.rows)
        self._hidden = generation.hidden
        update = self._update = self._trainer.update(generation.rollout_id, update_id=update_id)
        update.__enter__()
        # Also those that nothing scored, so that the ledger says of each row of the buffer why it is not trained on.
        items = [ReserveItem(trajectory_id=row.trajectory_id, expected_revision=_REWARDED) for row in generation.rows]
        update.reserve(items, generation.policy, mode=ReserveMode.AVAILABLE)
        held = {item.trajectory_id for item in update.held}
        rows = [observed(row) for row in generation.rows if row.trajectory_id in held]
        # What this process has just published need not be read back: the ledger compares the digests.
        update.admit({row.trajectory_id: row.current_log_probs for row in rows}, generation.policy, evidence=rows)
        update.start()
        trainable = frozenset(update.trainable)
        return frozenset(row.trajectory_id for row in generation.rows if row.trajectory_id not in trainable)

    def stepping(self, trajectory_ids: Sequence[str]) -> None:
        self._open_update.step(trajectory_ids)

    def stepped(self, step: StepFacts) -> None:
        self._open_update.record_step(step.step_id, step_arrays(step), rank=step.rank)

    def finish(self, policy: PolicyRef) -> None:
        update, self._update = self._update, None
        if update is not None:
            held = {item.trajectory_id for item in update.held}
            update.drop(sorted(held & self._hidden), _HIDDEN, disposition=Disposition.DISCARD)
        # TRL generates meanwhile; what it generates is published, and trained on, when the policy is active.
        self._ended = self._ender.submit(self._end, update, policy)

    def settle(self) -> None:
        """Wait until the last update is committed and its policy active. Raises what they failed of, StartAnew too."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.result()

    def close(self) -> None:
        try:
            self.settle()
        finally:
            self._ender.shutdown()
            super().close()

    def give_up(self, error: BaseException) -> None:
        update, self._update = self._update, None
        if update is not None:
            update.__exit__(type(error), error, error.__traceback__)

    def saved(self, checkpoint: Checkpoint) -> str:
        self.settle()
        # Not Trainer.checkpoint_saved, which knows no weights that hold a part of an open update.
        self._trainer.ask(Command(self._checkpoint_saved(checkpoint)))
        return self._trainer.decisions.chain

    def _train_again(self, resumed: Resumed, found: Standing) -> str | None:
        return train_again(self._trainer, resumed, found)

    def _end(self, update: Update | None, policy: PolicyRef) -> None:
        if update is not None:
            update.__exit__(None, None, None)
        self._release(policy, [] if update is None else [update.update_id])

    def _make_trainer(self) -> Trainer:
        return Trainer(self._run.settings, self._run.run_id, self._run.learner_id, options=self._run.options)

    @property
    def _open_update(self) -> Update:
        if self._update is None:
            raise OutOfOrder(
                "an optimizer step outside of a generation buffer's update: let the trainer generate first"
            )
        return self._update


class ObserveBooks(Books):
    """What the training does is told as facts. Called in a thread of its own, which may wait as long as it likes."""

    _facts: Facts | None = None

    def take(self, generation: Generation, update_id: str) -> frozenset[str]:
        self._publish(generation)
        self._steps: list[tuple[str, ...]] = []
        unused = dict.fromkeys((row.trajectory_id for row in generation.rows), (UNUSED, Disposition.RELEASE))
        hidden = dict.fromkeys(generation.hidden, (_HIDDEN, Disposition.DISCARD))
        self._not_trained: dict[str, tuple[str, Disposition]] = {**unused, **hidden}
        facts = self._facts = Facts(update_id, generation.rollout_id, 0)
        facts.reserve(self._trainer, [row.trajectory_id for row in generation.rows], generation.policy)
        rows = [observed(row) for row in generation.rows]
        facts.admit(self._trainer, rows, generation.policy, keep=True)
        facts.start(self._trainer)
        return frozenset()

    def stepping(self, trajectory_ids: Sequence[str]) -> None:
        self._steps.append(tuple(trajectory_ids))

    def stepped(self, step: StepFacts) -> None:
        if self._facts is not None:
            self._facts.record(self._trainer, step.step_id, step_arrays(step), step.rank)

    def finish(self, policy: PolicyRef) -> None:
        facts, self._facts = self._facts, None
        if facts is None:
            return
        facts.commit(self._trainer, Done(tuple(self._steps), self._not_trained))
        _arrived(self._trainer)
        self._release(policy, [facts.update_id])

    def give_up(self, error: BaseException) -> None:
        """A started update stays open: its rows may be in the weights."""
        self._facts = None

    def saved(self, checkpoint: Checkpoint) -> str:
        record = self._checkpoint_saved(checkpoint)
        self._trainer.outbox.publish(lambda _: record)
        return ""

    def _train_again(self, resumed: Resumed, found: Standing) -> str | None:
        update_id = tell_again(self._trainer, resumed, found)
        _arrived(self._trainer)
        return update_id

    def _make_trainer(self) -> Trainer:
        run = self._run
        return Trainer(
            run.settings,
            run.run_id,
            run.learner_id,
            options=run.options,
            enforcement=run.enforcement,
            verdicts=Verdicts(),
        )


def observed(row: RowFacts) -> ObservedRow:
    return ObservedRow(row.trajectory_id, [(row.behavior, row.action_mask)], row.current)


def _artifact(policy: PolicyRef) -> Artifact:
    return Artifact(hash=policy.artifact_hash, kind=ArtifactKind.DECLARED)


def _arrived(client: Client) -> None:
    """Wait until what was published is on the log: the next record, of another client, comes after it."""
    if left := client.flush(_ARRIVES_S):
        raise EnvironmentFault(f"{left} events did not reach the broker in {_ARRIVES_S:.0f} s: see its log")
