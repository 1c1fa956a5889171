"""Over recorded histories: each policy's proof is what a plain reading of the log says, and a what-if without other
rules changes nothing."""

from collections.abc import Iterator

import pytest

from rollbook.replay.audit.rules import Instead
from rollbook.replay.audit.whatif import what_if
from rollbook.replay.audit.whatif_report import UNMEASURED, Stage
from rollbook.replay.prove.proof import Membership
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.tests.replay.recorded_histories import Recorded, recorded

NAMES = ("every-record", "walk-gate", "walk-observe", "trl-gate", "trl-observe", "trl-asynchronous", "trl-resumed")


def expected(found: Recorded, version: int | None) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Update, trajectory and steps of all that a policy and its ancestors name."""
    while version is not None:
        for update_id in found.added.get(version, ()):
            steps = found.steps.get(update_id, ())
            for name in {name for step in steps for name in step}:
                yield update_id, name, tuple(number for number, step in enumerate(steps) if name in step)
        version = found.sources[version]


@pytest.mark.parametrize("name", NAMES)
def test_a_proof_is_what_a_plain_reading_says(name: str) -> None:
    found = recorded(name)
    assert found.sources
    for version in found.sources:
        proof = prove(found.log, found.stretch, OfPolicy(version))
        rows = [one for one in proof.trajectories if one.membership is Membership.IN_WEIGHTS]
        assert {(one.update_id, one.trajectory_id, one.steps) for one in rows} == set(expected(found, version))
        assert len(rows) == len(set(expected(found, version)))
        assert all(one.task == found.tasks.get(one.trajectory_id) for one in proof.trajectories)


@pytest.mark.parametrize("name", NAMES)
def test_without_other_rules_every_judgement_is_the_same(name: str) -> None:
    """But for rows that were trained on without one."""
    found = recorded(name)
    for run in what_if(found.log, found.stretch, Instead()).runs:
        judged = [one for one in run.counts if one.stage is not Stage.TRAIN]
        assert all(one.was == one.would for one in judged)
        assert run.within_reach == ()
        if not run.observed:
            assert {one.reason for one in run.counts if one.stage is Stage.TRAIN} <= {"trained", UNMEASURED}
