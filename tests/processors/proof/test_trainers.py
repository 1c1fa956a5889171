"""No row is lost or trained twice in the surviving lineage, wherever processes crash, stand still or are doubled."""

import dataclasses

import pytest

from rollbook.schemas.records.run import DriftGate
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof.compare import ProvenLog
from rollbook.tests.processors.proof.trainers import Rules
from rollbook.tests.processors.proof.world import Harm, World

FOUND_BY = {
    "await_started": 0,
    "await_admit": 5,
    "export_at_rest": 15,
    "fresh_checkpoint_ids": 26,
    "exit_when_refused": 4,
}
"""A seed that shows the harm of a client rule switched off; when the simulation changes, others are searched."""


def settings_of(seed: int) -> tuple[int, DriftGate]:
    """Horizon and drift gate of a seed's run."""
    return (0, 2)[seed % 2], tuple(DriftGate)[seed // 2 % 2]


@pytest.mark.parametrize("seed", range(20))
def test_the_weights_hold_what_the_ledger_says_after_crashes_at_random_points(seed: int) -> None:
    horizon, gate = settings_of(seed)
    World(seed, ProvenLog() if seed < 4 else Log(), horizon=horizon, gate=gate).play(900)


def test_each_rule_of_the_client_has_a_case() -> None:
    assert set(FOUND_BY) == {rule.name for rule in dataclasses.fields(Rules)}


@pytest.mark.parametrize(("rule", "seed"), FOUND_BY.items())
def test_a_client_that_breaks_a_rule_does_harm(rule: str, seed: int) -> None:
    for tried in (seed, *range(100)):
        horizon, gate = settings_of(tried)
        try:
            World(tried, Log(), Rules(**{rule: False}), horizon=horizon, gate=gate).play(900)
        except Harm:
            return
    pytest.fail(f"without {rule} the simulation finds no harm: it would not find ours either")
