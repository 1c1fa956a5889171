"""Where one training stands: its generation buffer, the step under way, and its books. Only the main process has it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rollbook.producers.identity import new_id
from rollbook.producers.observing.facts import ObservedRow
from rollbook.producers.trl.books import Books, GateBooks, ObserveBooks
from rollbook.producers.trl.clients import observed
from rollbook.producers.trl.facts import Completion, Conditions, Generation, MicroStep, StepFacts, in_groups
from rollbook.producers.trl.recording import step_arrays
from rollbook.producers.trl.resuming import Resumed
from rollbook.producers.trl.run import LedgerRun
from rollbook.producers.trl.saved import OpenPart, Saved, write
from rollbook.producers.trl.watcher import Watcher
from rollbook.producers.updates.recording import recording_of
from rollbook.schemas.errors import AnswerNo
from rollbook.schemas.records.common import LearnerRef, PolicyRef
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.run import Enforcement
from rollbook.schemas.records.update import Checkpoint

_CLOSE_S = 30.0
_NAME_CHARACTERS = 160
_LOG = logging.getLogger("rollbook.producers")


class NothingReleased(AnswerNo):
    """The ledger let none of an optimizer step's rows through."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of a generation that must not be trained on, and how many tokens they would have had in the loss."""

    refused: tuple[int, ...] = ()
    tokens: int = 0


class Session:
    """In gate mode it waits for the ledger and raises; in observe mode it does neither."""

    def __init__(
        self, run: LedgerRun, conditions: Conditions, initial: PolicyRef, resumed: Resumed | None = None
    ) -> None:
        self._run = run
        self._conditions = conditions
        self._policy = initial
        self._rollout_id = 0 if resumed is None else resumed.saved.next_rollout_id
        self._generation: Generation | None = None
        self._last_update = "" if resumed is None else resumed.saved.last_update
        self._update_id = ""
        self._refused: frozenset[str] = frozenset()
        self._steps: list[tuple[str, ...]] = []
        self._shares: list[StepFacts] = []
        self._steps_on_nothing = True
        self._made = 0
        self._observes = run.enforcement is Enforcement.OBSERVE
        self._books: Books | None = None
        self._watcher: Watcher[Books] | None = None
        if self._observes:
            self._watcher = Watcher(ObserveBooks(run, conditions, initial, resumed))
        else:
            self._books = GateBooks(run, conditions, initial, resumed)
            self._books.open()

    @property
    def lost(self) -> int:
        """In observe mode: what was not told to the ledger."""
        return 0 if self._watcher is None else self._watcher.lost

    def take(self, completions: Sequence[Completion], tokens: float, steps_per_generation: int) -> Taken:
        """A generation buffer begins, with the completions of all processes."""
        generation = self._generation = Generation(
            rollout_id=self._rollout_id,
            policy=self._policy,
            rows=in_groups(completions, self._conditions.n_generations, self._rollout_id),
            tokens=tokens,
            steps_per_generation=steps_per_generation,
        )
        self._update_id, self._steps, self._refused, self._made = new_id(), [], frozenset(), 0
        self._shares = []
        self._rollout_id += 1
        update_id = self._update_id
        if self._books is not None:
            self._refused = self._books.take(_numbered(generation, self._books), update_id)
        self._tell(lambda books: books.take(_numbered(generation, books), update_id))
        refused = [(at, row) for at, row in enumerate(generation.rows) if row.trajectory_id in self._refused]
        return Taken(tuple(at for at, _ in refused), sum(int(row.loss_mask.sum()) for _, row in refused))

    def stepping(self, rows: Sequence[int]) -> None:
        """The optimizer is about to step on these. Raises NothingReleased where it would step on nothing.

        Where TRL itself has nothing to learn from (no row has a reward, or all were cut off and are hidden), its
        gradient is 0 and the ledger hears of no step.
        """
        self._steps_on_nothing = True
        self._made += 1
        if self._generation is None:
            return
        steps_on = [self._generation.rows[at] for at in dict.fromkeys(rows)]
        wanted = [row for row in steps_on if row.loss_mask.any() and (self._observes or row.raw_reward is not None)]
        ids = tuple(row.trajectory_id for row in wanted if row.trajectory_id not in self._refused)
        if not wanted:
            return
        if not ids:
            raise NothingReleased(
                f"step {len(self._steps)} of update {self._update_id}: the ledger refused all of its rows; see "
                "`rollbook explain` on one of them, and start anew from the last checkpoint"
            )
        if self._books is not None:
            self._books.stepping(ids)
        self._tell(lambda books: books.stepping(ids))
        self._steps.append(ids)
        self._steps_on_nothing = False

    def stepped(self, shares: Sequence[tuple[MicroStep, ...]]) -> None:
        """It has stepped, each process on its share."""
        if self._generation is None or self._steps_on_nothing:
            return
        generation = self._generation
        steps = [self._facts(generation, rank, len(shares), share) for rank, share in enumerate(shares)]
        self._shares += steps
        if self._books is not None:
            _keep(self._books, steps)
        self._tell(lambda books: _keep(books, steps))
        for step in steps:
            self._run.show(step)

    def finish(self, policy: PolicyRef) -> None:
        """The generation buffer is used up; these are the weights that it made."""
        if self._generation is None:
            return
        self._generation, self._last_update, self._shares = None, self._update_id, []
        if self._books is not None:
            self._books.finish(self._books.named(policy))
        self._tell(lambda books: books.finish(books.named(policy)))
        self._policy = policy

    def settle(self) -> None:
        """Wait until the ledger knows of all that was finished. Raises what became of it."""
        if self._books is not None:
            self._books.settle()

    def before_saving(self) -> None:
        """Wait until the ledger knows all that is in the weights, so that they may leave this process: of an open
        update that it has begun."""
        if self._books is not None:
            self._books.before_saving()

    def saved(self, folder: Path, weights: PolicyRef) -> None:
        """TRL has saved these weights into the folder."""
        checkpoint = Checkpoint(
            id=f"{self._run.learner_id[:_NAME_CHARACTERS]}-{weights.version}-{new_id()}", digest=weights.artifact_hash
        )
        chain = "" if self._books is None else self._books.saved(checkpoint)
        self._tell(lambda books: books.saved(checkpoint))
        part, rows = self._open_part()
        write(
            folder,
            Saved(
                run_id=self._run.run_id,
                learner_id=self._run.learner_id,
                checkpoint=checkpoint,
                step=weights.version,
                policy=self._policy,
                next_rollout_id=self._rollout_id,
                last_update=self._last_update,
                chain=chain,
                open=part,
            ),
            rows,
            [] if part is None else self._recordings(),
        )

    def close(self, error: BaseException | None) -> None:
        """The training has ended, or has failed."""
        if self._watcher is not None:
            if error is not None:
                failure = error
                self._tell(lambda books: books.give_up(failure))
            self._watcher.close(min(_CLOSE_S, self._run.options.close_timeout_s))
        elif self._books is not None:
            try:
                if error is not None:
                    self._books.give_up(error)
            finally:
                self._books.close()

    def _open_part(self) -> tuple[OpenPart | None, list[ObservedRow]]:
        if self._generation is None or not self._steps:
            return None, []
        part = OpenPart(update_id=self._update_id, rollout_id=self._generation.rollout_id, steps=tuple(self._steps))
        return part, [observed(row) for row in self._generation.rows if row.trajectory_id not in self._refused]

    def _recordings(self) -> list[StepRecording]:
        """Of the steps of the open update; none where one cannot be recorded: that is told where it is published."""
        learner = LearnerRef(learner_id=self._run.learner_id, epoch=0)  # of whoever goes on from the folder
        try:
            return [
                recording_of(
                    share.step_id,
                    step_arrays(share),
                    run_id=self._run.run_id,
                    learner=learner,
                    update_id=share.update_id,
                    rollout_id=share.generation.rollout_id,
                    rank=share.rank,
                    redaction=self._run.options.redaction,
                )
                for share in self._shares
            ]
        except Exception:  # whatever the arrays are: saving is the training's own, and goes on
            return []

    def _facts(self, generation: Generation, rank: int, ranks: int, share: tuple[MicroStep, ...]) -> StepFacts:
        steps_a_pass = len(generation.rows) // ranks // sum(len(micro.rows) for micro in share)
        return StepFacts(
            step_id=len(self._steps) - 1,
            epoch=(self._made - 1) // max(1, steps_a_pass),
            update_id=self._update_id,
            generation=generation,
            micro_steps=share,
            refused=self._refused,
            conditions=self._conditions,
            rank=rank,
            ranks=ranks,
        )

    def _tell(self, call: Callable[[Books], object]) -> None:
        if self._watcher is not None:
            self._watcher.tell(call)


def _keep(books: Books, steps: Sequence[StepFacts]) -> None:
    """An optimizer step, as each process made its share of it."""
    generation = _numbered(steps[0].generation, books)
    for step in steps:
        books.stepped(replace(step, generation=generation))


def _numbered(generation: Generation, books: Books) -> Generation:
    """The generation under the run's number of its policy."""
    return replace(generation, policy=books.named(generation.policy))
