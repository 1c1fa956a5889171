"""An asynchronous training that is killed within an optimizer step, and goes on."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import Settings
from rollbook.producers import new_id
from rollbook.producers.trl import LedgerRun
from rollbook.tests.producers.trl import processes
from rollbook.tests.producers.trl.asynchronous.small import LedgerTrainer, Shape, on_cpu, stand_in, train
from rollbook.tests.producers.trl.records import check_consistent
from rollbook.tests.producers.trl.tiny import fingerprint
from rollbook.tests.producers.world import PATIENT

__all__ = ["on_cpu"]
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


@pytest.mark.skipif(not os.environ.get("ROLLBOOK_TRL_ALL"), reason="slow: a process that imports TRL by itself")
def test_a_killed_training_goes_on_in_the_same_run(on_cpu: None, processed: Settings, tmp_path: Path) -> None:
    train(tmp_path / "plain", SHAPE)
    plain = train(tmp_path / "plain", SHAPE, resume=str(tmp_path / "plain/out/checkpoint-2"))
    run, folder = LedgerRun(processed, f"trl-{new_id()}", max_lag=4, options=PATIENT), tmp_path / "with"
    (process,), _ = processes.start(1, die, folder, run)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    second = train(folder, SHAPE, run, resume=str(folder / "out/checkpoint-2"))
    assert fingerprint(second) == fingerprint(plain)
    check_consistent(processed, run.run_id)
