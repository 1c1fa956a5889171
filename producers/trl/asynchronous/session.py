"""Where an asynchronous training stands: the rows that wait, the optimizer step under way, what is not yet recorded."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from rollbook.producers.identity import new_id
from rollbook.producers.trl.asynchronous.books import (
    NOTHING,
    AsyncBooks,
    AsyncGateBooks,
    AsyncObserveBooks,
    Dropped,
)
from rollbook.producers.trl.asynchronous.intake import Arrival, Formed, Intake
from rollbook.producers.trl.asynchronous.step import Step
from rollbook.producers.trl.facts import Conditions, Generation, MicroStep
from rollbook.producers.trl.guard import Guard
from rollbook.producers.trl.resuming import Resumed
from rollbook.producers.trl.run import LedgerRun
from rollbook.producers.trl.saved import Saved, write
from rollbook.producers.trl.watcher import Watcher
from rollbook.schemas.digests import FloatArray
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.reward import DiscardReason
from rollbook.schemas.records.run import Enforcement
from rollbook.schemas.records.update import Checkpoint

_CLOSE_S = 30.0
_NAME_CHARACTERS = 160
_LOG = logging.getLogger("rollbook.producers")
Ask = Callable[[AsyncBooks], frozenset[str]]


class AsyncSession(Guard):
    """The training's thread calls it. In gate mode it waits for the ledger and raises; in observe mode it does neither,
    and after a failure of its own it does nothing at all. `max_staleness` is TRL's."""

    def __init__(
        self,
        run: LedgerRun,
        conditions: Conditions,
        initial: PolicyRef,
        max_staleness: int,
        resumed: Resumed | None = None,
    ) -> None:
        super().__init__(observes=run.enforcement is Enforcement.OBSERVE)
        self._run = run
        self._conditions = conditions
        self._max_staleness = max_staleness
        self._policies = {initial.version: initial}
        self._policy = initial
        self.intake = Intake(conditions.n_generations)
        self._formed: dict[int, Formed] = {}
        self._taken: dict[int, tuple[Arrival | None, ...]] = {}
        self._micro_batches = 0
        self._steps = 0 if resumed is None else resumed.saved.next_rollout_id
        self._step: Step | None = None
        self._last_update = "" if resumed is None else resumed.saved.last_update
        self._unreleased: list[str] = []
        self._unrecorded: deque[Step] = deque()
        self._books: AsyncBooks | None = None
        self._watcher: Watcher[AsyncBooks] | None = None
        self._untold: list[Ask] = []
        if self._observes:
            self._watcher = Watcher(AsyncObserveBooks(run, conditions, initial, resumed))
        else:
            self._books = AsyncGateBooks(run, conditions, initial, resumed)
            self._books.open()

    @property
    def may_refuse(self) -> bool:
        """Whether rows may have to leave the loss."""
        return not self._observes

    @property
    def lost(self) -> int:
        """In observe mode: what was not told to the ledger."""
        return 0 if self._watcher is None else self._watcher.lost

    def formed(self, tokens: Sequence[object]) -> int:
        """TRL has formed a micro-batch of these rows; its number."""
        self._micro_batches += 1
        self._formed[self._micro_batches] = self.intake.formed(tokens)
        return self._micro_batches

    def begin(self, numbers: Sequence[int]) -> frozenset[str]:
        """An optimizer step on these micro-batches begins; the trajectories that it must leave out."""
        formed = [self._formed.pop(number) for number in numbers]
        self._taken = {number: micro.rows for number, micro in zip(numbers, formed, strict=True)}
        rows = [one for micro in formed for one in micro.rows if one is not None]
        self._steps += 1
        step = self._step = Step(new_id(), self._steps - 1, self._policy)
        self._publish(rows, [one for micro in formed for one in micro.passed_over])
        generation = step.generation([one.row for one in rows])
        if rows:
            step.left_out = self._ask(lambda books: books.take(generation, step.update_id))
        return step.left_out

    def rows(self, number: int) -> tuple[Arrival | None, ...]:
        """The rows of a micro-batch of the step, in the packer's order."""
        return self._taken[number]

    def packed_again(self, number: int, rows: Sequence[Arrival | None]) -> None:
        """The micro-batch consists of these only."""
        self._taken[number] = tuple(rows)

    def admit(self, number: int, log_probs: Sequence[FloatArray]) -> frozenset[str]:
        """The micro-batch went through the forward pass, with these log-probs; the trajectories that must leave the
        loss."""
        step = self._now
        pairs = zip(self.rows(number), log_probs, strict=True)
        rows = [replace(one.row, current=current) for one, current in pairs if one is not None]
        held = [row for row in rows if row.trajectory_id not in step.left_out]
        refused = self._ask(lambda books: books.admit(held, step.policy)) if held else NOTHING
        out = refused | step.left_out.intersection(row.trajectory_id for row in rows)
        step.rows += rows
        step.refused |= out
        return out

    def forwarded(self, make: Callable[[Sequence[int]], MicroStep], count: int) -> None:
        """The loss of the micro-batch was formed, of the last `count` rows."""
        last = len(self._now.rows)
        if count:
            self._now.micro_steps.append(make(range(last - count, last)))

    def stepping(self) -> bool:
        """The optimizer is about to step; False where nothing is left that it could step on."""
        step = self._step
        if step is None or not step.rows:
            return True
        trained = step.trained
        if not trained:
            self._step = None
            self._ask(lambda books: books.skip())
            return False
        self._ask(lambda books: _nothing(books.stepping(trained)))
        return True

    def stepped(self) -> None:
        """It has stepped."""
        step, self._step = self._step, None
        if step is None or not step.rows:
            return
        self._ask(lambda books: books.commit())
        self._last_update = step.update_id
        self._unreleased.append(step.update_id)
        self._unrecorded.append(step)
        self._record(all_of_them=False)
        self._tell()

    def preparing(self, policy: PolicyRef) -> None:
        """These weights are about to go to the rollout worker."""
        update_ids, self._unreleased = tuple(self._unreleased), []
        self._ask(lambda books: books.prepare(policy, update_ids))

    def activated(self, policy: PolicyRef) -> None:
        """They are there."""
        self._ask(lambda books: books.activate(policy))
        self._policies[policy.version] = self._policy = policy
        self._tell()

    def saved(self, folder: Path, weights: PolicyRef) -> None:
        """TRL has saved these weights into the folder; `weights` under its global_step."""
        name = self._run.learner_id[:_NAME_CHARACTERS]
        checkpoint = Checkpoint(id=f"{name}-{weights.version}-{new_id()}", digest=weights.artifact_hash)
        chain = "" if self._books is None else self._books.saved(checkpoint)
        if self._books is None:
            self._ask(lambda books: _nothing(books.saved(checkpoint)))
            self._tell()
        saved = Saved(
            run_id=self._run.run_id,
            learner_id=self._run.learner_id,
            checkpoint=checkpoint,
            step=weights.version,
            policy=self._policy,
            next_rollout_id=self._steps,
            last_update=self._last_update,
            chain=chain,
            unreleased=tuple(self._unreleased),
        )
        write(folder, saved, ())

    def close(self, error: BaseException | None) -> None:
        """The training has ended, or has failed."""
        try:
            if not self.is_over:
                with self.guarded():
                    self._end(error)
        finally:
            if self._watcher is not None:
                self._watcher.close(min(_CLOSE_S, self._run.options.close_timeout_s))
            elif self._books is not None:
                self._books.close()

    def _end(self, error: BaseException | None) -> None:
        try:
            self._record(all_of_them=True)
        finally:
            if error is not None:
                failure = error
                self._ask(lambda books: _nothing(books.give_up(failure)))
            else:
                self._leave_over()
            self._tell()

    def _leave_over(self) -> None:
        """What left TRL's queue and will never be trained on."""
        waiting = [one for micro in self._formed.values() for one in (*micro.rows, *micro.passed_over) if one]
        self._publish([], [*waiting, *self.intake.left()], is_over=True)

    def _publish(self, rows: Sequence[Arrival], dropped: Sequence[Arrival], *, is_over: bool = False) -> None:
        everything = sorted([*rows, *dropped], key=lambda one: (one.version, one.number))
        generations = [
            Generation(
                rollout_id=self._steps,
                policy=self._policy_of(version),
                rows=tuple(one.row for one in of_version),
                tokens=0.0,
                steps_per_generation=1,
            )
            for version, of_version in groupby(everything, key=lambda one: one.version)
        ]
        ids: dict[tuple[DiscardReason, str], list[str]] = {}
        for one in dropped:
            ids.setdefault(self._why(one, is_over=is_over), []).append(one.trajectory_id)
        told = [Dropped(tuple(found), reason, why) for (reason, why), found in ids.items()]
        if generations:
            self._ask(lambda books: books.publish(generations, told))

    def _why(self, one: Arrival, *, is_over: bool) -> tuple[DiscardReason, str]:
        behind = self._policy.version - one.version
        if is_over:
            return DiscardReason.SURPLUS, "the training ended before its optimizer step"
        if behind > self._max_staleness:
            return DiscardReason.CUSTOM, f"stale: {behind} versions behind, TRL takes {self._max_staleness}"
        return DiscardReason.LENGTH, "TRL put it into no micro-batch: it is longer than the token budget"

    def _policy_of(self, version: int) -> PolicyRef:
        known = self._policies.get(version)
        if known is None:
            raise BadInput(
                f"the rollout worker stamped a group with version {version}, which no weight sync of this training "
                f"made ({min(self._policies)} to {max(self._policies)}): stamp what update_model_version told it"
            )
        return known

    def _record(self, *, all_of_them: bool) -> None:
        """What can be recorded: with a step goes all that was normalised together with its rows, and TRL may draw the
        rest of a group only for the next one."""
        while self._unrecorded:
            step = self._unrecorded[0]
            if not all_of_them and not all(self.intake.is_settled(group) for group in step.groups):
                return
            self._unrecorded.popleft()
            members = [one for group in step.groups for one in self.intake.members(group)]
            facts = step.facts(members, self._conditions)
            self._ask(lambda books, facts=facts: _nothing(books.stepped(facts)))  # type: ignore[misc]
            self._run.show(facts)

    @property
    def _now(self) -> Step:
        assert self._step is not None, "TRL draws a step's micro-batches before its forward passes"
        return self._step

    def _ask(self, ask: Ask) -> frozenset[str]:
        """The books' answer; in observe mode there is none to wait for."""
        if self._books is not None:
            return ask(self._books)
        self._untold.append(ask)
        return NOTHING

    def _tell(self) -> None:
        """In observe mode: what happened since the last time, as one call."""
        told, self._untold = tuple(self._untold), []
        if self._watcher is not None and told:
            self._watcher.tell(lambda books: [ask(books) for ask in told])


def _nothing(_: object) -> frozenset[str]:
    return NOTHING
