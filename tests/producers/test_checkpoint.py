"""Checkpoints on the real broker: what a new process may start from, and what becomes of what it does not contain."""

import pytest

from rollbook.producers import EpochConflict, OutOfOrder, Refused, Trainer, current_epoch
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.records.update import Checkpoint, CheckpointSaved
from rollbook.tests.producers.world import PATIENT, POLICY, World


def learner(run: World) -> Trainer:
    return Trainer(run.settings, run.run_id, "learner-0", drift_gate=DriftGate.OFF, options=PATIENT)


def start_again(run: World, trainer: Trainer, checkpoint: Checkpoint | None) -> Decision:
    return trainer.start(checkpoint, expected_epoch=current_epoch(run.settings, run.run_id, "learner-0"))


def train(trainer: Trainer) -> str:
    """An update of whatever group is there."""
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        update.start()
        update.step(update.trainable)
    return update.update_id


def save(trainer: Trainer) -> Checkpoint:
    checkpoint = Checkpoint(id=trainer.new_checkpoint_id(), digest="sha256-of-the-checkpoint")
    trainer.checkpoint_saved(checkpoint.id, checkpoint.digest, POLICY)
    return checkpoint


def changes(decision: Decision) -> dict[str, int]:
    return {change.predicate: change.count for change in decision.mass_changes}


def last_saved(run: World) -> CheckpointSaved:
    return [record for record in run.records() if isinstance(record, CheckpointSaved)][-1]


def test_a_process_that_starts_from_a_checkpoint_keeps_what_it_contains(ungated: World) -> None:
    run = ungated
    run.group(1)
    with learner(run) as trainer:
        trainer.start()
        first = train(trainer)
        checkpoint = save(trainer)
        lost = run.group(1)
        train(trainer)
    with learner(run) as trainer:
        assert changes(start_again(run, trainer, checkpoint)) == {
            "updates rolled back": 1,
            "trajectories rolled back": 1,
        }
        assert (trainer.own_updates, trainer.last_update_id) == (1, first)
        save(trainer)  # nothing was trained since: its last update is the checkpoint's
        assert last_saved(run).last_update_id == first
        train(trainer)
        assert trainer.own_updates == 2
    assert run.decisions("Commit")[-1].items[0].trajectory_id == lost[0], "trained again in the surviving lineage"
    assert [one.outcome for one in run.decisions("CheckpointSaved")] == [Outcome.ACCEPTED] * 2


def test_a_checkpoint_of_the_initial_weights_contains_nothing(ungated: World) -> None:
    with learner(ungated) as trainer:
        trainer.start()
        checkpoint = save(trainer)
        assert last_saved(ungated).last_update_id is None
    with learner(ungated) as trainer:
        start_again(ungated, trainer, checkpoint)
        assert (trainer.own_updates, trainer.last_update_id) == (0, None)


def test_a_checkpoint_vouches_for_the_log_that_its_learner_had_read(ungated: World) -> None:
    with learner(ungated) as trainer:
        decision = trainer.start()
        save(trainer)
    assert last_saved(ungated).chain == decision.chain


def test_weights_between_step_and_commit_are_not_saved(ungated: World) -> None:
    ungated.group(1)
    with learner(ungated) as trainer:
        with pytest.raises(OutOfOrder, match="may not be exported"):
            trainer.checkpoint_saved("too early", "d", POLICY)
        trainer.start()
        with trainer.update(rollout_id=0) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            update.start()
            update.step(update.trainable)
            with pytest.raises(OutOfOrder, match="save between a commit that was read and the next step"):
                trainer.checkpoint_saved("within", "d", POLICY)
    assert ungated.decisions("CheckpointSaved") == []


def test_a_checkpoint_saved_again_gets_the_answer_of_before(ungated: World) -> None:
    ungated.group(1)
    with learner(ungated) as trainer:
        trainer.start()
        first = trainer.checkpoint_saved("c-0", "d", POLICY)
        again = trainer.checkpoint_saved("c-0", "d", POLICY)
        assert (first.outcome, again.outcome) == (Outcome.ACCEPTED, Outcome.DUPLICATE)
        train(trainer)
        with pytest.raises(Refused, match=r"CheckpointSaved of checkpoint c-0 at .*conflict.*; leave it"):
            trainer.checkpoint_saved("c-0", "d", POLICY)  # the id of other weights
        save(trainer)


def test_an_unknown_checkpoint_is_refused(ungated: World) -> None:
    with learner(ungated) as trainer, pytest.raises(Refused, match=r"unknown_checkpoint: .*; start from"):
        trainer.start(Checkpoint(id="nobody's", digest="d"))


def test_another_process_is_told_to_reload_the_weights(ungated: World) -> None:
    with learner(ungated) as trainer:
        trainer.start()
        checkpoint = save(trainer)
    with (
        learner(ungated) as late,
        pytest.raises(EpochConflict, match=r"export nothing and exit.*reloads the weights of the learner's last check"),
    ):
        late.start(checkpoint)


def test_the_epoch_is_in_the_names_of_checkpoints(ungated: World) -> None:
    with learner(ungated) as trainer:
        with pytest.raises(OutOfOrder, match="not started"):
            trainer.new_checkpoint_id()
        trainer.start()
        epoch = trainer.learner.epoch
        ids = {trainer.new_checkpoint_id() for _ in range(10)}
        assert len(ids) == 10
        assert all(one.startswith(f"learner-0-e{epoch}-") for one in ids)
