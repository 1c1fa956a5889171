"""The seam: `class Trainer(AsyncLedgerMixin, AsyncGRPOTrainer)`. It looks on at TRL's queue, packer, forward pass,
optimizer step and weight sync, and changes what none of them computes; only what the ledger refuses leaves the loss."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rollbook.producers.trl.asynchronous.forward import Watched
from rollbook.producers.trl.asynchronous.reading import arrival_of, conditions_of
from rollbook.producers.trl.asynchronous.session import AsyncSession
from rollbook.producers.trl.asynchronous.taps import Packer, Queue
from rollbook.producers.trl.callback import Callback
from rollbook.producers.trl.guard import Guarded
from rollbook.producers.trl.reading import checkpoint_folder, policy_of, resumed_folder
from rollbook.producers.trl.resuming import resumed_from
from rollbook.producers.trl.run import LedgerRun, checked
from rollbook.producers.trl.session import NothingReleased
from rollbook.schemas.errors import BadInput, RollbookError
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.run import Enforcement

if TYPE_CHECKING:

    class _Trainer:
        """What the mixin calls of AsyncGRPOTrainer."""

        model: Any
        args: Any
        accelerator: Any
        rollout_queue: Any
        eos_token_ids: list[int]
        model_version: int
        current_gradient_accumulation_steps: int

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def add_callback(self, callback: Any) -> None: ...
        def train(self, *args: Any, **kwargs: Any) -> Any: ...
        def get_train_dataloader(self) -> Any: ...
        def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> tuple[list[Any], Any]: ...
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any: ...
        def _sync_weight(self) -> None: ...
        def _save_checkpoint(self, model: Any, trial: Any) -> None: ...
else:
    _Trainer = object

_BATCH = "rollbook_batch"
_LOG = logging.getLogger("rollbook.producers")


class AsyncLedgerMixin(Guarded[AsyncSession], _Trainer):
    """`Trainer(..., ledger=LedgerRun(settings, "run-1"))`. One process."""

    def __init__(self, *args: Any, ledger: LedgerRun, **kwargs: Any) -> None:
        self._ledger_run = checked(ledger)
        super().__init__(*args, **kwargs)
        self._ledger: AsyncSession | None = None
        self._ledger_resumes: Any = None
        self._ledger_begins = False
        self._ledger_packer: Packer | None = None
        self.add_callback(_Steps(self))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self._ledger = None
        self._ledger_begins = True
        self._ledger_resumes = kwargs.get("resume_from_checkpoint", args[0] if args else None)
        try:
            result = super().train(*args, **kwargs)
        except BaseException as error:
            if self._ledger is not None:
                self._ledger.close(error)
            raise
        if self._ledger is not None:
            self._ledger.close(None)
        return result

    def _sync_weight(self) -> None:
        """TRL calls it before the rollout worker starts, and after every `weight_sync_steps` optimizer steps."""
        policy: PolicyRef | None = None
        if self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.stepped()  # TRL's callback for the sync comes before ours for the step
                policy = self._ledger_policy(self.model_version + 1)
                self._ledger_now.preparing(policy)
        super()._sync_weight()
        if self._ledger_begins:
            self._ledger_begins = False
            self._ledger_begin()
        elif policy is not None and self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.activated(policy)

    def get_train_dataloader(self) -> Any:
        queue, self.rollout_queue = self.rollout_queue, Queue(self.rollout_queue, self._ledger_arrived)
        try:
            loader = super().get_train_dataloader()
        finally:
            self.rollout_queue = queue
        inner = getattr(loader, "base_dataloader", loader)
        packer = self._ledger_packer = Packer(inner.collate_fn, self._ledger_formed, _BATCH)
        inner.collate_fn = packer
        return loader

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> tuple[list[Any], Any]:
        """TRL's micro-batches of one optimizer step, without the rows that the ledger does not give."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if self._ledger_records and all(_BATCH in batch for batch in batches):
            with self._ledger_guard():
                batches = self._ledger_taken(batches)
        return batches, items

    def compute_loss(self, model: Any, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        if not (self._ledger_records and self.model.training and _BATCH in inputs):
            return super().compute_loss(model, inputs, *args, **kwargs)
        watched = Watched(self._ledger_now, int(inputs[_BATCH][0]), model, inputs)
        loss = super().compute_loss(watched, watched.inputs, *args, **kwargs)
        if self._ledger_records:
            with self._ledger_guard():
                watched.done(loss, int(self.current_gradient_accumulation_steps))
        return loss

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.saved(checkpoint_folder(self, trial), policy_of(self))

    def ledger_stepping(self) -> None:
        """Before each optimizer step; the callback calls it."""
        if not self._ledger_records:
            return
        with self._ledger_guard():
            if self._ledger_now.stepping():
                return
            if self.accelerator.scaler is not None:
                raise NothingReleased(
                    "the ledger refused all rows of an optimizer step, which a gradient scaler cannot leave out: see "
                    "`rollbook explain` on one of them, and train in bfloat16 or float32"
                )
            # Without gradients the optimizer changes neither weights nor moments, which zero gradients would.
            _LOG.warning("the ledger refused all rows of an optimizer step: it changes nothing")
            for parameter in self.model.parameters():
                parameter.grad = None

    def ledger_stepped(self) -> None:
        """After each optimizer step; the callback calls it."""
        if self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.stepped()

    def _ledger_policy(self, version: int) -> PolicyRef:
        return policy_of(self).model_copy(update={"version": version})

    def _ledger_begin(self) -> None:
        """After the first weight sync: the run's initial policy is what the rollout worker starts with."""
        run, count = self._ledger_run, int(self.accelerator.num_processes)
        if count > 1:
            problem = f"the training has {count} processes: the asynchronous mixin knows one"
            if run.enforcement is Enforcement.GATE:
                raise BadInput(problem)
            _LOG.warning("training goes on unrecorded: %s", problem)
            return
        try:
            self._ledger = self._ledger_session()
        except Exception as error:
            if run.enforcement is Enforcement.GATE:
                raise
            known = isinstance(error, RollbookError)
            _LOG.warning("training goes on unrecorded: %s", error, exc_info=not known)

    def _ledger_session(self) -> AsyncSession:
        run, weights, resumed = self._ledger_run, policy_of(self), None
        if self._ledger_resumes:
            resumed = resumed_from(resumed_folder(self, self._ledger_resumes), run, weights)
        kept = int(self.args.max_staleness)
        if run.enforcement is Enforcement.GATE and run.max_lag < kept:
            _LOG.warning(
                "TRL keeps rows that are %d versions behind, the ledger takes %d: rows in between leave gaps in "
                "micro-batches; give max_staleness and max_lag the same number",
                kept,
                run.max_lag,
            )
        initial = weights.model_copy(update={"version": self.model_version})
        return AsyncSession(run, conditions_of(self), initial, kept, resumed)

    def _ledger_arrived(self, sample: Any) -> None:
        """A sample left the queue: TRL has not looked at its version yet."""
        if self._ledger_records:
            with self._ledger_guard():
                self._ledger_now.intake.arrived(
                    sample.input_ids,
                    sample.group_id,
                    lambda identity, number: arrival_of(sample, identity, number, self.eos_token_ids),
                )

    def _ledger_formed(self, samples: Sequence[Mapping[str, Any]]) -> int | None:
        """The packer was given these samples as one micro-batch; the number to know it by."""
        number: int | None = None
        if self._ledger_records:
            with self._ledger_guard():
                number = self._ledger_now.formed([one["input_ids"] for one in samples])
        return number

    def _ledger_taken(self, batches: list[Any]) -> list[Any]:
        session, packer = self._ledger_now, self._ledger_packer
        numbers = [int(batch[_BATCH][0]) for batch in batches]
        left_out = session.begin(numbers)
        assert packer is not None, "the micro-batches come from it"
        found = self._ledger_without(left_out, numbers, batches) if left_out else batches
        packer.forget(numbers)
        return found

    def _ledger_without(self, left_out: frozenset[str], numbers: Sequence[int], batches: Sequence[Any]) -> list[Any]:
        session, packer = self._ledger_now, self._ledger_packer
        assert packer is not None
        found = []
        for number, batch in zip(numbers, batches, strict=True):
            rows = session.rows(number)
            kept = [place for place, one in enumerate(rows) if one is None or one.trajectory_id not in left_out]
            # Of a micro-batch of which nothing is left TRL could form no loss: it stays, and is masked after its
            # forward pass.
            if any(rows[place] is not None for place in kept) and len(kept) < len(rows):
                session.packed_again(number, [rows[place] for place in kept])
                again = packer.without(number, kept)
                batch = {name: value.to(batch[_BATCH].device) for name, value in again.items()}
            found.append(batch)
        return found


class _Steps(Callback):
    def __init__(self, trainer: AsyncLedgerMixin) -> None:
        self._trainer = trainer

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._trainer.ledger_stepping()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._trainer.ledger_stepped()
