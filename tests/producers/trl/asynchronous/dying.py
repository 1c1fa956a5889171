"""An asynchronous training that dies in a process of its own."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rollbook.producers.trl import LedgerRun
from rollbook.tests.producers.trl.asynchronous.small import LedgerTrainer, Shape, stand_in, train

SHAPE = Shape(options={"save_strategy": "steps", "save_steps": 2})


class DyingTrainer(LedgerTrainer):
    """Is killed after the first forward pass of its fourth optimizer step."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        if self.state.global_step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return loss


def die(folder: Path, run: LedgerRun) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        train(folder, SHAPE, run, DyingTrainer)
