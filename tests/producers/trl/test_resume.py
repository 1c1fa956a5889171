"""A training that is saved, dies and goes on: what the ledger says of it, and that the weights are plain TRL's."""

import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import LearnerFenced, Refused, StartAnew, Trainer, current_epoch, new_id
from rollbook.producers.trl import LedgerRun
from rollbook.producers.trl.resuming import DROPPED
from rollbook.producers.trl.saved import NAME, ROWS, NotOurs, read, read_steps
from rollbook.producers.trl.watcher import Watcher
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.materialize.walk import Wanted
from rollbook.replay.updates.replayed import UpdateOutcome, replay_history
from rollbook.schemas.records.policy import PolicyPrepared
from rollbook.schemas.records.run import Enforcement
from rollbook.schemas.records.update import Commit, LearnerStarted
from rollbook.tests.producers.trl import processes
from rollbook.tests.producers.trl.dying import OFTEN, SHAPE, die_after, die_at
from rollbook.tests.producers.trl.records import check_consistent, decisions, records
from rollbook.tests.producers.trl.replayed import says_the_same_in_a_file
from rollbook.tests.producers.trl.tiny import Shape, fingerprint, make
from rollbook.tests.producers.world import PATIENT

ALL = bool(os.environ.get("ROLLBOOK_TRL_ALL"))
WHOLE = replace(SHAPE, options={"save_strategy": "steps", "save_steps": 4})


def ledger(settings: Settings, run_id: str, enforcement: Enforcement = Enforcement.GATE) -> LedgerRun:
    return LedgerRun(settings, run_id, enforcement=enforcement, options=PATIENT)


def trained(folder: Path, shape: Shape, run: LedgerRun | None = None, resume: str | bool | None = None) -> Any:
    trainer = make(folder, shape, run)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@pytest.mark.skipif(not ALL, reason="one of the nightly tests: set ROLLBOOK_TRL_ALL=1")
@pytest.mark.parametrize("seed", range(6))
def test_a_training_that_is_killed_anywhere_and_more_than_once_leaves_a_consistent_ledger(
    processed: Settings, tmp_path: Path, seed: int
) -> None:
    run_id, chance = f"trl-{new_id()}", random.Random(seed)
    for life in range(4):
        seconds = chance.uniform(0.5, 3.5) + 2.0 * (life == 0)
        (process,), pipes = processes.start(1, die_after, tmp_path, ledger(processed, run_id), seconds)
        process.join(120)
        if process.exitcode != -signal.SIGALRM:  # it was through before
            processes.result(0, pipes[0])
            break
        for folder in tmp_path.glob("checkpoint-*"):
            if not (folder / NAME).exists():  # TRL was killed while it saved
                shutil.rmtree(folder)
        assert any(tmp_path.glob("checkpoint-*"))
    trained(tmp_path, OFTEN, ledger(processed, run_id), resume=True)
    check_consistent(processed, run_id)


@pytest.mark.parametrize("enforcement", list(Enforcement) if ALL else [Enforcement.GATE])
def test_what_was_trained_after_the_checkpoint_is_undone_and_what_is_in_its_weights_is_not(
    processed: Settings, tmp_path: Path, enforcement: Enforcement
) -> None:
    plain = trained(tmp_path / "plain", SHAPE)
    resumed_plainly = trained(tmp_path / "plain", SHAPE, resume=str(tmp_path / "plain/checkpoint-5"))
    run_id, folder = f"trl-{new_id()}", tmp_path / "with"
    first = trained(folder, SHAPE, ledger(processed, run_id, enforcement))
    second = trained(folder, SHAPE, ledger(processed, run_id, enforcement), str(folder / "checkpoint-5"))
    assert fingerprint(first) == fingerprint(plain)
    assert fingerprint(second) == fingerprint(resumed_plainly)
    assert fingerprint(first) != fingerprint(second), "TRL drops the buffer that it had half used"
    assert (first.ledger_lost, second.ledger_lost) == (0, 0)
    check_consistent(processed, run_id)
    with KafkaLog(processed) as log:
        replayed = list(replay_history(log, Wanted.of_run(run_id, log, processed)).updates)
    passed, undone = UpdateOutcome.PASSED, UpdateOutcome.ROLLED_BACK
    assert [one.outcome for one in replayed] == [passed, undone, passed, passed], [one.problems for one in replayed]
    says_the_same_in_a_file(processed, run_id, 12, {passed: 3, undone: 1}, tmp_path / "history")

    saved, rows = read(folder / "checkpoint-5")
    assert saved.open is not None
    assert (saved.step, len(saved.open.steps), len(rows)) == (5, 1, 8)
    (again,) = (
        one
        for one in records(processed, Topic.LIFECYCLE, run_id)
        if isinstance(one, Commit) and one.dropped and one.update_id != saved.open.update_id
    )
    assert tuple(step.trajectory_ids for step in again.steps) == saved.open.steps
    assert {one.reason for one in again.dropped} == {DROPPED}
    assert {one.trajectory_id for one in again.dropped} == {row.trajectory_id for row in rows} - {*saved.open.steps[0]}
    # Versions rise, although TRL's steps fall back: 9 is step 5, and 12 is step 8 once more.
    prepared = [one for one in records(processed, Topic.LIFECYCLE, run_id) if isinstance(one, PolicyPrepared)]
    assert [one.version for one in prepared] == [4, 8, 9, 12]
    assert prepared[3].label == prepared[1].label, "the label is TRL's own number"
    assert prepared[2].update_ids == (again.update_id,)


def picky(completions: list[str], **_: Any) -> list[float | None]:
    """Has no opinion on every other one."""
    return [None if at % 2 else len(set(text)) / 8 for at, text in enumerate(completions)]


def test_rows_that_the_ledger_refused_at_first_are_in_the_recordings_that_are_told_again(
    processed: Settings, tmp_path: Path
) -> None:
    run_id = f"trl-{new_id()}"
    make(tmp_path, SHAPE, ledger(processed, run_id), reward_funcs=[picky]).train()
    resumed = make(tmp_path, SHAPE, ledger(processed, run_id), reward_funcs=[picky])
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    check_consistent(processed, run_id)
    (recording,) = read_steps(tmp_path / "checkpoint-5")
    saved, _ = read(tmp_path / "checkpoint-5")
    assert saved.open is not None
    assert {row.trajectory_id for row in recording.rows} > set(saved.open.steps[0])
    with KafkaLog(processed) as log:
        replayed = list(replay_history(log, Wanted.of_run(run_id, log, processed)).updates)
    passed, undone = UpdateOutcome.PASSED, UpdateOutcome.ROLLED_BACK
    assert [one.outcome for one in replayed] == [passed, undone, passed, passed], [one.problems for one in replayed]


@pytest.mark.parametrize("is_killed", [False, True] if ALL else [False])
def test_a_training_that_dies_within_a_buffer_goes_on_in_the_same_run(
    processed: Settings, tmp_path: Path, is_killed: bool
) -> None:
    """A process of its own, which can be killed, has to import TRL first: that one is killed at night."""
    trained(tmp_path / "plain", SHAPE)
    shutil.rmtree(tmp_path / "plain/checkpoint-8")
    plain = trained(tmp_path / "plain", SHAPE, resume=True)
    run_id, folder = f"trl-{new_id()}", tmp_path / "with"
    if is_killed:
        (process,), _ = processes.start(1, die_at, folder, ledger(processed, run_id), 6)
        process.join(120)
        assert process.exitcode == -signal.SIGKILL
    else:
        with pytest.raises(StartAnew) as raised:
            die_at(folder, ledger(processed, run_id), 6, fail)
        assert str(raised.value.__cause__) == "out of memory"
    second = trained(folder, SHAPE, ledger(processed, run_id), resume=True)
    assert fingerprint(second) == fingerprint(plain)
    check_consistent(processed, run_id)
    starts = [one for one in records(processed, Topic.LIFECYCLE, run_id) if isinstance(one, LearnerStarted)]
    assert starts[1].checkpoint == read(folder / "checkpoint-5")[0].checkpoint
    told = [one for one in decisions(processed, run_id) if one.record_type == "LearnerStarted"]
    assert {change.predicate: change.count for change in told[1].mass_changes} == {
        "updates aborted": 1,
        "trajectories released": 8,
    }


def fail() -> None:
    raise RuntimeError("out of memory")


def test_a_checkpoint_between_two_buffers_is_gone_on_from_as_it_is_and_one_that_was_undone_is_refused(
    processed: Settings, tmp_path: Path
) -> None:
    run_id, folder = f"trl-{new_id()}", tmp_path / "with"
    trained(folder, WHOLE, ledger(processed, run_id))
    shutil.copytree(folder / "checkpoint-8", folder / "kept-8")
    longer = replace(WHOLE, steps=12)
    trained(folder, longer, ledger(processed, run_id), str(folder / "checkpoint-8"))
    prepared = [one for one in records(processed, Topic.LIFECYCLE, run_id) if isinstance(one, PolicyPrepared)]
    assert [one.version for one in prepared] == [4, 8, 12], "nothing was undone: the weights are the active policy"
    trained(folder, WHOLE, ledger(processed, run_id), str(folder / "checkpoint-4"))
    prepared = [one for one in records(processed, Topic.LIFECYCLE, run_id) if isinstance(one, PolicyPrepared)]
    assert [(one.version, one.rollback_of) for one in prepared[3:]] == [(13, 4), (17, None)]
    check_consistent(processed, run_id)
    with pytest.raises(Refused, match="checkpoint_orphaned"):
        trained(folder, longer, ledger(processed, run_id), str(folder / "kept-8"))


def test_a_folder_that_the_ledger_cannot_vouch_for(
    processed: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = f"trl-{new_id()}"
    trained(tmp_path, SHAPE, ledger(processed, run_id))
    saved = str(tmp_path / "checkpoint-5")
    with pytest.raises(
        NotOurs, match=rf"is of learner trl in run {run_id}, and trl in another .* the run and the lear"
    ):
        trained(tmp_path, SHAPE, ledger(processed, "another"), saved)
    text = (tmp_path / "checkpoint-5" / NAME).read_text()
    (tmp_path / "checkpoint-5" / NAME).write_text(text.replace(read(Path(saved))[0].checkpoint.digest, "0" * 64))
    with pytest.raises(NotOurs, match=r"the weights are not those that .* was saved with"):
        trained(tmp_path, SHAPE, ledger(processed, run_id), saved)
    (tmp_path / "checkpoint-5" / NAME).write_text(text)
    (tmp_path / "checkpoint-5" / ROWS).write_bytes((tmp_path / "checkpoint-5" / ROWS).read_bytes()[:-9])
    with pytest.raises(NotOurs, match=r"rollbook-rows.npz cannot be read"):
        trained(tmp_path, SHAPE, ledger(processed, run_id), saved)
    (tmp_path / "checkpoint-5" / NAME).write_text("{")
    with pytest.raises(NotOurs, match=r"rollbook.json cannot be read"):
        trained(tmp_path, SHAPE, ledger(processed, run_id), saved)
    (tmp_path / "checkpoint-5" / NAME).unlink()
    with pytest.raises(NotOurs, match=r"rollbook.json is not there.*begin a new run from these weights"):
        trained(tmp_path, SHAPE, ledger(processed, run_id), saved)
    plain = trained(tmp_path, SHAPE, resume=saved)
    observed = trained(tmp_path, SHAPE, ledger(processed, run_id, Enforcement.OBSERVE), saved)
    assert fingerprint(observed) == fingerprint(plain)
    assert "training goes on unrecorded from here on: " in caplog.text
    assert "rollbook.json is not there" in caplog.text


def test_a_learner_that_was_fenced_saves_nothing(processed: Settings, tmp_path: Path) -> None:
    """Its folders are those of the process that took the learner over."""
    run_id = f"trl-{new_id()}"
    trainer = make(tmp_path, SHAPE, ledger(processed, run_id))
    compute = trainer._compute_loss

    def computed(model: Any, inputs: Any) -> Any:
        if trainer._step == 9:  # in the optimizer step after which TRL saves, within a buffer
            with Trainer(processed, run_id, "trl", options=PATIENT) as another:
                another.start(expected_epoch=current_epoch(processed, run_id, "trl"))
        return compute(model, inputs)

    trainer._compute_loss = computed
    with pytest.raises(LearnerFenced):
        trainer.train()
    assert trainer.state.global_step == 5
    assert not (tmp_path / "checkpoint-5").exists()


@pytest.mark.parametrize("tells_commit", [True, False])
def test_an_observed_training_that_died_before_it_told_of_its_checkpoint(
    processed: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tells_commit: bool,
) -> None:
    """Where the ledger has the checkpoint's updates, it is told late; where it lacks one, nothing can be recorded."""
    run_id = f"trl-{new_id()}"
    told: list[str] = []
    tell = Watcher.tell

    def tells(self: Watcher[Any], call: Any) -> None:
        """The thread lives until the first checkpoint, or until the commit before it."""
        name = call.__qualname__
        if "saved" in name or ("finish" in name and not tells_commit):
            told.append(name)
        if not told:
            tell(self, call)

    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "tell", tells)
        first = trained(tmp_path, SHAPE, ledger(processed, run_id, Enforcement.OBSERVE))
    caplog.clear()
    second = trained(tmp_path, SHAPE, ledger(processed, run_id, Enforcement.OBSERVE), str(tmp_path / "checkpoint-5"))
    assert (second.ledger_lost == 0) is tells_commit
    assert ("training goes on unrecorded from here on: CheckpointSaved" in caplog.text) is not tells_commit
    assert fingerprint(second) != fingerprint(first)
    if tells_commit:
        check_consistent(processed, run_id)
