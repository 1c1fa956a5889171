"""Recordings of an open update's steps in a checkpoint folder: what was recorded once is told again, or nothing is."""

import logging
from pathlib import Path

import numpy as np
import pytest

from rollbook.producers.observing.facts import ObservedRow
from rollbook.producers.trl.resuming import Resumed, Standing, _recorded
from rollbook.producers.trl.saved import STEPS, OpenPart, Saved, read_steps, write
from rollbook.schemas.records.common import LearnerRef, PolicyRef
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.update import Checkpoint
from rollbook.tests.replay.story_parts import recording_of, row_of

OPEN = OpenPart(update_id="u0", rollout_id=3, steps=(("a.0",),))
POLICY = PolicyRef(version=9, artifact_hash="weights-0")


def saved(part: OpenPart | None = OPEN) -> Saved:
    return Saved(
        run_id="run-a",
        learner_id="learner-0",
        checkpoint=Checkpoint(id="c", digest="c" * 64),
        step=5,
        policy=POLICY,
        next_rollout_id=4,
        open=part,
    )


def recording() -> StepRecording:
    rows = [row_of(name, "a", 1.0, length=4, seed=seed) for seed, name in enumerate(("a.0", "a.1"))]
    return recording_of("run-a", LearnerRef(learner_id="learner-0", epoch=0), "u0", 0, rows)


def rows() -> list[ObservedRow]:
    return [ObservedRow(name, [(np.zeros(4), np.ones(4, bool))], np.zeros(4)) for name in ("a.0", "a.1")]


def test_what_was_recorded_is_read_again_and_a_folder_that_is_written_anew_keeps_none(tmp_path: Path) -> None:
    write(tmp_path, saved(), rows(), [recording()])
    assert read_steps(tmp_path) == (recording(),)
    write(tmp_path, saved(None), [])
    assert read_steps(tmp_path) == ()


def test_recordings_that_cannot_be_read_stop_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, saved(), rows(), [recording()])
    whole = (tmp_path / STEPS).read_bytes()
    for damaged in (whole[:40], b"", whole.replace(b"weights-0", b"weights-\xff")):
        (tmp_path / STEPS).write_bytes(damaged)
        with caplog.at_level(logging.WARNING, "rollbook.producers"):
            assert read_steps(tmp_path) == ()
        assert "its steps are told without recordings" in caplog.messages[-1]


def test_they_are_told_under_the_policy_as_the_run_numbers_it() -> None:
    resumed, found = Resumed(saved(), steps=(recording(),)), Standing(POLICY, None, 9, {})
    (again,) = _recorded(resumed, found, {"a.0"}, {"a.0", "a.1"})
    assert (again.policy, again.rows) == (POLICY, recording().rows)


@pytest.mark.parametrize(("trainable", "held"), [(set(), {"a.0", "a.1"}), ({"a.0"}, {"a.0"}), (set(), set())])
def test_nothing_is_told_of_steps_whose_rows_are_not_all_there(trainable: set[str], held: set[str]) -> None:
    resumed, found = Resumed(saved(), steps=(recording(),)), Standing(POLICY, None, 9, {})
    assert _recorded(resumed, found, trainable, held) == []
