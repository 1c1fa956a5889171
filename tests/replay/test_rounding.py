"""A trainer that normalises and sums in float32 is told from one that computes something else."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import ComparisonPolicy, Expected, PolicyLoss, StageId
from rollbook.replay.bundle.reading.cohort import read_bundle
from rollbook.replay.engine.engine import replay_bundle
from rollbook.replay.engine.result import Outcome, StageResult, Verdict
from rollbook.replay.kernels.policy_loss import policy_loss
from rollbook.replay.report.as_text import print_replay
from rollbook.replay.stages.rounding import group_rounding, sum_rounding
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

GROUP = 4
Normalise = Callable[[torch.Tensor, bool], torch.Tensor]
Total = Callable[[Any], float]


def float32_rewards(raw: torch.Tensor, divide: bool) -> torch.Tensor:
    """As trainers mostly do it: raw float32 [groups, members]."""
    centred = raw - raw.mean(dim=1, keepdim=True)
    return centred / (raw.std(dim=1, keepdim=True) + 1e-6) if divide else centred


def trained(name: str, raw: Sequence[float], normalise: Normalise, total: Total = lambda terms: sum(terms)) -> Bundle:
    """A fixture as it were if these had been its raw rewards, normalised and summed by this trainer."""
    bundle = read_bundle(FIXTURES / name)
    config, tensors = bundle.index.config, bundle.tensors
    of_groups = torch.tensor(raw, dtype=torch.float32).reshape(-1, GROUP)
    rewards = normalise(of_groups, config.grpo_std_normalization).ravel().numpy()
    samples = tuple(
        sample.model_copy(update={"raw_reward": raw[at], "reward": float(rewards[at])})
        for at, sample in enumerate(bundle.index.samples)
    )
    lengths = np.asarray([sample.response_length for sample in samples])
    advantages = np.repeat(rewards, lengths)
    terms = policy_loss(
        tensors["old_log_probs"],
        tensors["log_probs"],
        advantages,
        tensors["entropy"],
        np.frombuffer(b"".join(sample.loss_mask for sample in samples), np.bool_),
        lengths,
        eps_clip=config.eps_clip,
        eps_clip_high=config.eps_clip_high,
        entropy_coef=config.entropy_coef,
    ).terms
    scalars = {
        name: float(total(getattr(terms, name))) for name in ("pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")
    }
    loss = float(np.float32(scalars["pg_loss"] - config.entropy_coef * scalars["entropy_loss"]))
    return replace(
        bundle,
        index=bundle.index.model_copy(update={"samples": samples}),
        expected=Expected.of(
            raw_rewards=tuple(raw), rewards=tuple(map(float, rewards)), loss=PolicyLoss(loss=loss, **scalars)
        ),
        tensors={**tensors, "advantages": advantages},
    )


def stage(bundle: Bundle, wanted: StageId = StageId.REWARD_POST_PROCESS) -> StageResult:
    return next(found for found in replay_bundle(bundle).ranks[0].stages if found.stage is wanted)


def rewards_at(offset: float, seed: int) -> list[float]:
    raw: list[float] = np.random.default_rng(seed).normal(offset, 1, 8).astype(np.float32).tolist()
    return raw


@pytest.mark.parametrize("name", ["full-k1", "full-nostd-kl0"])
@pytest.mark.parametrize("offset", [0, 10, 100, 500])
def test_a_float32_trainer_of_rewards_far_from_zero_passes_every_stage(name: str, offset: float) -> None:
    rounded = 0
    for seed in range(10):
        bundle = trained(name, rewards_at(offset, seed), float32_rewards)
        assert replay_bundle(bundle).verdict is Verdict.PASSED
        rounded += sum(field.rounded_values for field in stage(bundle).fields)
    assert (rounded > 0) == (offset >= 100)


def test_errors_that_agree_do_not_add_up_in_the_loss() -> None:
    def wrong(raw: torch.Tensor, divide: bool) -> torch.Tensor:
        return float32_rewards(raw, divide) + 0.9e-6

    assert replay_bundle(trained("full-k1", rewards_at(0, 0), wrong)).verdict is Verdict.PASSED


def test_the_report_says_what_was_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    bundle = trained("full-k1", rewards_at(500, 0), float32_rewards)
    print_replay(replay_bundle(bundle), Console(width=200))
    assert "values within a float32 trainer's rounding" in capsys.readouterr().out


@pytest.mark.parametrize("error", [3e-4, -1e-3])
def test_what_rounding_cannot_do_diverges_however_far_the_rewards_lie(error: float) -> None:
    def wrong(raw: torch.Tensor, divide: bool) -> torch.Tensor:
        rewards = float32_rewards(raw, divide)
        rewards[1, 2] += error
        return rewards

    found = stage(trained("full-k1", rewards_at(500, 0), wrong))
    assert found.outcome is Outcome.DIVERGES
    assert found.culprit is not None
    assert found.culprit.sample_id == "s-6"


@pytest.mark.parametrize(("error", "outcome"), [(0.9e-6, Outcome.PASSED), (1.2e-6, Outcome.DIVERGES)])
def test_where_float32_resolves_the_rewards_the_formats_own_test_holds(error: float, outcome: Outcome) -> None:
    def wrong(raw: torch.Tensor, divide: bool) -> torch.Tensor:
        rewards = float32_rewards(raw.double(), divide).float()
        rewards[0, 1] = error
        return rewards

    assert stage(trained("full-k1", [1.0, 0.0, -1.0, 0.0, 0.5, 1.0, 0.25, 0.125], wrong)).outcome is outcome


def test_advantages_that_a_rounded_mean_made_out_of_a_constant_group_diverge_and_are_explained() -> None:
    value = float(np.float32(0.40973526))

    def inexact(raw: torch.Tensor, divide: bool) -> torch.Tensor:
        rewards = float32_rewards(raw, divide)
        rewards[0, :] = float(value - np.nextafter(np.float32(value), np.float32(0))) / 1e-6
        return rewards

    found = stage(trained("full-k1", [value] * 4 + [1.0, 0.0, 0.5, 0.25], inexact))
    assert found.outcome is Outcome.DIVERGES
    assert found.culprit is not None
    assert (found.culprit.sample_id, found.culprit.actual) == ("s-0", 0.0)
    assert found.culprit.expected == pytest.approx(0.0298, abs=1e-4)
    assert "float32 rounding of its group's mean can explain it" in found.reason


def test_an_exact_field_allows_no_rounding() -> None:
    bundle = trained("full-k1", rewards_at(500, 3), float32_rewards)
    policy = ComparisonPolicy(exact_fields=("rewards",))
    exact = replace(bundle, manifest=bundle.manifest.model_copy(update={"comparison_policy": policy}))
    assert stage(exact).outcome is Outcome.DIVERGES


def test_a_reward_that_json_holds_to_more_digits_is_exactly_its_float32() -> None:
    bundle = trained("full-k1", [0.1, 0.2, 0.3, 0.7, 0.6, 0.4, 0.9, 0.8], float32_rewards)
    policy = ComparisonPolicy(exact_fields=("raw_rewards",))
    exact = replace(bundle, manifest=bundle.manifest.model_copy(update={"comparison_policy": policy}))
    assert stage(exact, StageId.REWARD_RAW).outcome is Outcome.PASSED


def test_the_bounds_cover_torch_in_float32() -> None:
    random = np.random.default_rng(0)
    for size in (2, 3, 8, 64, 512):
        raw = (random.normal(size=(200, size)) + random.choice([0, 10, 1e3, 1e5], (200, 1))).astype(np.float32)
        groups = np.repeat(np.arange(200), size)
        for divide in (False, True):
            double = float32_rewards(torch.from_numpy(raw).double(), divide).numpy().ravel()
            error = np.abs(float32_rewards(torch.from_numpy(raw), divide).numpy().ravel() - double)
            possible = group_rounding(raw.ravel(), groups, divide_by_std=divide).possible
            assert np.all(error <= np.maximum(possible, 1e-6 + 1e-5 * np.abs(double)))


@pytest.mark.parametrize(("steps", "outcome"), [(1, Outcome.PASSED), (40, Outcome.DIVERGES)])
def test_whether_a_token_at_the_bound_is_clipped_is_left_to_the_trainer(steps: int, outcome: Outcome) -> None:
    """The first token's ratio is 1.28 but for the last digits, below it; the trainer says that it was clipped."""
    bundle = read_bundle(FIXTURES / "full-nostd-kl0")
    config, tensors = bundle.index.config, dict(bundle.tensors)
    new = tensors["log_probs"].copy()
    new[0] = tensors["old_log_probs"][0] + np.float32(np.log(1.28))
    while np.exp(new[0] - tensors["old_log_probs"][0]) >= np.float32(1.28):
        new[0] = np.nextafter(new[0], np.float32(-9))
    for _ in range(steps):
        new[0] = np.nextafter(new[0], np.float32(-9))
    mask = np.frombuffer(b"".join(sample.loss_mask for sample in bundle.index.samples), np.bool_)
    found = policy_loss(
        tensors["old_log_probs"],
        new,
        tensors["advantages"],
        tensors["entropy"],
        mask,
        np.asarray([sample.response_length for sample in bundle.index.samples]),
        eps_clip=config.eps_clip,
        eps_clip_high=config.eps_clip_high,
        entropy_coef=config.entropy_coef,
    )
    active = int(mask[: bundle.index.samples[0].response_length].sum())
    scalars = {name: float(getattr(found, name)) for name in ("loss", "pg_loss", "entropy_loss", "ppo_kl")}
    loss = PolicyLoss(pg_clipfrac=float(found.pg_clipfrac) + 1 / active, **scalars)
    expected = bundle.expected.model_copy(update={"loss_policy": loss})
    changed = replace(bundle, tensors={**tensors, "log_probs": new}, expected=expected)
    assert stage(changed, StageId.LOSS_POLICY).outcome is outcome


def test_what_floats_cannot_hold_is_never_rounding() -> None:
    bundle = read_bundle(FIXTURES / "loss-only")
    mask = np.frombuffer(b"".join(sample.loss_mask for sample in bundle.index.samples), np.bool_)
    at = int(np.flatnonzero(mask & (bundle.tensors["advantages"] < 0))[0])
    new = bundle.tensors["log_probs"] + np.float32(500) * (np.arange(29) == at).astype(np.float32)
    found = stage(replace(bundle, tensors={**bundle.tensors, "log_probs": new}), StageId.LOSS_POLICY)
    diverging = {field.field: field.first for field in found.fields if field.first is not None}
    assert np.isinf(diverging["loss"].actual)
    assert np.isinf(diverging["pg_loss"].actual)


def test_a_sum_in_float32_over_terms_that_cancel_agrees() -> None:
    terms = np.random.default_rng(1).normal(size=2048).astype(np.float32)
    terms -= terms.mean()
    exact, running = float(terms.astype(np.float64).sum()), np.float32(0)
    for term in terms:
        running += term
    assert 1e-6 + 1e-5 * abs(exact) < abs(float(running) - exact) <= sum_rounding(terms)[0]


def test_a_ratio_of_exactly_one_is_never_in_doubt(tmp_path: Path) -> None:
    """Bounds of 1 on the policy that sampled: nothing is clipped, whatever share was recorded."""

    def bounds(content: Json) -> None:
        content["config"] |= {"eps_clip": 0.0, "eps_clip_high": 0.0}

    def share(content: Json) -> None:
        content["loss.policy"]["pg_clipfrac"] = 5.0

    old = read_bundle(FIXTURES / "loss-only").tensors["old_log_probs"]
    bundle = edit_bundle(
        FIXTURES / "loss-only",
        tmp_path / "on-policy",
        index=bounds,
        expected=share,
        payload={"log_probs": lambda _: old},
    )
    (loss,) = (one for one in replay_bundle(read_bundle(bundle)).ranks[0].stages if one.stage == "loss.policy")
    (found,) = (field for field in loss.fields if field.field == "pg_clipfrac")
    assert found.first is not None
    assert (found.first.expected, found.first.actual) == (5.0, 0.0)
