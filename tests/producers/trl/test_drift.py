"""After one real update all old trajectories have the same lag, and only those that drifted are refused."""

import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import Settings
from rollbook.processors.gates import Freshness
from rollbook.tests.producers.trl.drift import reevaluate, table
from rollbook.tests.producers.trl.drift_world import LIMIT


def test_of_trajectories_that_are_all_one_policy_old_the_drifted_ones_are_refused(processed: Settings) -> None:
    verdicts = reevaluate(processed)
    # By its version alone each could be trained on: the reservation takes them all.
    assert {(one.lag, one.freshness, one.reserved) for one in verdicts} == {(1, Freshness.TOLERATED, "reserved")}
    admitted = [one for one in verdicts if one.admitted == "ok"]
    refused = [one for one in verdicts if one.admitted == "policy_drift"]
    assert len(admitted) + len(refused) == len(verdicts) == 24
    assert 0 < len(refused) < len(admitted), table(verdicts)
    assert {one.state for one in admitted} == {"reserved"}
    assert {one.state for one in refused} == {"quarantined"}
    assert all(one.drift is not None and one.drift <= LIMIT for one in admitted)
    assert all(one.drift is not None and one.drift > LIMIT for one in refused)
    # The published rule function says the same of each, with the same figure to the last bit.
    assert [(one.rule, one.rule_drift) for one in verdicts] == [(one.admitted, one.drift) for one in verdicts]
    assert all(one.drift for one in verdicts), "the update was a real one: it moved every trajectory's log-probs"
