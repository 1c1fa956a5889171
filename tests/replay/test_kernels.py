"""The worked example of the bundle format to six digits, on numpy and on torch; edge cases; gradients."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.kernels.advantages import grpo_advantages
from rollbook.replay.kernels.kl import token_kl
from rollbook.replay.kernels.policy_loss import PolicyLossResult, policy_loss
from rollbook.replay.kernels.reduce import sample_means
from rollbook.replay.kernels.rewards import group_rewards

Make = Callable[[Sequence[float], str], Any]


def on_numpy(values: Sequence[float], dtype: str) -> Any:
    return np.asarray(values, dtype=dtype)


def on_torch(values: Sequence[float], dtype: str) -> Any:
    return torch.tensor(values, dtype=getattr(torch, dtype))


@pytest.fixture(params=[on_numpy, on_torch], ids=["numpy", "torch"])
def make(request: pytest.FixtureRequest) -> Make:
    chosen: Make = request.param
    return chosen


OLD, NEW = [-1, -2, -0.5, -1.5, -3], [-0.6, -2.3, -0.5, -1.8, -2.9]
REF = [-1.2, -1.9, -0.8, -1.5, -2]
ENTROPY, MASK, LENGTHS = [0.5, 1, 0.2, 0.8, 1.1], [1, 1, 1, 0, 1], [2, 3]

KL = [
    ("k1", [0.2, -0.1, 0.3, 0, -1]),
    ("k2", [0.02, 0.005, 0.045, 0, 0.5]),
    ("k3", [0.018731, 0.005171, 0.040818, 0, 0.718282]),
    ("low_var_kl", [0.018731, 0.005171, 0.040818, 0, 0.718282]),
]
GROUPS = [
    # raw rewards, divided by std, rewards
    ([1, 0], False, [0.5, -0.5]),
    ([1, 0], True, [0.707106, -0.707106]),
    ([1, 0, 0.5, 0.25], True, [1.317462, -1.024693, 0.146385, -0.439154]),
    ([2, 2, 2, 2], True, [0, 0, 0, 0]),
    ([2, 2, 2, 2], False, [0, 0, 0, 0]),
]
LOSSES = [
    # advantages divided by std, loss, pg_loss
    (False, 0.007088, 0.021088),
    (True, 0.015823, 0.029823),
]


def six_digits(values: Sequence[float]) -> Any:
    return pytest.approx(list(values), abs=5e-7)


@pytest.mark.parametrize(("raw", "divide", "rewards"), GROUPS)
def test_group_rewards(make: Make, raw: list[float], divide: bool, rewards: list[float]) -> None:
    found = group_rewards(make(raw, "float32"), make([0] * len(raw), "int64"), len(raw), divide_by_std=divide)
    assert found.tolist() == six_digits(rewards)


def test_groups_are_recognised_wherever_their_members_lie(make: Make) -> None:
    raw, groups = make([1, 10, 0, 30], "float32"), make([7, 2, 7, 2], "int64")
    assert group_rewards(raw, groups, 2, divide_by_std=False).tolist() == [0.5, -10, -0.5, 10]


@pytest.mark.parametrize("groups", [[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 2, 3]])
def test_a_group_of_another_size_is_an_error(make: Make, groups: list[float]) -> None:
    with pytest.raises(ValueError, match="does not have 2 members"):
        group_rewards(make([1, 2, 3, 4], "float32"), make(groups, "int64"), 2, divide_by_std=False)


@pytest.mark.parametrize(("estimator", "values"), KL, ids=[case[0] for case in KL])
def test_kl(make: Make, estimator: str, values: list[float]) -> None:
    found = token_kl(make(OLD, "float32"), make(REF, "float32"), estimator)
    assert found.tolist() == six_digits(values)


@pytest.mark.parametrize(("estimator", "value"), [("k3", 142.413162), ("low_var_kl", 10)])
def test_only_low_var_kl_is_clamped(make: Make, estimator: str, value: float) -> None:
    (found,) = token_kl(make([-5], "float32"), make([0], "float32"), estimator).tolist()
    assert found == pytest.approx(value, rel=1e-6)


def test_advantages_repeat_the_reward_per_token(make: Make) -> None:
    found = grpo_advantages(make([0.5, -0.5], "float32"), make(LENGTHS, "int64"))
    assert found.tolist() == [0.5, 0.5, -0.5, -0.5, -0.5]


def loss_of(make: Make, rewards: Sequence[float], new: Any = None) -> PolicyLossResult:
    lengths = make(LENGTHS, "int64")
    return policy_loss(
        make(OLD, "float32"),
        make(NEW, "float32") if new is None else new,
        grpo_advantages(make(rewards, "float32"), lengths),
        make(ENTROPY, "float32"),
        make(MASK, "bool"),
        lengths,
        eps_clip=0.2,
        eps_clip_high=0.28,
        entropy_coef=0.01,
    )


@pytest.mark.parametrize(("divide", "loss", "pg_loss"), LOSSES)
def test_policy_loss(make: Make, divide: bool, loss: float, pg_loss: float) -> None:
    rewards = group_rewards(make([1, 0], "float32"), make([0, 0], "int64"), 2, divide_by_std=divide)
    found = loss_of(make, rewards.tolist())
    scalars = (found.loss, found.pg_loss, found.entropy_loss, found.pg_clipfrac, found.ppo_kl)
    assert [float(value) for value in scalars] == six_digits([loss, pg_loss, 1.4, 0.5, -0.1])
    assert float(sum(found.terms.pg_loss.tolist())) == pytest.approx(pg_loss, abs=5e-7)


def test_the_loss_can_be_differentiated() -> None:
    new = torch.tensor(NEW, dtype=torch.float32, requires_grad=True)
    loss_of(on_torch, [0.5, -0.5], new).loss.backward()
    assert new.grad is not None
    # d/dnew of -r A / n where not clipped: r = e^(new - old); the masked token has none.
    ratios = np.exp(np.subtract(NEW, OLD))
    assert new.grad.tolist() == pytest.approx([0, -ratios[1] * 0.25, ratios[2] * 0.25, 0, ratios[4] * 0.25], abs=1e-6)


def test_masked_tokens_may_hold_anything_and_an_empty_mask_counts_as_one(make: Make) -> None:
    values = make([1, float("nan"), 3, float("inf")], "float32")
    found = sample_means(values, make([1, 0, 1, 0], "bool"), make([2, 1, 1], "int64"))
    assert found.tolist() == [1, 3, 0]


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_value_that_is_not_finite_spoils_its_own_sample_only(make: Make, value: float) -> None:
    values = make([1, value, 2, 4], "float32")
    first, second, third = sample_means(values, make([1, 1, 1, 1], "bool"), make([2, 0, 2], "int64")).tolist()
    assert not np.isfinite(first)
    assert (second, third) == (0, 3)


@pytest.mark.parametrize("size", [2, 3, 5, 7, 64, 1000])
@pytest.mark.parametrize("value", [0.40973526, 6.4719, 1e-8, -3e20])
@pytest.mark.parametrize("divide", [True, False])
def test_a_constant_group_gives_zeros_whatever_its_size(make: Make, size: int, value: float, divide: bool) -> None:
    rewards = make([value] * size + [0.0] * size, "float32")
    found = group_rewards(rewards, make([0] * size + [1] * size, "int64"), size, divide_by_std=divide)
    assert found.tolist() == [0.0] * (2 * size)


@pytest.mark.parametrize("divide", [True, False])
def test_group_rewards_are_those_of_double_precision(make: Make, divide: bool) -> None:
    raw = np.random.default_rng(0).normal(1000, 1, (500, 8)).astype(np.float32)
    groups = np.repeat(np.arange(500), 8)
    found = group_rewards(
        make(raw.ravel().tolist(), "float32"), make(groups.tolist(), "int64"), 8, divide_by_std=divide
    )
    double = raw.astype(np.float64)
    expected = double - double.mean(axis=1, keepdims=True)
    if divide:
        expected /= double.std(axis=1, ddof=1, keepdims=True) + 1e-6
    assert str(found.dtype).endswith("float32")
    assert np.asarray(found) == pytest.approx(expected.ravel(), rel=1e-6, abs=1e-9)


def test_a_neighbour_of_any_size_leaves_a_sample_alone(make: Make) -> None:
    """The middle sample's log-ratio of -40 makes its terms 2e17 times those of its neighbours."""
    old, new = [-1.0, -2.0, -41.0, -1.5, -3.0], [-0.6, -2.3, -1.0, -1.8, -2.9]
    advantages, entropy = [-1.0, -1.0, -1.0, 1.0, 1.0], [0.5, 1.0, 0.2, 0.8, 1.1]

    def loss(samples: slice, lengths: list[int]) -> list[float]:
        found = policy_loss(
            make(old[samples], "float32"),
            make(new[samples], "float32"),
            make(advantages[samples], "float32"),
            make(entropy[samples], "float32"),
            make([1] * sum(lengths), "bool"),
            make(lengths, "int64"),
            eps_clip=0.2,
            eps_clip_high=0.28,
            entropy_coef=0.01,
        )
        terms: list[float] = found.terms.pg_loss.tolist()
        return terms

    first, huge, last = loss(slice(0, 5), [2, 1, 2])
    assert huge == pytest.approx(np.exp(40), rel=1e-5)
    assert [first] == loss(slice(0, 2), [2])
    assert [last] == loss(slice(3, 5), [2])
    assert last == pytest.approx(-0.922995, abs=1e-6)


def test_each_of_many_samples_is_summed_by_itself(make: Make) -> None:
    random = np.random.default_rng(1)
    lengths = random.choice([0, 1, 2, 3, 5, 17, 300, 5000], 400)
    values = (random.normal(size=lengths.sum()) * 10.0 ** random.integers(-8, 9, lengths.sum())).astype(np.float32)
    mask = random.random(lengths.sum()) < 0.7
    found = sample_means(make(values.tolist(), "float32"), make(mask.tolist(), "bool"), make(lengths.tolist(), "int64"))
    ends = np.cumsum(lengths)
    for at, mean in enumerate(found.tolist()):
        own = slice(ends[at] - lengths[at], ends[at])
        active = values[own][mask[own]].astype(np.float64)
        assert mean == pytest.approx(
            math.fsum(active) / max(len(active), 1), rel=1e-12, abs=1e-12 * np.abs(active).sum()
        )


def test_no_token_at_all_is_a_mean_of_zero(make: Make) -> None:
    none = sample_means(make([], "float32"), make([], "bool"), make([0, 0], "int64"))
    assert none.tolist() == [0, 0]


def test_lengths_that_are_not_those_of_the_values_are_an_error(make: Make) -> None:
    with pytest.raises(ValueError, match="lengths add up to 3, there are 2 tokens"):
        sample_means(make([1, 2], "float32"), make([1, 1], "bool"), make([1, 2], "int64"))


def test_what_is_masked_has_no_gradient_whatever_it_holds() -> None:
    new = torch.tensor([-0.5, float("inf"), float("nan"), -1.0, 300.0], requires_grad=True)
    found = policy_loss(
        torch.tensor([-0.6, -1.0, -1.0, float("nan"), -1.0]),
        new,
        torch.tensor([1.0, 1.0, float("nan"), 1.0, float("inf")]),
        torch.full((5,), float("nan")).masked_fill(torch.tensor([True, False, False, False, False]), 0.5),
        torch.tensor([True, False, False, False, False]),
        torch.tensor([3, 2]),
        eps_clip=0.2,
        eps_clip_high=0.28,
        entropy_coef=0.01,
    )
    found.loss.backward()
    assert float(found.loss.detach()) == pytest.approx(-np.exp(0.1) - 0.005, rel=1e-6)
    assert new.grad is not None
    assert new.grad.tolist() == pytest.approx([-np.exp(0.1), 0, 0, 0, 0], rel=1e-6)
