"""Recordings of optimizer steps: sealed after the commit, and never in the way of the training."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rollbook.producers import Options, RowArrays, StepArrays, Trainer, Update, read_payload
from rollbook.schemas.codec import decode_as
from rollbook.schemas.digests import digest_of_digests, floats_of
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.payload import (
    ArrayName,
    Cohort,
    CohortMember,
    GrpoConfig,
    Kernel,
    OldSource,
    StepRecording,
)
from rollbook.schemas.records.update import Commit, RecordingSealed
from rollbook.tests.producers.world import POLICY, World

CONFIG = GrpoConfig(
    advantage_estimator="grpo",
    n_samples_per_prompt=1,
    grpo_std_normalization=False,
    kl_loss_type="k1",
    kl_coef=0.0,
    eps_clip=0.2,
    eps_clip_high=0.28,
    entropy_coef=0.0,
)
KERNEL = Kernel(implementation="toy", package="toy", version="1", function="loss")


def step_of(trajectory_id: str) -> StepArrays:
    return StepArrays(
        consumer_batch_id="batch-0",
        policy=POLICY,
        config=CONFIG,
        cohorts=[
            Cohort(
                cohort_id="c-0",
                group_id="g-0",
                members=(CohortMember(trajectory_id=trajectory_id, raw_reward=1.0),),
            )
        ],
        rows=[RowArrays(trajectory_id, "g-0", "mb-0000", 3, [1, 1, 1, 0, 1], 0.0)],
        arrays={ArrayName.LOG_PROBS: np.arange(5), ArrayName.ENTROPY: np.ones(5)},
        old_source=OldSource.ROLLOUT,
        results={"loss": np.float32(0.5), "pg_loss": 0.5},
        kernel=KERNEL,
        row_terms={"pg_loss": [np.float32(0.25)]},
    )


def train(run: World, trainer: Trainer, steps: list[dict[str, Any]]) -> Update:
    """One update that records a step for each change of `step_of`."""
    trainer.start()
    (trajectory_id,) = run.group(1)
    with trainer.update(rollout_id=5) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        (loaded,) = update.load()
        update.admit({trajectory_id: loaded.log_probs}, POLICY)
        update.start()
        for change in steps:
            update.record_step(update.step([trajectory_id]), replace(step_of(trajectory_id), **change))
    return update


def test_recordings_are_sealed_after_the_commit(run: World) -> None:
    with Trainer(run.settings, run.run_id, "learner-0", rank=3) as trainer:
        update = train(run, trainer, [{}, {"epoch": 1}])
    records = run.records()
    (commit,) = [record for record in records if isinstance(record, Commit)]
    (sealed,) = [record for record in records if isinstance(record, RecordingSealed)]
    assert records.index(commit) < records.index(sealed)
    assert commit.expected_ranks == (sealed.rank,) == (3,)
    assert [(one.rollout_id, one.step_id) for one in sealed.recordings] == [(5, 0), (5, 1)]
    assert sealed.digest == digest_of_digests([one.payload.sha256 for one in sealed.recordings])
    first, second = (decode_as(StepRecording, read_payload(run.settings, one.payload)) for one in sealed.recordings)
    assert (first.update_id, first.step_id, first.epoch, second.epoch) == (update.update_id, 0, 0, 1)
    assert floats_of(first.arrays[0].data).tolist() == [0, 1, 2, 3, 4]
    assert (first.rows[0].loss_mask, first.results[0].value) == (b"\x01\x01\x01\x00\x01", 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"results": {"loss": float("nan")}}, "StepRecording: field results.loss.value:"),
        (
            {"arrays": {ArrayName.KL: np.zeros(4)}},
            "StepRecording: field arrays.kl: 4 elements for 5",
        ),
        ({"row_terms": {"pg_loss": []}}, "StepRecording: field row_terms.pg_loss: 0 values for 1 rows"),
        ({"rows": [], "arrays": {}, "row_terms": {}}, "StepRecording: field rows:"),
        ({"rows": [None]}, "step 1 of update .* cannot be recorded"),
        ({"arrays": {ArrayName.KL: ["a"] * 5}}, "StepRecording: field arrays.kl: its elements are texts"),
    ],
)
def test_a_recording_that_fails_costs_the_seal_and_not_the_training(
    run: World, change: dict[str, Any], message: str
) -> None:
    errors: list[RollbookError] = []
    with Trainer(run.settings, run.run_id, "learner-0", options=Options(on_error=errors.append)) as trainer:
        train(run, trainer, [{}, change])
        assert trainer.may_export
    assert len(errors) == 2
    assert re.match(message, str(errors[0]))
    assert "rank 0 of update" in str(errors[1])
    assert [one.outcome for one in run.decisions("Commit")] == [Outcome.ACCEPTED]
    assert run.decisions("RecordingSealed") == []


@pytest.mark.parametrize("rank", ["1", -1, True, [1], 2**63])
def test_what_is_no_rank_costs_the_seal_and_not_the_commit(run: World, rank: Any) -> None:
    errors: list[RollbookError] = []
    with Trainer(run.settings, run.run_id, "learner-0", options=Options(on_error=errors.append)) as trainer:
        trainer.start()
        (trajectory_id,) = run.group(1)
        with trainer.update(rollout_id=5) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            (loaded,) = update.load()
            update.admit({trajectory_id: loaded.log_probs}, POLICY)
            update.start()
            update.record_step(update.step([trajectory_id]), step_of(trajectory_id), rank=rank)
            update.record_again("recording")  # type: ignore[arg-type]
        assert trainer.may_export
    assert re.match("rank is .*: give a whole number from 0 on", str(errors[0]))
    assert str(errors[1]) == "recording is a str, and must be a StepRecording: give one that was read back"
    assert [one.outcome for one in run.decisions("Commit")] == [Outcome.ACCEPTED]
