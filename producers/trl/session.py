"""Where one training stands: its generation buffer, the micro-batches of the step under way, and its books."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rollbook.producers.identity import new_id
from rollbook.producers.trl.books import Books, GateBooks, ObserveBooks
from rollbook.producers.trl.facts import Conditions, Generation, MicroStep, StepFacts
from rollbook.producers.trl.run import LedgerRun
from rollbook.producers.trl.watcher import Call, Watcher
from rollbook.schemas.errors import AnswerNo
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.run import Enforcement

_CLOSE_S = 30.0
_LOG = logging.getLogger("rollbook.producers")


class NothingReleased(AnswerNo):
    """The ledger let none of an optimizer step's rows through."""


class Session:
    """The training's thread calls it. In gate mode it waits for the ledger and raises; in observe mode it does neither,
    and after a failure of its own it does nothing at all."""

    def __init__(self, run: LedgerRun, conditions: Conditions, initial: PolicyRef) -> None:
        self._run = run
        self._conditions = conditions
        self._observes = run.enforcement is Enforcement.OBSERVE
        self.policy = initial
        self.rollout_id = 0
        self._generation: Generation | None = None
        self._update_id = ""
        self._refused: frozenset[str] = frozenset()
        self._micro_steps: list[MicroStep] = []
        self._step_id = 0
        self._is_over = False
        self.seconds = 0.0
        self._books: Books | None = None
        self._watcher: Watcher | None = None
        if self._observes:
            self._watcher = Watcher(ObserveBooks(run, conditions, initial))
        else:
            self._books = GateBooks(run, conditions, initial)
            self._books.open()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is recorded."""
        return self._is_over

    @property
    def lost(self) -> int:
        """In observe mode: what was not told to the ledger."""
        return 0 if self._watcher is None else self._watcher.lost

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """In observe mode whatever goes wrong in the block ends the recording, and the training goes on."""
        began = time.perf_counter()
        try:
            yield
        except Exception:
            if not self._observes:
                raise
            self._is_over = True
            _LOG.warning("training goes on unrecorded from here on", exc_info=True)
        finally:
            self.seconds += time.perf_counter() - began

    def take(self, generation: Generation) -> tuple[int, ...]:
        """A generation buffer begins; the rows that must not be trained on."""
        self._generation, self._update_id = generation, new_id()
        self._refused, self._step_id, self._micro_steps = frozenset(), 0, []
        self.rollout_id += 1
        update_id = self._update_id
        if self._books is not None:
            self._refused = self._books.take(generation, update_id)
        self._tell(lambda books: books.take(generation, update_id))
        rows = enumerate(generation.rows)
        return tuple(index for index, row in rows if row.trajectory_id in self._refused)

    def forwarded(self, micro_step: MicroStep) -> None:
        """One micro-batch went through the loss."""
        self._micro_steps.append(micro_step)

    def stepping(self) -> None:
        """The optimizer is about to step. Raises NothingReleased where it would step on nothing."""
        generation = self._generation
        if generation is None or not self._micro_steps:
            return
        named = [generation.rows[index].trajectory_id for micro in self._micro_steps for index in micro.rows]
        ids = tuple(one for one in dict.fromkeys(named) if one not in self._refused)
        if not ids:
            raise NothingReleased(
                f"step {self._step_id} of update {self._update_id}: the ledger refused all of its rows; see `rollbook "
                "explain` on one of them, and start anew from the last checkpoint"
            )
        if self._books is not None:
            self._books.stepping(ids)
        self._tell(lambda books: books.stepping(ids))

    def stepped(self) -> None:
        """It has stepped."""
        generation = self._generation
        if generation is None or not self._micro_steps:
            return
        micro_steps, self._micro_steps = tuple(self._micro_steps), []
        steps_a_pass = max(1, len(generation.rows) // sum(len(micro.rows) for micro in micro_steps))
        step = StepFacts(
            step_id=self._step_id,
            epoch=self._step_id // steps_a_pass,
            update_id=self._update_id,
            generation=generation,
            micro_steps=micro_steps,
            refused=self._refused,
            conditions=self._conditions,
        )
        self._step_id += 1
        if self._books is not None:
            self._books.stepped(step)
        self._tell(lambda books: books.stepped(step))
        self._show(step)

    @property
    def is_open(self) -> bool:
        """Whether an update is under way."""
        return self._generation is not None

    def finish(self, policy: PolicyRef) -> None:
        """The generation buffer is used up; these are the weights that it made."""
        if self._generation is None:
            return
        self._generation, self._micro_steps = None, []
        if self._books is not None:
            self._books.finish(policy)
        self._tell(lambda books: books.finish(policy))
        self.policy = policy

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

    def _tell(self, call: Call) -> None:
        if self._watcher is not None:
            self._watcher.tell(call)

    def _show(self, step: StepFacts) -> None:
        if self._run.on_step is None:
            return
        try:
            self._run.on_step(step)
        except Exception:  # it is the user's, and only looks on
            _LOG.warning("on_step failed at step %d of update %s", step.step_id, step.update_id, exc_info=True)
