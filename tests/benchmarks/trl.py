"""What the ledger costs a training with TRL: the same training plain, observed and gated, in turn, in one run.

`python -m rollbook.tests.benchmarks.trl --rounds 3`. Counted is the time from the beginning of the first optimizer step
to the end of the last, generation included, and not the connecting before it.
"""

import argparse
import importlib
import runpy
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from rollbook.infra.settings import Settings
from rollbook.producers import new_id
from rollbook.producers.trl import LedgerMixin, LedgerRun
from rollbook.schemas.records.run import Enforcement

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "trl_grpo.py"
PLAIN = "plain"
KINDS = (PLAIN, *(kind.value for kind in Enforcement))


class Stopwatch:
    """A callback by TRL's protocol: it stops the time between the first step and the last."""

    def __init__(self) -> None:
        self._began: float | None = None
        self.seconds = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = self._began or time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        assert self._began is not None, "a step ends that has begun"
        self.seconds = time.perf_counter() - self._began

    def __getattr__(self, event: str) -> Any:
        if not event.startswith("on_"):
            raise AttributeError(event)
        return lambda *_, **__: None


def seconds(example: dict[str, Any], settings: Settings, kind: str) -> float:
    plain: Any = importlib.import_module("trl").GRPOTrainer
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {
            "model": example["model"](),
            "processing_class": example["tokenizer"](),
            "reward_funcs": example["vowels"],
            "args": example["arguments"](folder),
            "train_dataset": example["prompts"](),
            "callbacks": [watch],
        }
        if kind == PLAIN:
            trainer = plain(**given)
        else:
            learner = type("Learner", (LedgerMixin, plain), {})
            run = LedgerRun(settings, f"trl-{new_id()}", enforcement=Enforcement(kind))
            trainer = learner(**given, ledger=run)
        trainer.train()
    return watch.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    importlib.import_module("torch").set_num_threads(1)
    example = runpy.run_path(str(EXAMPLE))
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with example["cluster"]() as settings:
        for number in range(rounds):
            for kind in KINDS[number % 3 :] + KINDS[: number % 3]:
                taken[kind].append(seconds(example, settings, kind))
    plain = statistics.median(taken[PLAIN])
    print("| training | seconds (median) | of plain |")
    print("|---|---|---|")
    for kind, found in taken.items():
        print(f"| {kind} | {statistics.median(found):.1f} | {statistics.median(found) / plain:.3f} |")


if __name__ == "__main__":
    main()
