"""A failure is never a zero: no call of the clients makes a reward of one, and none is trained on."""

from typing import Any

import pytest

from rollbook.producers import NothingTaken, Trainer, new_identity
from rollbook.schemas.codec import ContractViolation
from rollbook.schemas.records.reward import DiscardReason, RewardFailure, RewardReady
from rollbook.schemas.records.rollout import GenerationFailure
from rollbook.tests.producers.world import POLICY, World


def test_what_failed_or_was_discarded_has_no_reward_and_is_never_claimed(run: World, trainer: Trainer) -> None:
    timed_out, wrong, filtered = (run.group(1, rewarded=False)[0] for _ in range(3))
    run.worker.generation_failed(new_identity("group-0", 0, 1), POLICY, GenerationFailure.TIMEOUT)
    run.worker.flush(20)
    run.rewards.failed(timed_out, RewardFailure.TIMEOUT, retriable=True)
    run.rewards.failed(wrong, RewardFailure.INVALID_OUTPUT, retriable=False)
    run.worker.discarded([filtered], DiscardReason.ZERO_VARIANCE)
    run.rewards.flush(20)
    run.worker.flush(20)
    with trainer.update(rollout_id=0) as update, pytest.raises(NothingTaken):
        update.claim(POLICY, max_groups=10)
    assert not any(isinstance(record, RewardReady) for record in run.records())
    assert run.decisions("RewardFailed")[0].items[0].state_after == "reward_failed"
    assert run.decisions("Discarded")[0].items[0].state_after == "discarded"


def test_a_late_reward_after_a_time_out_is_the_one_that_counts(run: World, trainer: Trainer) -> None:
    (late,) = run.group(1, rewarded=False)
    run.rewards.failed(late, RewardFailure.TIMEOUT, retriable=True)
    run.rewards.reward(late, 0.75)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        assert [one.raw_reward for one in update.load()] == [0.75]


def test_no_reward_is_made_of_nothing(run: World) -> None:
    (waiting,) = run.group(1, rewarded=False)
    nothing: list[Any] = [None, float("nan"), float("inf"), "", "0", False, [], b""]
    for value in nothing:
        with pytest.raises(ContractViolation, match=r"RewardReady: field items\.0\.raw_reward"):
            run.rewards.reward(waiting, value)
    assert run.rewards.counters.published == 0
