"""Blame under a named convention: the raw reward that is wrong is named where the rule measures a group by itself,
and where it cannot be told the answer says why."""

from pathlib import Path

import numpy as np
import pytest

from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_cohort
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome, StageResult
from rollbook.tests.replay.reseal import Json, edit_bundle
from rollbook.tests.replay.test_conventions import named, part_of_cohort, samples_of, step, write

RAW = (1.0, 0.0, 0.5, 4.0, 2.0, 2.5, 7.0, 3.0)
GROUPS = [0, 0, 0, 0, 1, 1, 1, 1]
MEANS = (1.375, 3.625)
LEFT_OUT = tuple((raw - MEANS[group]) * 4 / 3 for raw, group in zip(RAW, GROUPS, strict=True))


def rewards_stage(path: Path) -> StageResult:
    stages = replay_cohort(read_cohort(path)).ranks[0].stages
    return next(stage for stage in stages if stage.stage is StageId.REWARD_POST_PROCESS)


def bundle(folder: Path, convention: str, rewards: tuple[float, ...]) -> Path:
    return write(
        "rollout", folder, {}, {"advantages": named("verl", convention)},
        samples=samples_of([[1]] * 8, GROUPS, RAW, rewards, None),
        expected={"reward.post_process": {"rewards": list(rewards)}},
        stages={"reward.post_process"}, config={"n_samples_per_prompt": 4},
    )  # fmt: skip


def planted(source: Path, folder: Path, at: int) -> Path:
    def index(content: Json) -> None:
        content["samples"][at]["raw_reward"] += 1.5

    return edit_bundle(source, folder, index=index)


@pytest.mark.parametrize("at", [0, 3, 5, 7])
def test_a_wrong_raw_reward_is_named_under_leave_one_out(tmp_path: Path, at: int) -> None:
    right = bundle(tmp_path / "right", "rloo", LEFT_OUT)
    assert rewards_stage(right).outcome is Outcome.PASSED
    found = rewards_stage(planted(right, tmp_path / "planted", at))
    assert found.outcome is Outcome.DIVERGES
    assert found.culprit is not None
    assert found.culprit.sample_id == f"s-{at}"
    assert "alone would explain its group" in found.reason


def test_rewards_that_are_not_normalised_point_at_their_own_sample(tmp_path: Path) -> None:
    right = bundle(tmp_path / "right", "reinforce_plus_plus", RAW)
    found = rewards_stage(planted(right, tmp_path / "planted", 2))
    assert found.culprit is not None
    assert (found.culprit.sample_id, found.reason) == ("s-2", "")


@pytest.mark.parametrize("at", [0, 3, 5, 7])
def test_a_wrong_raw_reward_is_named_where_rewards_are_divided_by_the_deviation(tmp_path: Path, at: int) -> None:
    rewards = np.concatenate([(part - part.mean()) / (part.std(ddof=1) + 1e-6) for part in np.split(np.array(RAW), 2)])
    right = bundle(tmp_path / "right", "grpo", tuple(map(float, rewards)))
    assert rewards_stage(right).outcome is Outcome.PASSED
    found = rewards_stage(planted(right, tmp_path / "planted", at))
    assert found.culprit is not None
    assert found.culprit.sample_id == f"s-{at}"
    assert "alone would explain its group" in found.reason


def test_with_members_that_were_not_consumed_no_raw_reward_is_looked_for(tmp_path: Path) -> None:
    def off(content: Json) -> None:
        content["cohort"][0]["raw_reward"] += 1

    path = edit_bundle(part_of_cohort(tmp_path), tmp_path / "off", index=off)
    assert "no single raw reward is looked for" in rewards_stage(path).reason


def test_a_wrong_scalar_of_a_named_loss_without_terms_says_what_is_missing(tmp_path: Path) -> None:
    def off(content: Json) -> None:
        content["loss.policy"]["pg_loss"] += 1.0

    right = step("policy_loss.vanilla/trail-small/1", "vanilla, token-mean", tmp_path / "right")
    path = edit_bundle(right, tmp_path / "off", expected=off)
    stages = replay_cohort(read_cohort(path)).ranks[0].stages
    found = next(stage for stage in stages if stage.stage is StageId.LOSS_POLICY)
    assert found.outcome is Outcome.DIVERGES
    assert "the loss of a named convention is not inverted; the bundle records scalars only" in found.reason
