"""The seam: `class Trainer(LedgerMixin, GRPOTrainer)`. It looks on at five of TRL's methods and changes what none of
them computes; only where the ledger refuses a row does that row leave the loss."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rollbook.producers.trl.callback import Callback
from rollbook.producers.trl.guard import Guarded
from rollbook.producers.trl.process import Process
from rollbook.producers.trl.ranks import Alone, GlooWire, Ranks, Several
from rollbook.producers.trl.reading import (
    Generated,
    checkpoint_folder,
    completions_of,
    conditions_of,
    entropy_coef_of,
    micro_step_of,
    policy_of,
    resumed_folder,
    row_numbers,
    unfit,
    without,
)
from rollbook.producers.trl.resuming import resumed_from
from rollbook.producers.trl.run import LedgerRun, checked
from rollbook.producers.trl.session import Session
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.run import Enforcement

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
        def _save_checkpoint(self, model: Any, trial: Any) -> None: ...
else:
    _Trainer = object

_ROW = "rollbook_row"
_LOG = logging.getLogger("rollbook.producers")


class LedgerMixin(Guarded[Process], _Trainer):
    """`Trainer(..., ledger=LedgerRun(settings, "run-1"))`, in each process of the training. The main one alone speaks
    with the ledger. Evaluation is not recorded."""

    def __init__(self, *args: Any, ledger: LedgerRun, **kwargs: Any) -> None:
        self._ledger_run = checked(ledger)
        super().__init__(*args, **kwargs)
        self._ledger: Process | None = None
        self.ledger_opening_seconds = 0.0
        self._ledger_resumes: Any = None
        self._ledger_generated: Generated | None = None
        self._ledger_rewards: Any = None
        self._ledger_forward: Any = None
        self._ledger_in_loss = False
        self.add_callback(_Steps(self))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self._ledger = None
        self._ledger_resumes = kwargs.get("resume_from_checkpoint", args[0] if args else None)
        try:
            result = super().train(*args, **kwargs)
            with self._ledger_guard():
                self._ledger_finish()  # max_steps may end within a generation buffer
                self._ledger_settle()
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
        entropy_coef = 0.0
        if self._ledger_records:
            with self._ledger_guard():
                entropy_coef = entropy_coef_of(self)
        self._ledger_in_loss = True
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            self._ledger_in_loss = False
        forward, self._ledger_forward = self._ledger_forward, None
        if self._ledger_records and self.model.training and _ROW in inputs:
            log_probs, entropies, _ = forward
            accumulated = int(self.current_gradient_accumulation_steps)
            with self._ledger_guard():
                self._ledger_now.forwarded(
                    lambda: micro_step_of(inputs[_ROW], log_probs, entropies, loss, accumulated, entropy_coef)
                )
        return loss

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.before_saving()
        super()._save_checkpoint(model, trial)
        if self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.saved(checkpoint_folder(self, trial), lambda: policy_of(self))

    def ledger_begin(self) -> None:
        """When the weights are those that the training begins with; the callback calls it."""
        run = self._ledger_run
        problem = unfit(self)
        if problem:
            if run.enforcement is Enforcement.GATE:
                raise BadInput(problem)
            _LOG.warning("training goes on unrecorded: %s", problem)
            return
        observes = run.enforcement is Enforcement.OBSERVE
        try:
            process = self._ledger = Process(self._ledger_ranks(), observes=observes)
        except Exception:
            if not observes:
                raise
            _LOG.warning("training goes on unrecorded: its processes cannot speak with one another", exc_info=True)
            return
        with process.guarded():
            process.begin(self._ledger_session)
        self.ledger_opening_seconds, process.seconds = process.seconds, 0.0

    def ledger_stepping(self) -> None:
        """Before each optimizer step; the callback calls it."""
        if self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.stepping()

    def ledger_stepped(self, is_last: bool) -> None:
        """After each optimizer step; the callback calls it."""
        if self._ledger_records:
            is_used_up = is_last or self._step % (self.args.steps_per_generation * self.num_iterations) == 0
            with self._ledger_guard():
                self._ledger_now.stepped((lambda: policy_of(self)) if is_used_up else None)

    def ledger_epoch_ended(self, is_last: bool) -> None:
        """The callback calls it. An evaluation may have ended the training within a generation buffer, and TRL may
        load the best of its checkpoints now: those are not the weights that the buffer made."""
        if is_last:
            with self._ledger_guard():
                self._ledger_finish()

    def _ledger_session(self) -> Session:
        run, weights, resumed = self._ledger_run, policy_of(self), None
        if self._ledger_resumes:
            resumed = resumed_from(resumed_folder(self, self._ledger_resumes), run, weights)
        return Session(run, conditions_of(self), weights, resumed)

    def _ledger_ranks(self) -> Ranks:
        return Several(GlooWire()) if self.accelerator.num_processes > 1 else Alone()

    def _ledger_take(self, inputs: Sequence[Mapping[str, Any]], output: dict[str, Any]) -> dict[str, Any]:
        process, generated, count = self._ledger_now, self._ledger_generated, len(inputs)
        assert generated is not None, "TRL generates before it scores"
        self._ledger_finish()
        taken = process.take(
            lambda: completions_of(self, inputs, generated, self._ledger_rewards, output),
            float(output["num_items_in_batch"]),
            int(self.args.steps_per_generation),
        )
        if taken.refused:
            output = without(output, process.mine(taken.refused, count), taken.tokens)
        return {**output, _ROW: row_numbers(output, process.first_row(count))}

    def _ledger_settle(self) -> None:
        if self._ledger_records:
            self._ledger_now.settle()

    def _ledger_finish(self) -> None:
        if self._ledger_records:
            self._ledger_now.finish(lambda: policy_of(self))


class _Steps(Callback):
    def __init__(self, trainer: LedgerMixin) -> None:
        self._trainer = trainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._trainer.ledger_begin()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._trainer.ledger_stepping()

    def on_step_end(self, _: Any, __: Any, control: Any, **___: Any) -> None:
        self._trainer.ledger_stepped(bool(control.should_training_stop))

    def on_epoch_end(self, _: Any, __: Any, control: Any, **___: Any) -> None:
        self._trainer.ledger_epoch_ended(bool(control.should_training_stop))
