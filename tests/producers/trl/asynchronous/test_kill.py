"""An asynchronous training that is killed within an optimizer step, and goes on."""

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import Settings
from rollbook.producers import new_id
from rollbook.producers.trl import LedgerRun
from rollbook.tests.producers.trl import processes
from rollbook.tests.producers.trl.asynchronous.dying import SHAPE, die
from rollbook.tests.producers.trl.asynchronous.small import on_cpu, train
from rollbook.tests.producers.trl.records import check_consistent
from rollbook.tests.producers.trl.tiny import fingerprint
from rollbook.tests.producers.world import PATIENT

__all__ = ["on_cpu"]


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
