"""What processes of a training do in tests, with results that can be sent back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rollbook.infra.settings import Settings
from rollbook.producers import Options, Trainer, current_epoch
from rollbook.producers.trl import LedgerRun, StepFacts
from rollbook.schemas.digests import FloatArray, IntArray
from rollbook.schemas.records.run import Enforcement
from rollbook.tests.producers.trl.sampler import Sampler, masking
from rollbook.tests.producers.trl.tiny import Shape, fingerprint, make
from rollbook.tests.producers.world import PATIENT


@dataclass(frozen=True)
class Loss:
    """A call of TRL's loss, as TRL has it: [B, longest] arrays, [B] advantages."""

    loss: float
    response_ids: IntArray
    mask: IntArray
    log_probs: FloatArray
    advantages: FloatArray


@dataclass(frozen=True)
class Training:
    """One training of several in the same processes; no run: plain TRL."""

    shape: Shape
    run_id: str = ""
    enforcement: Enforcement = Enforcement.GATE
    options: Options = PATIENT
    settings: Settings | None = None
    """Where the ledger is, if not where the test's is."""
    limits: dict[str, Any] = field(default_factory=dict)
    resumes: str = ""
    """The checkpoint it goes on from, `NAME/checkpoint-STEP` of an earlier training."""
    sampler: Sampler | None = None
    masked: tuple[int, ...] = ()
    """Rows of each buffer that plain TRL leaves out of its loss."""
    is_taken_over: bool = False
    """Whether another process starts the learner anew while the last optimizer step is made."""


@dataclass(frozen=True)
class Trained:
    weights: str
    losses: tuple[Loss, ...]
    seen: tuple[StepFacts, ...]
    lost: int
    error: str


def trainings(folder: Path, settings: Settings, wanted: Mapping[str, Training]) -> dict[str, Trained]:
    return {name: _trained(folder, name, settings, one) for name, one in wanted.items()}


def _trained(folder: Path, name: str, settings: Settings, wanted: Training) -> Trained:
    seen: list[StepFacts] = []
    run = LedgerRun(
        wanted.settings or settings,
        wanted.run_id,
        enforcement=wanted.enforcement,
        options=wanted.options,
        on_step=seen.append,
        **wanted.limits,
    )
    changed = {} if wanted.sampler is None else {"rollout_func": wanted.sampler}
    trainer = make(folder / name, wanted.shape, run if wanted.run_id else None, **changed)
    if wanted.masked:
        masking(trainer, wanted.masked)
    losses = watch(trainer)
    if wanted.is_taken_over and trainer.accelerator.is_main_process:
        _take_over(trainer, run, at=wanted.shape.steps - 1)
    error = ""
    try:
        trainer.train(resume_from_checkpoint=str(folder / wanted.resumes) if wanted.resumes else None)
    except Exception as found:
        error = f"{type(found).__name__}: {found}"
    return Trained(fingerprint(trainer), tuple(losses), tuple(seen), getattr(trainer, "ledger_lost", 0), error)


def _take_over(trainer: Any, run: LedgerRun, *, at: int) -> None:
    compute = trainer._compute_loss

    def computed(model: Any, inputs: Any) -> Any:
        if trainer.state.global_step == at and not taken:
            taken.append(True)
            with Trainer(run.settings, run.run_id, run.learner_id, options=PATIENT) as another:
                another.start(expected_epoch=current_epoch(run.settings, run.run_id, run.learner_id))
        return compute(model, inputs)

    taken: list[bool] = []
    trainer._compute_loss = computed


def watch(trainer: Any) -> list[Loss]:
    """Every call of the loss from now on."""
    losses: list[Loss] = []
    forward, compute = trainer._get_per_token_logps_and_entropies, trainer._compute_loss
    last: list[Any] = []

    def forwarded(*args: Any, **kwargs: Any) -> Any:
        found = forward(*args, **kwargs)
        last[:] = [found[0]]
        return found

    def computed(model: Any, inputs: Any) -> Any:
        loss = compute(model, inputs)
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        arrays = (inputs["completion_ids"], mask, last[0], inputs["advantages"])
        losses.append(Loss(float(loss.detach()), *(np.array(one.detach()) for one in arrays)))
        return loss

    trainer._get_per_token_logps_and_entropies, trainer._compute_loss = forwarded, computed
    return losses
