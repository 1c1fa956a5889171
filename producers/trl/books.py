"""The ledger's side of a TRL training: what gate and observe mode share, and the two modes. Every call may wait."""

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from rollbook.producers.errors import OutOfOrder
from rollbook.producers.observing.facts import Done, Facts
from rollbook.producers.trl.clients import REWARDED, Clients, arrived, observed
from rollbook.producers.trl.facts import Generation, StepFacts
from rollbook.producers.trl.modes import Gating, Observing
from rollbook.producers.trl.recording import step_arrays
from rollbook.producers.trl.resuming import Resumed, Standing, tell_again, train_again
from rollbook.producers.updates.holdings import UNUSED
from rollbook.producers.updates.update import Update
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.update import Disposition, ReserveItem, ReserveMode

_HIDDEN = "cut_off"
"""Why completions are dropped that TRL hides from its loss (`mask_truncated_completions`)."""


class Books(Clients):
    """One training in one run: opened once, then for each generation buffer take, stepping and stepped for each
    optimizer step, and finish."""

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


class GateBooks(Gating, Books):
    """The training waits for the ledger's answers, and trains on nothing else than what they let through."""

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
        items = [ReserveItem(trajectory_id=row.trajectory_id, expected_revision=REWARDED) for row in generation.rows]
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

    def before_saving(self) -> None:
        self.settle()
        if self._update is not None:
            self._update.renew()

    def _train_again(self, resumed: Resumed, found: Standing) -> str | None:
        return train_again(self._trainer, resumed, found)

    def _end(self, update: Update | None, policy: PolicyRef) -> None:
        if update is not None:
            update.__exit__(None, None, None)
        self._release(policy, [] if update is None else [update.update_id])

    @property
    def _open_update(self) -> Update:
        if self._update is None:
            raise OutOfOrder(
                "an optimizer step outside of a generation buffer's update: let the trainer generate first"
            )
        return self._update


class ObserveBooks(Observing, Books):
    """What the training does is told as facts. Called in a thread of its own, which may wait as long as it likes."""

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
        arrived(self._trainer)
        self._release(policy, [facts.update_id])

    def _train_again(self, resumed: Resumed, found: Standing) -> str | None:
        update_id = tell_again(self._trainer, resumed, found)
        arrived(self._trainer)
        return update_id
