"""What the learner records is all that a replay needs: every stage of every step recomputes from it."""

import numpy as np
import numpy.typing as npt
import pytest

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.records import PolicyTerms, StepRecord
from rollbook.tests.demo import recompute
from rollbook.tests.demo.simulate import SimulationResult

ATOL, RTOL = 1e-6, 1e-5
CONFIG = DemoConfig()


@pytest.fixture
def steps(run: SimulationResult) -> tuple[StepRecord, ...]:
    return run.steps


def agree(actual: npt.ArrayLike, expected: npt.ArrayLike) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), atol=ATOL, rtol=RTOL)


def values(terms: PolicyTerms) -> list[float]:
    return [terms.loss, terms.pg_loss, terms.entropy_loss, terms.pg_clipfrac, terms.ppo_kl]


def test_an_update_has_two_steps_that_share_no_group(steps: tuple[StepRecord, ...]) -> None:
    assert [(step.rollout_id, step.step_id) for step in steps] == [
        (u, s) for u in range(CONFIG.updates) for s in (0, 1)
    ]
    for first, second in zip(steps[::2], steps[1::2], strict=True):
        assert {row.group_id for row in first.rows}.isdisjoint(row.group_id for row in second.rows)


def test_groups_are_whole_consecutive_and_within_one_micro_batch(steps: tuple[StepRecord, ...]) -> None:
    size = CONFIG.samples_per_prompt
    for step in steps:
        groups = [step.rows[start : start + size] for start in range(0, len(step.rows), size)]
        assert [[row.group_index for row in group] for group in groups] == [[i] * size for i in range(len(groups))]
        assert all(len({(row.group_id, row.micro_batch_id) for row in group}) == 1 for group in groups)
        assert {row.micro_batch_id for row in step.rows} == {"mb-0000", "mb-0001"}


def test_rewards_recompute(steps: tuple[StepRecord, ...]) -> None:
    for step in steps:
        agree([row.reward for row in step.rows], recompute.rewards(step))


def test_kl_and_advantages_recompute(steps: tuple[StepRecord, ...]) -> None:
    for step in steps:
        for row, reward in zip(step.rows, recompute.rewards(step), strict=True):
            agree(row.kl, recompute.kl(row))
            agree(row.advantages, recompute.advantages(row, reward))


def test_the_loss_recomputes_row_by_row_and_as_a_whole(steps: tuple[StepRecord, ...]) -> None:
    for step in steps:
        rewards = recompute.rewards(step)
        rows = [
            recompute.terms(row, recompute.advantages(row, reward), CONFIG)
            for row, reward in zip(step.rows, rewards, strict=True)
        ]
        agree([values(row.terms) for row in step.rows], rows)
        agree(values(step.terms), np.sum(rows, axis=0, dtype=np.float64))


def test_a_refused_member_keeps_its_reward_but_not_its_tokens(steps: tuple[StepRecord, ...]) -> None:
    refused = [row for step in steps for row in step.rows if not any(row.loss_mask)]
    assert refused
    assert all(values(row.terms) == [0.0] * 5 for row in refused)
    assert any(row.reward for row in refused)


def test_every_array_is_float32_finite_and_as_long_as_the_response(steps: tuple[StepRecord, ...]) -> None:
    for row in (row for step in steps for row in step.rows):
        for array in (row.old_log_probs, row.log_probs, row.ref_log_probs, row.entropy, row.kl, row.advantages):
            assert array.dtype == np.float32
            assert array.shape == (row.response_length,)
            assert np.isfinite(array).all()


def test_no_stage_is_trivial(steps: tuple[StepRecord, ...]) -> None:
    """Clipping, drift from behaviour and distance to the reference policy occur, so that a replay is a test."""
    assert sum(step.terms.pg_clipfrac > 0 for step in steps) > len(steps) / 2
    assert all(step.terms.ppo_kl != 0 for step in steps[1:])
    assert max(float(row.kl.max()) for step in steps for row in step.rows) > 0.1
    assert len({row.response_length for step in steps for row in step.rows}) > 3
