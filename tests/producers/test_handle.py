"""One process reserves, another trains and commits: an update handed over on the real broker."""

import pytest

from rollbook.producers import OutOfOrder, Phase, StartAnew, Trainer, UpdateHandle
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import LearnerRef
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.run import DriftGate
from rollbook.tests.producers.test_update import admit_all, state_of
from rollbook.tests.producers.world import PATIENT, POLICY, World


def other(run: World, learner_id: str = "learner-0") -> Trainer:
    """A client of the same learner, as another process would have one; it does not start the learner."""
    return Trainer(run.settings, run.run_id, learner_id, options=PATIENT)


def hand_over(run: World, trainer: Trainer, *, admitted: bool = False) -> UpdateHandle:
    """A claimed update's handle, as text on the way."""
    with trainer.update(rollout_id=3) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        if admitted:
            admit_all(update)
        handle = update.handle()
    assert update.phase is Phase.HANDED_OVER
    return UpdateHandle.from_json(handle.to_json())


def test_one_process_reserves_and_another_trains_and_commits(run: World, trainer: Trainer) -> None:
    group = run.group(2)
    handle = hand_over(run, trainer)
    assert not trainer.may_export, "the weights are elsewhere"
    with pytest.raises(OutOfOrder, match="so that its weights are in another process"):
        trainer.checkpoint_saved("too late", "d", POLICY)
    with other(run) as training:
        with training.adopt(handle) as update:
            assert not training.may_export, "nobody has said where its weights come from"
            assert {item.trajectory_id for item in update.held} == set(group)
            admit_all(update)
            update.start()
            update.step(update.trainable)
        assert (update.phase, training.own_updates) == (Phase.COMMITTED, 1)
        assert training.may_export
        assert training.learner == trainer.learner
    (commit,) = run.decisions("Commit")
    assert commit.outcome is Outcome.ACCEPTED
    assert len(run.decisions("LearnerStarted")) == 1
    assert run.decisions("Abort") == []


def test_what_was_admitted_before_stays_so_and_parts_go_on(run: World, trainer: Trainer) -> None:
    first = run.group(1)
    handle = hand_over(run, trainer, admitted=True)
    second = run.group(1, first_seed=5)
    with other(run) as training, training.adopt(handle) as update:
        assert set(update.admitted) == set(first)
        update.claim(POLICY, max_groups=1, wait_s=60)
        (added,) = (one for one in update.load() if one.trajectory_id == second[0])
        update.admit({added.trajectory_id: added.log_probs}, POLICY)
        update.start()
        assert set(update.trainable) == {*first, *second}
        update.step(update.trainable)
    assert update.phase is Phase.COMMITTED


def test_a_handle_that_is_dropped_gives_the_rows_back(run: World, trainer: Trainer) -> None:
    group = run.group(1)
    with other(run) as training, training.adopt(hand_over(run, trainer)) as update:
        pass
    assert update.phase is Phase.ABORTED
    assert state_of(update, trainer, group) == {"rewarded"}


def test_a_handle_in_use_twice_stops_the_second_at_its_start(run: World, trainer: Trainer) -> None:
    run.group(1)
    handle = hand_over(run, trainer, admitted=True)

    def train_again() -> None:
        with second.adopt(handle) as update:
            update.start()

    with other(run) as first, other(run) as second:
        with first.adopt(handle) as update:
            update.start()
            with pytest.raises(StartAnew, match="the same handle or process image is in use twice"):
                train_again()
            update.step(update.trainable)
        assert not second.may_export
    assert [one.outcome for one in run.decisions("Commit")] == [Outcome.ACCEPTED]


def test_after_the_handle_nothing_can_be_done_here(run: World, trainer: Trainer) -> None:
    run.group(1)
    with trainer.update(rollout_id=0) as update:
        with pytest.raises(OutOfOrder, match="is new, this needs one that is open"):
            update.handle()
        update.claim(POLICY, max_groups=1, wait_s=60)
        update.handle()
        for call in (update.start, update.handle, lambda: update.step([])):
            with pytest.raises(OutOfOrder, match="handed over"):
                call()


def commit_adopted(training: Trainer, handle: UpdateHandle) -> None:
    with training.adopt(handle) as update:
        update.start()
        update.step(update.trainable)


def test_who_hands_over_reserves_more_for_the_same_process_and_never_trains_again(run: World, trainer: Trainer) -> None:
    def train() -> None:
        with trainer.update(rollout_id=4) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            update.start()

    run.group(1)
    first = hand_over(run, trainer, admitted=True)
    for seed in (5, 6, 7):
        run.group(1, first_seed=seed)
    second = hand_over(run, trainer, admitted=True)
    with other(run) as training, other(run) as third:
        with pytest.raises(OutOfOrder, match=rf"after {first.update_id}, which these weights lack"):
            training.adopt(second)
        commit_adopted(training, first)
        with pytest.raises(OutOfOrder, match="which these weights lack"):
            third.adopt(second)
        commit_adopted(training, second)
        assert (training.own_updates, training.may_export) == (2, True)
        with pytest.raises(OutOfOrder, match=r"start, adopt, commit and export there"):
            train()
        with pytest.raises(OutOfOrder, match=r"start, adopt, commit and export there"):
            trainer.adopt(hand_over(run, training))
        assert not trainer.may_export
        assert not training.may_export, "it has handed one over itself"
    assert trainer.own_updates == 0


def test_an_update_open_before_the_handle_cannot_be_trained_on_after_it(ungated: World) -> None:
    with Trainer(ungated.settings, ungated.run_id, "learner-0", drift_gate=DriftGate.OFF, options=PATIENT) as trainer:
        trainer.start()
        ungated.group(1)
        started = trainer.update(rollout_id=0)
        started.claim(POLICY, max_groups=1, wait_s=60)
        started.start()
        ungated.group(1)
        with trainer.update(rollout_id=1) as handed:
            handed.claim(POLICY, max_groups=1, wait_s=60)
            handed.handle()
        with pytest.raises(OutOfOrder, match="so that its weights are in another process"):
            started.step(started.trainable)
        started.commit()
        assert not trainer.may_export, "what it commits itself does not bring the other's rows into its weights"


def test_nothing_is_handed_over_between_a_step_and_its_commit(ungated: World) -> None:
    with Trainer(ungated.settings, ungated.run_id, "learner-0", drift_gate=DriftGate.OFF, options=PATIENT) as trainer:
        trainer.start()
        ungated.group(1)
        with trainer.update(rollout_id=0) as stepped:
            stepped.claim(POLICY, max_groups=1, wait_s=60)
            stepped.start()
            stepped.step(stepped.trainable)
            ungated.group(1)
            with trainer.update(rollout_id=1) as later:
                later.claim(POLICY, max_groups=1, wait_s=60)
                with pytest.raises(OutOfOrder, match="commit it first"):
                    later.handle()
        assert trainer.may_export


def test_a_learner_that_starts_anew_has_its_weights_again(run: World, trainer: Trainer) -> None:
    run.group(1)
    hand_over(run, trainer)
    trainer.start(expected_epoch=trainer.learner.epoch)
    assert trainer.may_export


def test_a_started_update_cannot_be_handed_over(run: World, trainer: Trainer) -> None:
    run.group(1)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        update.start()
        with pytest.raises(OutOfOrder, match="is started"):
            update.handle()


def test_anothers_handle_is_refused(run: World, trainer: Trainer) -> None:
    mine = UpdateHandle(
        run_id=run.run_id,
        learner=trainer.learner,
        update_id="u",
        rollout_id=0,
        held=(),
        admitted=(),
        refused=(),
        reserve_part=1,
        admit_part=0,
        own_updates=0,
    )
    changes: list[tuple[dict[str, object], str]] = [
        ({"run_id": "another"}, "in run another, this trainer is learner-0"),
        ({"learner": LearnerRef(learner_id="learner-1", epoch=1)}, "the handle is of learner learner-1"),
        ({"learner": LearnerRef(learner_id="learner-0", epoch=999)}, "the handle is of epoch 999, this trainer acts"),
    ]
    for change, message in changes:
        with pytest.raises(OutOfOrder, match=message):
            trainer.adopt(mine.model_copy(update=change))


@pytest.mark.parametrize("text", ["", "{}", '{"run_id": "r"}', "[]"])
def test_what_is_no_handle_says_so_on_one_line(text: str) -> None:
    with pytest.raises(BadInput, match=r"^this is no handle of an update: .*hand over update\.handle\(\)$"):
        UpdateHandle.from_json(text)
