"""The learner: which weights its records speak of, and what moves them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.learner import Learner
from rollbook.infra.demo.learning.loss import RowTensors, row_terms
from rollbook.infra.demo.learning.model import new_model
from rollbook.infra.demo.learning.plan import group_advantages, plan_update
from rollbook.infra.demo.learning.records import TrainingGroup
from rollbook.infra.demo.learning.task import train_prompt
from rollbook.infra.demo.learning.weights import load_tensors, save_tensors
from rollbook.schemas.errors import BadInput
from rollbook.tests.demo.simulate import generate_group

CONFIG = DemoConfig(learning_rate=1e-2)


@pytest.fixture
def learner() -> Learner:
    return Learner(new_model(CONFIG), CONFIG)


@pytest.fixture
def groups(learner: Learner) -> list[TrainingGroup]:
    return [generate_group(learner.model, train_prompt(CONFIG, row), CONFIG) for row in range(5)]


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in learner.model.parameters()])


def test_the_recorded_log_probs_are_those_of_the_weights_before_the_step(
    learner: Learner, groups: list[TrainingGroup]
) -> None:
    for plan in plan_update(groups, rollout_id=0, config=CONFIG):
        before = learner.current_log_probs([planned.row for planned in plan.rows])
        record = learner.step(plan)
        for row, log_probs in zip(record.rows, before, strict=True):
            np.testing.assert_allclose(row.log_probs, log_probs, atol=1e-5)
    after = learner.current_log_probs([planned.row for planned in plan.rows])
    assert max(float(np.abs(row.log_probs - now).max()) for row, now in zip(record.rows, after, strict=True)) > 0.01


def test_the_reference_policy_stays_the_initial_one(learner: Learner, groups: list[TrainingGroup]) -> None:
    initial = {row.trajectory_id: row.behavior_log_probs for group in groups for row in group.rows}
    for rollout_id in range(3):
        for plan in plan_update(groups, rollout_id, CONFIG):
            for row in learner.step(plan).rows:
                np.testing.assert_allclose(row.ref_log_probs, initial[row.trajectory_id], atol=1e-5)


def test_refused_rows_do_not_move_the_weights(learner: Learner, groups: list[TrainingGroup]) -> None:
    refused = [replace(g, rows=tuple(replace(row, admitted=False) for row in g.rows)) for g in groups]
    before = weights(learner)
    for plan in plan_update(refused, rollout_id=0, config=CONFIG):
        learner.step(plan)
    assert torch.equal(weights(learner), before)


def test_the_learner_does_not_write_into_the_rows_it_was_given(learner: Learner, groups: list[TrainingGroup]) -> None:
    for row in (row for group in groups for row in group.rows):
        row.behavior_log_probs.flags.writeable = False
    for plan in plan_update(groups, rollout_id=0, config=CONFIG):
        learner.step(plan)


def test_a_learner_goes_on_from_a_checkpoint_as_if_nothing_had_happened(
    learner: Learner, groups: list[TrainingGroup], tmp_path: Path
) -> None:
    first, second = plan_update(groups, rollout_id=0, config=CONFIG)
    learner.step(first)
    file = save_tensors(learner.state(), tmp_path / "checkpoint.npz")
    restored = Learner(new_model(CONFIG), CONFIG)
    restored.load_state(load_tensors(file))
    record, again = learner.step(second), restored.step(second)
    assert torch.equal(weights(learner), weights(restored))
    assert all(np.array_equal(a.ref_log_probs, b.ref_log_probs) for a, b in zip(record.rows, again.rows, strict=True))


def test_the_loss_of_the_formats_worked_example() -> None:
    """Two samples of one group, without and with normalisation by the standard deviation."""
    config = DemoConfig(entropy_coef=0.01)
    old = [torch.tensor([-1.0, -2.0]), torch.tensor([-0.5, -1.5, -3.0])]
    new = [torch.tensor([-0.6, -2.3]), torch.tensor([-0.5, -1.8, -2.9])]
    entropy = [torch.tensor([0.5, 1.0]), torch.tensor([0.2, 0.8, 1.1])]
    mask = [torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0, 1.0])]
    plain, normalised = [0.5, -0.5], group_advantages([1.0, 0.0]).tolist()
    for rewards, loss, pg_loss in ((plain, 0.007088, 0.021088), (normalised, 0.015823, 0.029823)):
        rows = [
            RowTensors(old[i], new[i], entropy[i], torch.full_like(old[i], reward), mask[i])
            for i, reward in enumerate(rewards)
        ]
        total = torch.stack([row_terms(row, config) for row in rows]).sum(dim=0)
        np.testing.assert_allclose(total.numpy(), [loss, pg_loss, 1.4, 0.5, -0.1], atol=1e-6)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([1.0, 0.0, 0.5, 0.25], [1.317462, -1.024693, 0.146385, -0.439154]),
        ([0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_group_advantages(raw: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(group_advantages(raw), expected, atol=1e-6)


def test_an_odd_number_of_groups_is_dealt_out_whole(groups: list[TrainingGroup]) -> None:
    plans = plan_update(groups, rollout_id=7, config=CONFIG)
    assert [len({row.group_id for row in plan.rows}) for plan in plans] == [2, 3]
    assert [row.row for plan in plans for row in plan.rows] == [row for group in groups for row in group.rows]


def test_a_group_that_lost_a_member_is_refused(groups: list[TrainingGroup]) -> None:
    with pytest.raises(BadInput, match="sort-digits/train/1 has 3 rows, not 4: discard it whole"):
        plan_update([groups[0], replace(groups[1], rows=groups[1].rows[:3])], rollout_id=0, config=CONFIG)


def test_too_few_groups_for_the_steps_are_refused(groups: list[TrainingGroup]) -> None:
    with pytest.raises(BadInput, match="1 groups cannot fill 2 steps"):
        plan_update(groups[:1], rollout_id=0, config=CONFIG)
