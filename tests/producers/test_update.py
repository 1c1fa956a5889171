"""An update from claim to seal on the real broker with the real processor: what the block does on each way out."""

from collections.abc import Iterator

import numpy as np
import pytest
from rollbook.infra.settings import Settings
from rollbook.producers import (
    Phase,
    Trainer,
    Update,
)
from rollbook.schemas.records.decision import Decision
from rollbook.tests.processors.hosting import host_in_thread
from rollbook.tests.producers.world import PATIENT, POLICY, World, behavior_log_probs, world


@pytest.fixture
def run(settings: Settings) -> Iterator[World]:
    with host_in_thread(settings), world(settings) as made:
        yield made


@pytest.fixture
def trainer(run: World) -> Iterator[Trainer]:
    with Trainer(run.settings, run.run_id, "learner-0", options=PATIENT) as made:
        made.start()
        yield made


def admit_all(update: Update, *, drifted: tuple[str, ...] = ()) -> Decision:
    """Admit everything that is held with log-probs near the behavior policy's; those named are 1 nat away."""
    loaded = update.load()
    current = {one.trajectory_id: one.log_probs + (1.0 if one.trajectory_id in drifted else 0.01) for one in loaded}
    return update.admit(current, POLICY)


def test_an_update_claims_loads_admits_and_commits(run: World, trainer: Trainer) -> None:
    group = run.group(2)
    with trainer.update(rollout_id=0) as update:
        claimed = update.claim(POLICY, max_groups=1, wait_s=20)
        assert {item.trajectory_id for item in claimed.items} == set(group)
        loaded = update.load()
        assert [one.raw_reward for one in loaded] == [0.0, 1.0]
        np.testing.assert_array_equal(loaded[1].log_probs, behavior_log_probs(1))
        np.testing.assert_array_equal(loaded[1].segments[0].response_ids, np.arange(5) + 1)
        assert loaded[0].action_mask.tolist() == [True, True, True, False, True]
        assert loaded[0].policies == (POLICY,)
        admit_all(update)
        assert update.trainable == ()
        update.start()
        assert set(update.trainable) == set(group)
        assert update.step(update.trainable) == 0
        assert not trainer.may_export
    assert update.phase is Phase.COMMITTED
    assert trainer.may_export
    assert trainer.own_updates == 1
