"""The run as a whole: it learns, late trajectories and drift occur in the measure intended, and it repeats."""

from collections import Counter

import numpy as np
import pytest

from rollbook.infra.demo.config import EVAL_MARGIN, DemoConfig
from rollbook.tests.demo.runs import run_of
from rollbook.tests.demo.simulate import SimulationResult, simulate

CONFIG = DemoConfig()
SEEDS = (0, 1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_evaluation_reward_rises_by_the_stated_margin(seed: int) -> None:
    run = run_of(seed)
    assert run.eval_after - run.eval_before >= EVAL_MARGIN


@pytest.mark.parametrize("seed", SEEDS)
def test_fresh_tolerated_stale_and_drifted_trajectories_occur(seed: int) -> None:
    judged = run_of(seed).judged
    freshness = Counter(one.assessment["freshness"] for one in judged)
    assert min(freshness[kind] for kind in ("fresh", "tolerated", "stale")) >= 50
    drifted = sum(one.assessment["reason"] == "policy_drift" for one in judged)
    assert 0.01 <= drifted / (len(judged) - freshness["stale"]) <= 0.15


def test_a_fresh_trajectory_has_not_drifted(run: SimulationResult) -> None:
    drifts = [one.assessment["mean_abs_log_ratio"] for one in run.judged if one.lag == 0]
    assert drifts
    assert max(drift for drift in drifts if drift is not None) < 1e-5


def test_trajectories_of_one_lag_differ_in_drift(run: SimulationResult) -> None:
    """Why both gates matter: at the same version lag some are within the drift limit and some beyond."""
    for lag in (1, 2):
        assert {one.assessment["reason"] for one in run.judged if one.lag == lag} == {"ok", "policy_drift"}


def test_every_update_is_full_and_no_trajectory_is_trained_twice(run: SimulationResult) -> None:
    trained = [row.trajectory_id for step in run.steps for row in step.rows]
    assert len(trained) == len(set(trained)) == CONFIG.updates * CONFIG.groups_per_update * CONFIG.samples_per_prompt
    stale = {one.trajectory_id for one in run.judged if one.assessment["freshness"] == "stale"}
    assert stale.isdisjoint(trained)


def test_a_run_repeats_exactly() -> None:
    short = DemoConfig(updates=3, warmup_steps=30)
    first, again = simulate(short), simulate(short)
    assert (first.eval_before, first.eval_after, first.judged) == (again.eval_before, again.eval_after, again.judged)
    for a, b in zip(first.steps, again.steps, strict=True):
        assert a.terms == b.terms
        assert all(np.array_equal(x.log_probs, y.log_probs) for x, y in zip(a.rows, b.rows, strict=True))
