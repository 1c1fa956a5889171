"""The ledger's side of an asynchronous training: an update is one optimizer step, admitted in parts as the training's
forward passes give the log-probs."""

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from rollbook.producers.errors import OutOfOrder, Refused, StartAnew
from rollbook.producers.observing.facts import Done, Facts
from rollbook.producers.trl.clients import REWARDED, Clients, arrived, observed
from rollbook.producers.trl.facts import Conditions, Generation, RowFacts, StepFacts
from rollbook.producers.trl.modes import Gating, Observing
from rollbook.producers.trl.recording import step_arrays
from rollbook.producers.trl.resuming import Resumed, Standing
from rollbook.producers.trl.run import LedgerRun
from rollbook.producers.updates.update import Update
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.reward import DiscardReason
from rollbook.schemas.records.update import ReserveItem, ReserveMode

_RANK = 0
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows that left the queue and that TRL does not train on."""

    trajectory_ids: tuple[str, ...]
    reason: DiscardReason
    why: str


class AsyncBooks(Clients):
    """For each optimizer step: publish, take, admit once or more, stepping, commit; record whenever the recording is
    whole. For each weight sync: prepare before it, activate after it."""

    _counts = "version"

    def publish(self, generations: Sequence[Generation], dropped: Sequence[Dropped]) -> frozenset[str]:
        """Rows by the policy that wrote them, and which of them TRL dropped."""
        for generation in generations:
            self._publish(self._numbered(generation))
        for one in dropped:
            self._trainer.discarded(one.trajectory_ids, one.reason, text=one.why)
        return NOTHING

    @abstractmethod
    def take(self, generation: Generation, update_id: str) -> frozenset[str]:
        """The rows of an optimizer step; those that it must leave out."""

    @abstractmethod
    def admit(self, rows: Sequence[RowFacts], policy: PolicyRef) -> frozenset[str]:
        """These rows have gone through the forward pass, which gave their `current`; which of them are refused."""

    @abstractmethod
    def stepping(self, trajectory_ids: Sequence[str]) -> None:
        """The optimizer step is about to be made with these."""

    @abstractmethod
    def commit(self) -> frozenset[str]:
        """The optimizer step was made."""

    @abstractmethod
    def skip(self) -> frozenset[str]:
        """It is not made: nothing was left of it."""

    @abstractmethod
    def stepped(self, step: StepFacts) -> None:
        """A step that was committed, with all that was normalised together with its rows."""

    def prepare(self, policy: PolicyRef, update_ids: Sequence[str]) -> frozenset[str]:
        """These weights are about to go to the workers."""
        self._prepare(self.named(policy), update_ids)
        return NOTHING

    def activate(self, policy: PolicyRef) -> frozenset[str]:
        """They are there: TRL's transfer returns when the server has them, so it is acknowledged on its behalf."""
        self._activate(self.named(policy))
        return NOTHING

    def _numbered(self, generation: Generation) -> Generation:
        """The generation under the run's number of its policy."""
        return replace(generation, policy=self.named(generation.policy))

    def _train_again(self, resumed: Resumed, found: Standing) -> str | None:
        """Nothing: TRL saves between two optimizer steps, which are updates of their own."""
        return None


class AsyncGateBooks(Gating, AsyncBooks):
    """The training waits for the ledger's answers, and trains on nothing else than what they let through."""

    def __init__(
        self, run: LedgerRun, conditions: Conditions, initial: PolicyRef, resumed: Resumed | None = None
    ) -> None:
        super().__init__(run, conditions, initial, resumed)
        self._committed: dict[str, Update] = {}
        self._activating: Future[frozenset[str]] | None = None

    def open(self) -> None:
        super().open()
        self._activator = ThreadPoolExecutor(1, thread_name_prefix="rollbook-trl-activate")

    def publish(self, generations: Sequence[Generation], dropped: Sequence[Dropped]) -> frozenset[str]:
        self.settle()
        return super().publish(generations, dropped)

    def take(self, generation: Generation, update_id: str) -> frozenset[str]:
        self.settle()
        update = self._update = self._trainer.update(generation.rollout_id, update_id=update_id)
        update.__enter__()
        # Also those that nothing scored, so that the ledger says of each row why it is not trained on.
        items = [ReserveItem(trajectory_id=row.trajectory_id, expected_revision=REWARDED) for row in generation.rows]
        try:
            update.reserve(items, self.named(generation.policy), mode=ReserveMode.AVAILABLE)
        except Refused as refusal:
            if isinstance(refusal, StartAnew) or not refusal.decision.items:
                raise  # no answer about each row: the command itself was wrong
        held = {item.trajectory_id for item in update.held}
        return frozenset(row.trajectory_id for row in generation.rows) - held

    def admit(self, rows: Sequence[RowFacts], policy: PolicyRef) -> frozenset[str]:
        if not rows:
            return NOTHING
        current = {row.trajectory_id: row.current for row in rows}
        self._open.admit(current, self.named(policy), evidence=[observed(row) for row in rows])
        return frozenset(row.trajectory_id for row in rows) - frozenset(self._open.admitted)

    def stepping(self, trajectory_ids: Sequence[str]) -> None:
        self._open.start()
        self._open.step(trajectory_ids)

    def commit(self) -> frozenset[str]:
        update = self._open
        update.commit(expected_ranks=[_RANK])
        self._leave(update)
        self._committed[update.update_id] = update
        return NOTHING

    def skip(self) -> frozenset[str]:
        self._leave(self._open)
        return NOTHING

    def stepped(self, step: StepFacts) -> None:
        update = self._committed.pop(step.update_id)
        update.record_step(step.step_id, step_arrays(replace(step, generation=self._numbered(step.generation))))
        update.seal()

    def activate(self, policy: PolicyRef) -> frozenset[str]:
        # TRL waits for its queue meanwhile; what comes out is published, and reserved, when the policy is active.
        self._activating = self._activator.submit(super().activate, policy)
        return NOTHING

    def settle(self) -> None:
        """Wait until the last policy is active. Raises what that failed of, StartAnew too."""
        activating, self._activating = self._activating, None
        if activating is not None:
            activating.result()

    def close(self) -> None:
        try:
            self.settle()
        finally:
            self._activator.shutdown()
            super().close()

    def _leave(self, update: Update) -> None:
        self._update = None
        update.__exit__(None, None, None)

    @property
    def _open(self) -> Update:
        if self._update is None:
            raise OutOfOrder("an optimizer step outside of an update: TRL draws its micro-batches first")
        return self._update


class AsyncObserveBooks(Observing, AsyncBooks):
    """What the training does is told as facts. Called in a thread of its own, which may wait as long as it likes."""

    def __init__(
        self, run: LedgerRun, conditions: Conditions, initial: PolicyRef, resumed: Resumed | None = None
    ) -> None:
        super().__init__(run, conditions, initial, resumed)
        self._ids: tuple[str, ...] = ()
        self._committed: dict[str, Facts] = {}

    def take(self, generation: Generation, update_id: str) -> frozenset[str]:
        self._facts = Facts(update_id, generation.rollout_id, _RANK)
        ids = [row.trajectory_id for row in generation.rows]
        self._facts.reserve(self._trainer, ids, self.named(generation.policy))
        return NOTHING

    def admit(self, rows: Sequence[RowFacts], policy: PolicyRef) -> frozenset[str]:
        if rows:
            self._open.admit(self._trainer, [observed(row) for row in rows], self.named(policy), keep=True)
        return NOTHING

    def stepping(self, trajectory_ids: Sequence[str]) -> None:
        self._open.start(self._trainer)
        self._ids = tuple(trajectory_ids)

    def commit(self) -> frozenset[str]:
        facts, self._facts = self._open, None
        facts.commit(self._trainer, Done((self._ids,), {}), ranks=[_RANK])
        arrived(self._trainer)
        self._committed[facts.update_id] = facts
        return NOTHING

    def skip(self) -> frozenset[str]:
        self._facts = None
        return NOTHING

    def stepped(self, step: StepFacts) -> None:
        facts = self._committed.pop(step.update_id)
        numbered = replace(step, generation=self._numbered(step.generation))
        facts.record(self._trainer, step.step_id, step_arrays(numbered))
        facts.seal(self._trainer)

    @property
    def _open(self) -> Facts:
        if self._facts is None:
            raise OutOfOrder("an optimizer step outside of an update: TRL draws its micro-batches first")
        return self._facts
