"""The estimators, losses and reductions beyond format 1.0.0, by hand, on numpy and torch. (Frameworks' own numbers:
test_goldens.py.)"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.kernels import surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Rows, Totals, aggregate
from rollbook.replay.kernels.correction import Outside, Reach, Weighting, gather, importance_weights, is_within
from rollbook.replay.kernels.groups import Level, Normalization, Singleton, normalize
from rollbook.replay.kernels.kl import KlRule, approximate_kl
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.returns import Hole, discounted_returns, generalized_advantages
from rollbook.replay.kernels.value_loss import Distance, value_loss
from rollbook.replay.kernels.whiten import Whitening, whiten

Make = Callable[[Any], Any]
NAN, INF = math.nan, math.inf


@pytest.fixture(params=["numpy", "torch"])
def make(request: pytest.FixtureRequest) -> Make:
    """Lists as an array: bool, int64 or float64 by what is in them."""
    return np.asarray if request.param == "numpy" else lambda values: torch.as_tensor(np.asarray(values))


def near(*values: Any) -> Any:
    return pytest.approx(np.asarray(values[0] if len(values) == 1 else values), abs=1e-9, nan_ok=True)


ONE_OF_FOUR = [1.0, 0.0, 0.0, 0.0]
NORMALIZATIONS = [
    # rule, what 1 and 0 of [1, 0, 0, 0] get
    (Normalization(eps=0), 1.5, -0.5),
    (Normalization(eps=1e-4), 0.75 / 0.5001, -0.25 / 0.5001),
    (Normalization(eps=0, ddof=0), math.sqrt(3), -1 / math.sqrt(3)),
    (Normalization(std=Level.NONE), 0.75, -0.25),
    (Normalization(std=Level.NONE, leave_one_out=True), 1.0, -1 / 3),
    (Normalization(mean=Level.NONE, std=Level.NONE), 1.0, 0.0),
    (Normalization(mean=Level.NONE, eps=0, ddof=0, about_centre=True), 2.0, 0.0),
    (Normalization(eps=0, variance_floor=1.0), 0.75, -0.25),
]


@pytest.mark.parametrize(("rule", "one", "zero"), NORMALIZATIONS)
def test_rewards_by_group(make: Make, rule: Normalization, one: float, zero: float) -> None:
    found = normalize(make(ONE_OF_FOUR), make([3, 3, 3, 3]), rule)
    assert np.asarray(found) == near(one, zero, zero, zero)


def test_groups_of_any_size_lie_anywhere(make: Make) -> None:
    rewards, groups = make([1.0, 10.0, 3.0, 7.0, 20.0, 5.0]), make([7, 2, 7, 9, 2, 7])
    found = normalize(rewards, groups, Normalization(std=Level.NONE))
    assert np.asarray(found) == near(-2, -5, 0, 0, 5, 2)


@pytest.mark.parametrize(
    ("singleton", "value"),
    [(Singleton.RAW, 4.0), (Singleton.ZERO, 0.0), (Singleton.NAN, NAN), (Singleton.FORMULA, NAN)],
)
def test_a_group_of_one(make: Make, singleton: Singleton, value: float) -> None:
    found = normalize(make([4.0, 1.0, 2.0]), make([0, 1, 1]), Normalization(eps=0, singleton=singleton))
    assert np.asarray(found) == near(value, -math.sqrt(0.5), math.sqrt(0.5))


def test_a_deviation_of_the_whole_batch(make: Make) -> None:
    rewards, groups = make([1.0, 3.0, 11.0, 13.0]), make([0, 0, 1, 1])
    found = normalize(rewards, groups, Normalization(std=Level.BATCH, eps=0))
    assert np.asarray(found) == near(np.array([-1, 1, -1, 1]) / np.std([1, 3, 11, 13], ddof=1))


@pytest.mark.parametrize("value", [0.40973526, 6.4719, -3e20])
def test_a_constant_group_gives_zeros(make: Make, value: float) -> None:
    assert np.asarray(normalize(make([value] * 7), make([0] * 7), Normalization(eps=1e-9))).tolist() == [0.0] * 7


REWARDS, HOLES = [[0.0, 5.0, 0.0, 1.0]], [[True, False, True, True]]
RETURNS = [
    (Hole.TOKEN, [[2.625, 5.25, 0.5, 1.0]]),
    (Hole.SKIP, [[0.25, 0.5, 0.5, 1.0]]),
    (Hole.RESET, [[0.0, 5.25, 0.5, 1.0]]),
]


@pytest.mark.parametrize(("hole", "returns"), RETURNS)
def test_returns_over_a_hole(make: Make, hole: Hole, returns: list[list[float]]) -> None:
    found = discounted_returns(make(REWARDS), make(HOLES), gamma=0.5, hole=hole)
    assert np.asarray(found) == near(returns)


def test_a_hole_that_is_multiplied_away_spoils_its_row_when_it_is_not_a_number(make: Make) -> None:
    rewards, mask = make([[0.0, NAN, 1.0]]), make([[True, False, True]])
    for masking, first in ((Masking.SELECT, 1.0), (Masking.MULTIPLY, NAN)):
        found = discounted_returns(rewards, mask, gamma=1.0, hole=Hole.SKIP, masking=masking)
        assert np.asarray(found)[0, 0] == near(first)


def test_advantages_from_values(make: Make) -> None:
    # delta = [0 + .5*.4 - .2, 1 - .4] = [0, .6]; A = [0 + .5*.5*.6, .6]
    advantages, returns = generalized_advantages(
        make([[0.0, 1.0]]), make([[0.2, 0.4]]), make([[True, True]]), gamma=0.5, lam=0.5, hole=Hole.TOKEN
    )
    assert np.asarray(advantages) == near([[0.15, 0.6]])
    assert np.asarray(returns) == near([[0.35, 1.0]])


def test_advantages_skip_an_observation(make: Make) -> None:
    with_hole, _ = generalized_advantages(
        make([[0.0, 9.0, 1.0]]),
        make([[0.2, 7.0, 0.4]]),
        make([[True, False, True]]),
        gamma=0.5,
        lam=0.5,
        hole=Hole.SKIP,
    )
    assert np.asarray(with_hole)[0, [0, 2]] == near(0.15, 0.6)


def test_whitening(make: Make) -> None:
    values, mask = make([[1.0, 2.0, 3.0, 99.0]]), make([[True, True, True, False]])
    for rule, first in (
        (Whitening(eps=0), -1.0),
        (Whitening(ddof=0, eps=0), -math.sqrt(1.5)),
        (Whitening(eps=0, shift=False), 1.0),
        (Whitening(eps=1.0, eps_outside=True), -0.5),
        (Whitening(eps=0, one_pass=True), -1.0),
        (Whitening(scale=False), -1.0),
    ):
        assert np.asarray(whiten(values, mask, rule))[0, 0] == near(first)


def test_one_token_has_no_variance(make: Make) -> None:
    values, mask = make([[1.0, 2.0]]), make([[True, False]])
    with pytest.raises(ValueError, match="needs 2 tokens"):
        whiten(values, mask, Whitening())
    assert np.asarray(whiten(values, mask, Whitening(fewest=1)))[0, 0] == 0


LOSSES, MASK = [[1.0, 3.0], [5.0, 100.0], [7.0, 9.0]], [[True, True], [True, False], [False, False]]
AGGREGATIONS = [
    (Aggregation(Mode.TOKEN_MEAN), 3.0),
    (Aggregation(Mode.TOKEN_SUM), 9.0),
    (Aggregation(Mode.SEQ_MEAN_TOKEN_MEAN, row_floor=1), 3.5),
    (Aggregation(Mode.SEQ_MEAN_TOKEN_MEAN, row_floor=1, rows=Rows.ALL), 7 / 3),
    (Aggregation(Mode.SEQ_MEAN_TOKEN_MEAN, row_floor=1, rows=Rows.ONE), 7.0),
    (Aggregation(Mode.SEQ_MEAN_TOKEN_SUM), 4.5),
    (Aggregation(Mode.SEQ_MEAN_TOKEN_SUM_NORM), 2.25),
]


@pytest.mark.parametrize(("rule", "loss"), AGGREGATIONS)
def test_aggregation(make: Make, rule: Aggregation, loss: float) -> None:
    assert float(aggregate(make(LOSSES), make(MASK), rule)) == near(loss)


def test_totals_of_the_whole_batch_replace_those_of_a_part(make: Make) -> None:
    totals = Totals(tokens=30, sequences=10, length=4, ranks=2)
    for mode, loss in (
        (Mode.TOKEN_MEAN, 9 * 2 / 30),
        (Mode.SEQ_MEAN_TOKEN_SUM, 9 * 2 / 10),
        (Mode.SEQ_MEAN_TOKEN_SUM_NORM, 9 * 2 / 10 / 4),
    ):
        assert float(aggregate(make(LOSSES), make(MASK), Aggregation(mode), totals)) == near(loss)


RATIOS = [0.5, 1.0, 1.5, 5.0]
SURROGATES: list[tuple[str, Callable[[Any, Any], Any], list[float], list[float]]] = [
    # advantage +1, advantage -1
    ("ppo", lambda r, a: surrogate.ppo(r, a, low=0.2, high=0.2), [-0.5, -1, -1.2, -1.2], [0.8, 1, 1.5, 5]),
    ("higher", lambda r, a: surrogate.ppo(r, a, low=0.2, high=0.28), [-0.5, -1, -1.28, -1.28], [0.8, 1, 1.5, 5]),
    ("dual", lambda r, a: surrogate.ppo(r, a, low=0.2, high=0.2, dual=3), [-0.5, -1, -1.2, -1.2], [0.8, 1, 1.5, 3]),
    ("most", lambda r, a: surrogate.ppo(r, a, low=0.2, high=0.2, most=2), [-0.5, -1, -1.2, -1.2], [0.8, 1, 1.5, 2]),
    (
        "sapo",
        lambda r, a: surrogate.sapo(r, a, positive=1, negative=2),
        [-4 / (1 + math.exp(1 - r)) for r in RATIOS],
        [2 / (1 + math.exp(2 * (1 - r))) for r in RATIOS],
    ),
]


@pytest.mark.parametrize(("name", "kernel", "plus", "minus"), SURROGATES, ids=[case[0] for case in SURROGATES])
def test_surrogates(make: Make, name: str, kernel: Any, plus: list[float], minus: list[float]) -> None:
    ratios, up, down = make(RATIOS), make([1.0] * 4), make([-1.0] * 4)
    assert np.asarray(kernel(ratios, up)) == near(plus)
    assert np.asarray(kernel(ratios, down)) == near(minus)


def test_cispo_weighs_a_clipped_token_and_keeps_its_gradient() -> None:
    new = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    ratio = torch.exp(new - torch.tensor([-3.0, -1.0], dtype=torch.float64))
    loss = surrogate.cispo(ratio, new, torch.tensor([1.0, 1.0], dtype=torch.float64), least=0.8, most=1.2)
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([1.2, 1.0])
    assert new.grad is not None
    assert new.grad.tolist() == pytest.approx([-1.2, -1.0])


def test_a_ratio_of_a_row_is_a_geometric_mean_and_passes_each_token_its_gradient() -> None:
    new = torch.tensor([[-1.0, -2.0, -9.0]], dtype=torch.float64, requires_grad=True)
    old, mask = torch.tensor([[-1.2, -2.4, 0.0]], dtype=torch.float64), torch.tensor([[True, True, False]])
    mean = surrogate.sequence_mean(surrogate.log_ratio(new, old), mask)
    ratio = torch.exp(surrogate.through_tokens(mean, new))
    assert ratio.tolist()[0][:2] == pytest.approx([math.exp(0.3)] * 2)
    torch.autograd.backward(ratio[0, 0])
    assert new.grad is not None
    assert new.grad.tolist()[0] == pytest.approx([math.exp(0.3), 0, 0])


def test_log_ratios_are_held_within_a_limit(make: Make) -> None:
    assert np.asarray(surrogate.log_ratio(make([30.0, -1.0]), make([0.0, -2.0]), limit=20.0)).tolist() == [20, 1]


VALUES = [
    (None, Distance.SQUARED, [0.5 * 4.0], [False]),
    (0.5, Distance.SQUARED, [0.5 * 6.25], [True]),
    (0.5, Distance.HUBER, [0.5 * 6.25], [True]),
]


@pytest.mark.parametrize(("clip", "distance", "losses", "clipped"), VALUES)
def test_value_loss(
    make: Make, clip: float | None, distance: Distance, losses: list[float], clipped: list[bool]
) -> None:
    found = value_loss(make([1.0]), make([0.0]), make([3.0]), clip=clip, distance=distance)
    assert np.asarray(found.losses) == near(losses)
    assert found.clipped.tolist() == clipped


def test_a_huber_distance_is_linear_beyond_its_delta(make: Make) -> None:
    found = value_loss(make([30.0]), make([30.0]), make([0.0]), clip=None, distance=Distance.HUBER)
    assert np.asarray(found.losses) == near([10 * (30 - 5.0)])


def test_kl_limits(make: Make) -> None:
    new, ref = make([0.0, -30.0]), make([-30.0, 0.0])
    limited = KlRule(ratio_limit=20.0, value_limit=10.0, limited=frozenset({"k3"}))
    assert np.asarray(approximate_kl(new, ref, "k3", limited)).tolist() == [10, 10]
    assert np.asarray(approximate_kl(new, ref, "k1", limited)).tolist() == [30, -30]
    assert np.asarray(approximate_kl(new, ref, "abs")).tolist() == [30, 30]
    assert np.asarray(approximate_kl(new, ref, "k2")).tolist() == [450, 450]


def test_a_plus_has_the_value_of_its_estimator_and_the_gradient_of_k2() -> None:
    new = torch.tensor([-0.5], dtype=torch.float64, requires_grad=True)
    found = approximate_kl(new, torch.tensor([-1.0], dtype=torch.float64), "k1+")
    found.sum().backward()
    assert new.grad is not None
    assert (found.tolist(), new.grad.tolist()) == ([0.5], [0.5])


def test_importance_weights(make: Make) -> None:
    logs = make([[math.log(0.25), math.log(1.5), math.log(8)]])
    assert np.asarray(importance_weights(logs, Weighting())) == near([[0.25, 1.5, 8]])
    assert np.asarray(importance_weights(logs, Weighting(most=2.0))) == near([[0.25, 1.5, 2]])
    band = Weighting(least=0.5, most=2.0)
    assert np.asarray(importance_weights(logs, band)) == near([[0.5, 1.5, 2]])
    band = Weighting(least=0.5, most=2.0, outside=Outside.ZERO)
    assert np.asarray(importance_weights(logs, band)) == near([[0, 1.5, 0]])


REACHES = [
    (Reach.TOKEN, [1.0, 2.0, 9.0]),
    (Reach.SEQ_SUM, [3.0] * 3),
    (Reach.SEQ_MEAN, [1.5] * 3),
    (Reach.SEQ_MAX, [2.0] * 3),
]


@pytest.mark.parametrize(("reach", "values"), REACHES)
def test_what_a_verdict_reaches(make: Make, reach: Reach, values: list[float]) -> None:
    assert np.asarray(gather(make([[1.0, 2.0, 9.0]]), make([[True, True, False]]), reach)) == near([values])


def test_rejection_leaves_the_action_mask_alone(make: Make) -> None:
    mask, logs = make([[True, True, False]]), make([[0.1, 3.0, INF]])
    kept = mask & is_within(logs, None, 1.0)
    assert (mask.tolist(), kept.tolist()) == ([[True, True, False]], [[True, False, False]])
