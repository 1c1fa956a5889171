"""The engine against TRL's own code on random tensors: each combination of loss, level, scaling, importance correction,
two-sided clip, KL term, entropy mask, off-policy mask and entropy bonus; losses, advantages and gradients.

A share of the table; all of it with ROLLBOOK_TRL_ALL (minutes).
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import Producer
from rollbook.replay.bundle.reading.cohort import read_cohort
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.capture import Recorded
from rollbook.replay.capture.recorded import writer_of
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.stages import conventional
from rollbook.replay.stages.batch import Chain, batch_of
from rollbook.replay.stages.table import TOKEN_PAYLOADS

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")
from rollbook.tests.replay.goldens import trl
from rollbook.tests.replay.goldens.tally import failures
from rollbook.tests.replay.goldens.trlasync import async_step
from rollbook.tests.replay.goldens.trlrun import Run, Step
from rollbook.tests.replay.goldens.trlsource import LOSSES, Choice, Source, async_call, choices

TABLE = list(choices())
EVERY = 1 if os.environ.get("ROLLBOOK_TRL_ALL") else 97
SHARE = list(enumerate(TABLE))[::EVERY]
PRODUCER = Producer(commit="trl-1.16.0", dirty_patch_digest="", torch_version="")
Floats = NDArray[np.float64]


def test_the_table_is_whole() -> None:
    assert len(TABLE) == len(set(TABLE)) == 10944
    seen = Counter(part for _, choice in SHARE for part in parts(choice))
    assert seen.keys() == {part for choice in TABLE for part in parts(choice)}


def parts(choice: Choice) -> Iterator[tuple[str, object]]:
    yield from ((name, getattr(choice, name)) for name in choice.__dataclass_fields__)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_engine_gives_what_trl_gives(tmp_path: Path, loss: str) -> None:
    source = Source.of(tmp_path / "trainer")
    failed: list[str] = []
    chosen = [(seed, choice) for seed, choice in SHARE if choice.loss_type == loss]
    assert len(chosen) > 5
    for seed, choice in chosen:
        run = Run(source.document(choice, seed))
        steps = list(run.optimizer_steps())
        step = steps[seed % len(steps)]
        found = list(differences(step, gradients(run, step), tmp_path / str(seed)))
        failed += [f"{seed} {choice}: {one}" for one in found]
        shutil.rmtree(tmp_path / str(seed))
    assert failed == []


def test_the_goldens_adapters_give_what_trl_gives(tmp_path: Path) -> None:
    """Of options that no recorded run has."""
    source = Source.of(tmp_path / "trainer")
    done: Counter[str] = Counter()
    for seed, choice in list(enumerate(TABLE))[::701]:
        for raw in trl.cases(source.document(choice, seed)):
            assert failures(raw, trl.ADAPTERS[raw["function"]]) == [], (seed, choice)
            done[raw["function"]] += 1
    assert done.keys() == {"advantages", "importance_sampling_ratio", *(f"compute_loss.{name}" for name in LOSSES)}


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_engine_gives_what_the_asynchronous_trainer_gives(
    tmp_path: Path, accumulation: int, world_size: int
) -> None:
    random = np.random.default_rng(11)
    for seed in range(8):
        raws = [async_call(random, accumulation, world_size) for _ in range(accumulation)]
        step = async_step(raws, seed)
        gradient = np.concatenate([np.asarray(raw["outputs"]["grad_log_probs"]) for raw in raws])
        expected = {"log_probs": gradient, "entropy": np.zeros_like(gradient)}
        assert list(differences(step, expected, tmp_path / str(seed))) == []


def gradients(run: Run, step: Recorded) -> Mapping[str, Floats]:
    """What TRL's backward pass left, of the step's tokens without padding."""
    micros = [micro for micro in run.document["micro_steps"] if micro["global_step"] == step.step_id]
    parts = Step(run.generations[0], tuple(micros), run.params, 0, "")
    return {"log_probs": parts.of_micros("grad_per_token_logps"), "entropy": parts.of_micros("grad_entropies")}


def differences(step: Recorded, expected: Mapping[str, Floats], folder: Path) -> Iterator[str]:
    writer_of(step, folder, producer=PRODUCER, rank=0, attempt="", redactor=Redactor()).finalize()
    cohort = read_cohort(folder / step.bundle_id)
    report = replay_cohort(cohort)
    if report.verdict != "pass":
        outcomes = [(stage.stage.value, stage.outcome.value, stage.reason) for stage in report.ranks[0].stages]
        yield f"{report.verdict.value} {report.first_divergence} {outcomes}"
    for name, actual in backward(cohort.bundles[0]).items():
        off = np.abs(actual - expected[name])
        if (off > 1e-6 + 1e-5 * np.abs(expected[name])).any():
            yield f"gradient of {name} off by {off.max():.3g}"


def backward(bundle: Bundle) -> Mapping[str, Floats]:
    """The engine's own gradients, through torch."""
    batch = batch_of(bundle, None, TOKEN_PAYLOADS, torch)
    names = ("log_probs", "entropy")
    leaves: dict[str, Any] = {name: batch.tensors[name].clone().requires_grad_() for name in names}
    chain = Chain(replace(batch, tensors={**batch.tensors, **leaves}))
    conventional.policy_terms(chain)["loss"].backward()
    return {
        name: (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).numpy().astype(np.float64)
        for name, leaf in leaves.items()
    }
