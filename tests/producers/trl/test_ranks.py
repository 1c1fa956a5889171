"""The synchronous trainer in two processes (gloo on the CPU), on the real broker."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import Options, new_id
from rollbook.producers.trl import StepFacts
from rollbook.replay.bundle.reading.cohort import read_cohort
from rollbook.replay.materialize.report import NotWritten
from rollbook.schemas.digests import floats_of, mask_of
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.payload import ArrayName, StepRecording, World
from rollbook.schemas.records.run import Enforcement
from rollbook.schemas.records.update import Commit
from rollbook.tests.producers.trl import jobs, processes
from rollbook.tests.producers.trl.jobs import Loss, Training
from rollbook.tests.producers.trl.records import accepted, check_consistent, decisions, records
from rollbook.tests.producers.trl.replayed import bundles_in, replays
from rollbook.tests.producers.trl.sampler import Sampler
from rollbook.tests.producers.trl.tiny import Shape

SHAPE = Shape("dapo", options={"num_generations": 8, "steps_per_generation": 4})
"""Two rows a process and micro-batch, two micro-batches a step, two steps a pass, two passes: sixteen rows a buffer are
two groups of eight; with `SPANNING`, one group of sixteen of which each process has a half."""
SPANNING = Shape("grpo", "batch", options={"num_generations": 16})
SAVING = Shape("dapo", options={**SHAPE.options, "save_strategy": "steps", "save_steps": 5})
DRIFTED = (1, 8, 14, 15)
DRIFTS = tuple(5.0 if at in DRIFTED else 0.02 for at in range(16))
NOWHERE = Settings(bootstrap_servers="127.0.0.1:9")
IMPATIENT = Options(connect_timeout_s=0.5, close_timeout_s=1.0)
ALL = bool(os.environ.get("ROLLBOOK_TRL_ALL"))
COMMANDS = ("Generated", "Reserve", "Admit", "UpdateStarted", "Commit", "RecordingSealed", "PolicyPrepared", "Activate")


def test_two_processes_train_as_without_the_ledger_and_are_one_learner(processed: Settings, tmp_path: Path) -> None:
    gate, observe, spanning, resumed, drifted = (f"trl-{new_id()}" for _ in range(5))
    wanted = {
        "plain": Training(SAVING),
        "gate": Training(SHAPE, gate),
        "observe": Training(SHAPE, observe, Enforcement.OBSERVE),
        "plain spanning": Training(SPANNING),
        "spanning": Training(SPANNING, spanning),
        "saved": Training(SAVING, resumed),
        "plain resumed": Training(SAVING, resumes="plain/checkpoint-5"),
        "resumed": Training(SAVING, resumed, resumes="saved/checkpoint-5"),
        "plain masked": Training(SHAPE, sampler=Sampler(DRIFTS), masked=DRIFTED),
        "drifted": Training(SHAPE, drifted, sampler=Sampler(DRIFTS), limits={"max_mean_abs_log_ratio": 0.1}),
        "observed nowhere": Training(SHAPE, f"trl-{new_id()}", Enforcement.OBSERVE, IMPATIENT, NOWHERE),
        "gated nowhere": Training(SHAPE, f"trl-{new_id()}", Enforcement.GATE, IMPATIENT, NOWHERE),
        "all refused": Training(
            SHAPE, f"trl-{new_id()}", sampler=Sampler((5.0,) * 15 + (0.0,)), limits={"max_mean_abs_log_ratio": 0.1}
        ),
        "taken over": Training(SHAPE, f"trl-{new_id()}", is_taken_over=True),
    }
    main, other = processes.run(2, jobs.trainings, tmp_path, processed, wanted)

    # Nothing that the ledger does changes a bit of the weights, in any process.
    for plain, recorded in (
        ("plain", ("gate", "observe", "observed nowhere", "saved")),
        ("plain spanning", ("spanning",)),
        ("plain resumed", ("resumed",)),
        ("plain masked", ("drifted",)),
    ):
        for name in (plain, *recorded):
            assert main[name].error == other[name].error == ""
            assert main[name].weights == other[name].weights == main[plain].weights, name
    assert main["gate"].lost == main["observe"].lost == 0

    # One update a buffer for all ranks, one step an optimizer step, a sealed recording a rank.
    for run_id in (gate, observe, spanning):
        found = decisions(processed, run_id)
        assert [
            (one.record_type, one.reason) for one in found if one.outcome is Outcome.REJECTED or one.violation
        ] == []
        assert [accepted(found, kind) for kind in COMMANDS] == [32, 2, 2, 2, 2, 4, 2, 2]
        commits = [one for one in records(processed, Topic.LIFECYCLE, run_id) if isinstance(one, Commit)]
        assert [(one.expected_ranks, len(one.steps)) for one in commits] == [((0, 1), 4)] * 2
        assert [len(step.trajectory_ids) for one in commits for step in one.steps] == [8] * 8

    # What each rank recorded is what TRL computed there.
    for name, plain in (("gate", "plain"), ("observe", "plain"), ("spanning", "plain spanning")):
        run_id, seen = wanted[name].run_id, main[name].seen
        recordings = [one for one in records(processed, Topic.PAYLOADS, run_id) if isinstance(one, StepRecording)]
        assert len(recordings) == len(seen) == 16
        for rank, of_rank in enumerate((main, other)):
            mine = sorted(
                (one for one in recordings if one.rank == rank), key=lambda one: (one.rollout_id, one.step_id)
            )
            check_rank(mine, [step for step in seen if step.rank == rank], of_rank[plain].losses)
    assert len({row.identity.group_id for row in main["spanning"].seen[0].generation.rows}) == 1

    # And each rank's share is computed again out of the log, with what the others have of its groups.
    replayed = {spanning: SPANNING, drifted: SHAPE, **({gate: SHAPE, observe: SHAPE} if ALL else {})}
    for run_id, shape in replayed.items():
        report = bundles_in(processed, run_id, tmp_path / run_id)
        assert (report.problems, report.without_update) == ((), ())
        assert [one.samples for one in report.steps] == [8] * 8
        for written in report.written:
            replays(written.path, shape)
            assert len(read_cohort(written.path).bundles) == (1 if written.step_id is None else 2)

    # Resumed within a buffer, the learner starts anew once, and trains what the weights have seen of it.
    check_consistent(processed, resumed)
    assert accepted(decisions(processed, resumed), "LearnerStarted") == 2
    commits = [one for one in records(processed, Topic.LIFECYCLE, resumed) if isinstance(one, Commit)]
    assert {one.expected_ranks for one in commits} == {(0, 1)}, "each rank's share was recorded once, and is told again"
    problems = bundles_in(processed, resumed, tmp_path / resumed).problems
    assert {one.reason for one in problems} == {NotWritten.ROLLED_BACK}

    # Rows that drifted leave the loss wherever they are, and its tokens everywhere.
    admits = [one for one in decisions(processed, drifted) if one.record_type == "Admit"]
    assert [[at for at, item in enumerate(one.items) if item.reason == "policy_drift"] for one in admits] == [
        list(DRIFTED)
    ] * 2

    # A dead broker costs an observed training a warning; a gated one ends in every process, and none waits for another.
    assert main["observed nowhere"].lost > 0
    assert main["gated nowhere"].error.startswith("EnvironmentFault: no Kafka broker answers")
    assert other["gated nowhere"].error.startswith("RankFailed: process 0 of the training failed")
    assert main["all refused"].error.startswith("StartAnew: update")
    assert "NothingReleased" in other["all refused"].error
    # Also what the last commit became of, which is made in the background, all hear.
    assert main["taken over"].error.startswith("LearnerFenced")
    assert "LearnerFenced" in other["taken over"].error


def check_rank(recordings: Sequence[StepRecording], steps: Sequence[StepFacts], losses: Sequence[Loss]) -> None:
    assert [(one.rollout_id, one.step_id, one.epoch) for one in recordings] == [
        (rollout, step, step // 2) for rollout in (0, 1) for step in range(4)
    ]
    for recording, step, first in zip(recordings, steps, range(0, len(losses), 2), strict=True):
        micro = losses[first : first + 2]
        assert recording.world == World(dp=2)
        assert len({one.micro_batch_id for one in recording.rows}) == 2
        assert {one.name: one.value for one in recording.results}["loss"] == pytest.approx(
            sum(one.loss for one in micro)
        )
        arrays = {one.name: floats_of(one.data) for one in recording.arrays}
        at = 0
        rows = [(one, row) for one in micro for row in range(2)]
        for row, fact, (loss, index) in zip(recording.rows, step.rows, rows, strict=True):
            length = len(mask_of(row.loss_mask))
            assert row.trajectory_id == fact.trajectory_id
            assert fact.response_ids.tolist() == loss.response_ids[index, :length].tolist()
            assert mask_of(row.loss_mask).tolist() == loss.mask[index, :length].astype(bool).tolist()
            assert not loss.mask[index, length:].any()
            assert arrays[ArrayName.LOG_PROBS][at : at + length].tolist() == loss.log_probs[index, :length].tolist()
            assert set(arrays[ArrayName.ADVANTAGES][at : at + length].tolist()) == {np.float32(loss.advantages[index])}
            at += length
        assert at == len(arrays[ArrayName.LOG_PROBS])
