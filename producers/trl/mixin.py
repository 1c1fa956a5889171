"""The seam: `class Trainer(LedgerMixin, GRPOTrainer)`. It looks on at five of TRL's methods and changes what none of
them computes; only where the ledger refuses a row does that row leave the loss."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from rollbook.producers.trl.reading import (
    Generated,
    conditions_of,
    generation_of,
    micro_step_of,
    policy_of,
    row_numbers,
    without,
)
from rollbook.producers.trl.run import LedgerRun
from rollbook.producers.trl.session import Session
from rollbook.schemas.errors import BadInput

if TYPE_CHECKING:

    class _Trainer:
        """What the mixin calls of GRPOTrainer."""

        model: Any
        args: Any
        accelerator: Any
        num_iterations: int
        current_gradient_accumulation_steps: int
        _step: int

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def add_callback(self, callback: Any) -> None: ...
        def train(self, *args: Any, **kwargs: Any) -> Any: ...
        def _generate(self, prompts: list[Any]) -> tuple[Any, ...]: ...
        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any: ...
        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]: ...
        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any: ...
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any: ...
else:
    _Trainer = object

_ROW = "rollbook_row"
_LOG = logging.getLogger("rollbook.producers")


class LedgerMixin(_Trainer):
    """`Trainer(..., ledger=LedgerRun(settings, "run-1"))`. One process; a training that is resumed is not recorded (in
    gate mode: refused), nor is evaluation."""

    def __init__(self, *args: Any, ledger: LedgerRun, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ledger_run = ledger
        self._ledger: Session | None = None
        self._ledger_generated: Generated | None = None
        self._ledger_rewards: Any = None
        self._ledger_forward: Any = None
        self._ledger_in_loss = False
        self.add_callback(_Steps(self))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self._ledger = self._ledger_session(bool(args[:1] and args[0]) or bool(kwargs.get("resume_from_checkpoint")))
        try:
            result = super().train(*args, **kwargs)
            with self._ledger_guard():
                self._ledger_finish()  # max_steps may end within a generation buffer
        except BaseException as error:
            if self._ledger is not None:
                self._ledger.close(error)
            raise
        if self._ledger is not None:
            self._ledger.close(None)
        return result

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        found = super()._generate(prompts)
        self._ledger_generated = Generated(found[0], found[1], found[2])
        return found

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        self._ledger_rewards = super()._calculate_rewards(*args, **kwargs)
        return self._ledger_rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if self._ledger_records and self.model.training:
            with self._ledger_guard():
                output = self._ledger_take(inputs, output)
        return output

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._ledger_in_loss:
            self._ledger_forward = found
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self._ledger_in_loss = True
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            self._ledger_in_loss = False
        forward, self._ledger_forward = self._ledger_forward, None
        if self._ledger_records and self.model.training and _ROW in inputs:
            with self._ledger_guard():
                self._ledger_forwarded(inputs, forward, loss)
        return loss

    def ledger_stepping(self) -> None:
        """Before each optimizer step; the callback calls it."""
        if self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.stepping()

    def ledger_stepped(self) -> None:
        """After each optimizer step; the callback calls it."""
        if self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.stepped()
                if self._step % (self.args.steps_per_generation * self.num_iterations) == 0:
                    self._ledger_finish()

    @property
    def ledger_lost(self) -> int:
        """In observe mode: how many calls were not told to the ledger."""
        return 0 if self._ledger is None else self._ledger.lost

    def _ledger_session(self, is_resumed: bool) -> Session | None:
        run = self._ledger_run
        problem = ""
        if self.accelerator.num_processes > 1:
            problem = f"the training has {self.accelerator.num_processes} processes: the ledger's mixin knows one"
        elif is_resumed:
            problem = "the training is resumed from a checkpoint that the ledger knows nothing of: begin a run anew"
        if not problem:
            return Session(run, conditions_of(self), policy_of(self))
        if run.enforcement.value == "gate":
            raise BadInput(problem)
        _LOG.warning("training goes on unrecorded: %s", problem)
        return None

    @property
    def _ledger_records(self) -> bool:
        return self._ledger is not None and not self._ledger.is_over

    @property
    def _ledger_now(self) -> Session:
        assert self._ledger is not None, "asked only where something records"
        return self._ledger

    def _ledger_guard(self) -> AbstractContextManager[None]:
        return nullcontext() if self._ledger is None else self._ledger.guarded()

    @property
    def ledger_seconds(self) -> float:
        """Seconds of the training's own thread that the ledger took after the start: reading tensors, hashing weights
        and, in gate mode, waiting for decisions."""
        return 0.0 if self._ledger is None else self._ledger.seconds

    def _ledger_take(self, inputs: Sequence[Mapping[str, Any]], output: dict[str, Any]) -> dict[str, Any]:
        session, generated = self._ledger_now, self._ledger_generated
        assert generated is not None, "TRL generates before it scores"
        self._ledger_finish()
        generation = generation_of(
            self, session.rollout_id, session.policy, inputs, generated, self._ledger_rewards, output
        )
        refused = session.take(generation)
        if refused:
            output = without(output, refused)
        return {**output, _ROW: row_numbers(output)}

    def _ledger_forwarded(self, inputs: Mapping[str, Any], forward: Any, loss: Any) -> None:
        log_probs, entropies, _ = forward
        accumulated = int(self.current_gradient_accumulation_steps)
        self._ledger_now.forwarded(micro_step_of(inputs[_ROW], log_probs, entropies, loss, accumulated))

    def _ledger_finish(self) -> None:
        if self._ledger is not None and not self._ledger.is_over and self._ledger.is_open:
            self._ledger.finish(policy_of(self))


class _Steps:
    """A callback by TRL's protocol: its base class would need transformers to be imported here."""

    def __init__(self, trainer: LedgerMixin) -> None:
        self._trainer = trainer

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._trainer.ledger_stepping()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._trainer.ledger_stepped()

    def __getattr__(self, event: str) -> Any:
        if not event.startswith("on_"):
            raise AttributeError(event)
        return _ignore


def _ignore(*_: Any, **__: Any) -> None:
    return None
