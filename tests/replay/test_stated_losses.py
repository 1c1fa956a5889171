"""What a bundle states of a loss beside its name: absent it is not there, byte for byte; what cannot be computed of it
is unsupported by name, never guessed."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rollbook.replay.bundle.convention import Conventions
from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome, StageResult
from rollbook.replay.engine.selection import Selection
from rollbook.tests.replay.goldens.trlrun import Run
from rollbook.tests.replay.reseal import Json, edit_bundle
from rollbook.tests.replay.test_trl_runs import run_of, written

ADDED = {
    "kl_term", "delta", "entropy_mean", "top_entropy_quantile", "off_policy_mask", "vespo", "micro_batch_tokens",
}  # fmt: skip


@pytest.fixture(scope="module")
def dapo() -> Run:
    return run_of("dapo-group")


def step(run: Run, folder: Path) -> Path:
    return written(run.optimizer_steps(), folder)[1]


def conventions(edit: Callable[[Json], object]) -> Callable[[Json], None]:
    def index(content: Json) -> None:
        edit(content["config"]["conventions"])

    return index


def loss(path: Path, selection: Selection | None = None) -> StageResult:
    assert validate(path).problems == ()
    (rank,) = replay_cohort(read_cohort(path), selection).ranks
    return next(result for result in rank.stages if result.stage is StageId.LOSS_POLICY)


def test_what_is_not_used_is_absent() -> None:
    assert not ADDED & Conventions().model_dump().keys()
    assert Conventions.model_fields.keys() >= ADDED
    assert ADDED <= Conventions.ADDED


@pytest.mark.parametrize("name", sorted(ADDED))
def test_a_key_is_absent_or_used(tmp_path: Path, dapo: Run, name: str) -> None:
    path = edit_bundle(
        step(dapo, tmp_path), tmp_path / "edited", index=conventions(lambda found: found.update({name: None}))
    )
    assert any("leave the key out" in str(problem) for problem in validate(path).problems)


MATTERS = [
    # what is stated otherwise than it was
    lambda found: found.pop("kl_term"),
    lambda found: found["kl_term"].update(by_ratio=False),
    lambda found: found["kl_term"].update(coef=0.05),
    lambda found: found["kl_term"].update(estimator="k1"),
    lambda found: found.update(top_entropy_quantile=0.5),
    lambda found: found.update(off_policy_mask={"threshold": -1.0}),
    lambda found: found.update(delta=0.9),
    lambda found: found.pop("entropy_mean"),
    lambda found: found["loss"].update(name="dapo of sequences"),
    lambda found: found["loss"].update(name="grpo"),
    lambda found: found["loss"].update(name="vespo"),
]


@pytest.mark.parametrize("edit", MATTERS)
def test_each_changes_the_loss(tmp_path: Path, dapo: Run, edit: Callable[[Json], object]) -> None:
    own = step(dapo, tmp_path)
    assert loss(own).outcome is Outcome.PASSED
    assert loss(edit_bundle(own, tmp_path / "edited", index=conventions(edit))).outcome is Outcome.DIVERGES


def several_ranks(index: Json) -> None:
    index["identity"]["rank"]["dp"] = 2
    index["config"]["conventions"]["top_entropy_quantile"] = 0.5


def of_sequences(index: Json) -> None:
    found = index["config"]["conventions"]
    found["loss"]["name"] = "vespo"
    found["corrections"] = [{"reach": "seq_sum", "most": 2.0}]


def without_one(index: Json) -> None:
    of_sequences(index)
    index["config"]["conventions"]["corrections"] = [{"most": 0.5}]


def one_divisor(index: Json) -> None:
    index["config"]["conventions"]["micro_batch_tokens"] = [7.0]


def mixture(index: Json) -> None:
    index["config"]["conventions"]["loss"]["name"] = "dapo+aux_loss"


UNSUPPORTED = [
    (several_ranks, "top_entropy_quantile is of the micro-batches of all ranks together"),
    (of_sequences, "VESPO takes weights of tokens"),
    (without_one, "VESPO takes weights of tokens"),
    (one_divisor, "micro_batch_tokens has 1 entries for 2 micro-batches"),
    (mixture, "'trl 1.16.0 dapo+aux_loss' is not known; the load-balancing loss"),
]


@pytest.mark.parametrize(("edit", "reason"), UNSUPPORTED, ids=[one[0].__name__ for one in UNSUPPORTED])
def test_what_cannot_be_computed_is_said(tmp_path: Path, edit: Callable[[Json], None], reason: str) -> None:
    own = step(run_of("dapo-group-tis-token-truncate"), tmp_path)
    result = loss(edit_bundle(own, tmp_path / "edited", index=edit))
    assert result.outcome is Outcome.UNSUPPORTED
    assert reason in result.reason


def test_a_part_of_a_micro_batch_has_no_quantile(tmp_path: Path, dapo: Run) -> None:
    own = step(dapo, tmp_path)
    part = edit_bundle(
        own, tmp_path / "edited", index=conventions(lambda found: found.update(top_entropy_quantile=0.5))
    )
    result = loss(part, Selection(groups=(str(read_cohort(own).bundles[0].index.samples[0].group_index),)))
    assert result.outcome is Outcome.SKIPPED
    assert "all samples together" in result.reason


@pytest.mark.parametrize("name", ["ref_log_probs", "rollout_log_probs"])
def test_payloads_that_are_needed_are_asked_for(tmp_path: Path, name: str) -> None:
    own = step(run_of("dapo-group-tis-token-truncate"), tmp_path)

    def without(content: Json) -> None:
        del content["payloads"][name]

    (own / "payloads" / f"{name}.pt").unlink()
    problems = [str(problem) for problem in validate(edit_bundle(own, tmp_path / "part", manifest=without)).problems]
    assert any(name in problem for problem in problems)


def test_a_micro_batch_is_reduced_by_itself(tmp_path: Path) -> None:
    """Of bnpo the mean over micro-batches is not the mean over tokens, where they have not equally many."""
    own = step(run_of("bnpo-batch"), tmp_path)

    def as_one(index: Json) -> None:
        index["identity"]["micro_batch_ids"] = ["mb-0000"]
        for sample in index["samples"]:
            sample["micro_batch_id"] = "mb-0000"

    assert loss(own).outcome is Outcome.PASSED
    assert loss(edit_bundle(own, tmp_path / "one", index=as_one)).outcome is Outcome.DIVERGES


def test_a_kl_term_alone_is_of_the_formats_loss(tmp_path: Path, dapo: Run) -> None:
    own = step(dapo, tmp_path)
    alone = edit_bundle(
        own,
        tmp_path / "alone",
        index=lambda content: content["config"].update(conventions={"kl_term": {"coef": 1.0, "estimator": "k1"}}),
    )
    bare = edit_bundle(
        own, tmp_path / "bare", index=lambda content: content["config"].update(conventions={"gamma": 1.0})
    )
    tensors = read_cohort(own).bundles[0].tensors
    samples = json.loads((own / "index.json").read_text())["samples"]
    distance = np.split(
        tensors["log_probs"] - tensors["ref_log_probs"], np.cumsum([one["response_length"] for one in samples])[:-1]
    )
    masks = [np.asarray(one["loss_mask"], bool) for one in samples]
    expected = sum(float(part[mask].mean()) for part, mask in zip(distance, masks, strict=True))
    assert actual(alone) - actual(bare) == pytest.approx(expected, abs=1e-5)


def actual(path: Path) -> float:
    found: dict[str, float] = {}
    replay_cohort(read_cohort(path), watch=lambda one: found.update({one.result.field: float(one.actual[0])}))
    return found["pg_loss"]
