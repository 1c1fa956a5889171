"""Trainings that die in a process of their own. What another process is to do is found by its name there: it cannot be
in a module that only the tests' runner imports."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollbook.producers.trl import LedgerRun
from rollbook.tests.producers.trl.tiny import Shape, make

SHAPE = Shape(options={"save_strategy": "steps", "save_steps": 5})
"""Four optimizer steps a buffer, four rows a step: the checkpoint after step 5 lies within the second buffer, of whose
eight rows it has seen four."""
OFTEN = Shape(steps=32, options={"save_strategy": "steps", "save_steps": 1})


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(folder: Path, run: LedgerRun, step: int, die: Callable[[], None] = kill) -> None:
    """Train, and die in the middle of the optimizer step after this one."""
    trainer = make(folder, SHAPE, run)
    compute = trainer._compute_loss

    def computed(model: Any, inputs: Any) -> Any:
        if trainer.state.global_step == step:
            die()
        return compute(model, inputs)

    trainer._compute_loss = computed
    trainer.train()


def die_after(folder: Path, run: LedgerRun, seconds: float) -> None:
    """Train in steps of a seventh of a second, go on where a checkpoint is, and be killed so long after it began."""
    is_resumed = any(folder.glob("checkpoint-*"))
    trainer = make(folder, OFTEN, run)
    compute, begin = trainer._compute_loss, trainer.ledger_begin

    def computed(model: Any, inputs: Any) -> Any:
        time.sleep(0.07)
        return compute(model, inputs)

    def begun() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        begin()

    trainer._compute_loss, trainer.ledger_begin = computed, begun
    trainer.train(resume_from_checkpoint=True if is_resumed else None)
