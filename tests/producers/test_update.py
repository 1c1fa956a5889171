"""An update from claim to commit on the real broker with the real processor: what the block does on each way out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rollbook.processors.reasons import Reason
from rollbook.producers import (
    EpochConflict,
    LearnerFenced,
    NothingTaken,
    NotTrainable,
    ObservedRow,
    OutOfOrder,
    Phase,
    Refused,
    StartAnew,
    Trainer,
    Update,
    UpdateInDoubt,
    current_epoch,
)
from rollbook.schemas.codec import ContractViolation
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.records.update import Commit, Disposition, ReserveItem
from rollbook.tests.producers.world import MASK, PATIENT, POLICY, World, behavior_log_probs


def admit_all(update: Update, *, drifted: tuple[str, ...] = ()) -> Decision:
    """Admit everything that is held with log-probs near the behavior policy's; those named are 1 nat away."""
    loaded = update.load()
    current = {one.trajectory_id: one.log_probs - (1.0 if one.trajectory_id in drifted else 0.01) for one in loaded}
    return update.admit(current, POLICY)


def test_an_update_claims_loads_admits_and_commits(run: World, trainer: Trainer) -> None:
    group = run.group(2)
    with trainer.update(rollout_id=0) as update:
        claimed = update.claim(POLICY, max_groups=1, wait_s=60)
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


def test_who_published_rows_admits_them_unread_and_the_ledger_compares(run: World, trainer: Trainer) -> None:
    group = run.group(2)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        published = [
            ObservedRow(one, [(behavior_log_probs(seed), MASK)], behavior_log_probs(seed))
            for seed, one in enumerate(group)
        ]
        current = {one.trajectory_id: one.current_log_probs for one in published}
        forged = replace(published[1], behavior=[(behavior_log_probs(1) - 1, MASK)])
        answer = update.admit(current, POLICY, evidence=[published[0], forged])
        assert [item.reason for item in answer.items] == [Reason.OK, Reason.EVIDENCE_MISMATCH]
        update.start()
        assert update.trainable == (group[0],)
        update.step(update.trainable)


def started(run: World, trainer: Trainer, update: Update, *, size: int = 2) -> list[str]:
    """A claimed, admitted and started update of one group."""
    group = run.group(size)
    update.claim(POLICY, max_groups=1, wait_s=60)
    admit_all(update)
    update.start()
    return group


def state_of(update: Update, trainer: Trainer, group: list[str]) -> set[str]:
    """The state that the ledger has the trajectories in, asked by a Reserve that cannot pass."""
    items = [ReserveItem(trajectory_id=one, expected_revision=99) for one in group]
    with trainer.update(rollout_id=99) as probe, pytest.raises(Refused) as refusal:
        probe.reserve(items, POLICY)
    return {str(item.state_after) for item in refusal.value.decision.items}


def test_a_claim_that_finds_nothing_says_so(run: World, trainer: Trainer) -> None:
    with trainer.update(rollout_id=0) as update, pytest.raises(NothingTaken, match="nothing_taken"):
        update.claim(POLICY, max_groups=1)
    assert update.phase is Phase.NEW, "an update that holds nothing is left without a word"


def test_a_claim_waits_for_the_reward(run: World, trainer: Trainer) -> None:
    group = run.group(1, rewarded=False)
    with trainer.update(rollout_id=0) as update:
        with pytest.raises(NothingTaken):
            update.claim(POLICY, max_groups=1, wait_s=0.2)
        run.rewards.reward(group[0], 1.0)
        update.claim(POLICY, max_groups=1, wait_s=60)
        assert [item.trajectory_id for item in update.held] == group


def test_claims_add_up_and_load_reads_what_is_new(run: World, trainer: Trainer) -> None:
    first = run.group(1)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        before = update.load()
        second = run.group(1, first_seed=7)
        update.claim(POLICY, max_groups=1, wait_s=60)
        loaded = update.load()
        assert [one.trajectory_id for one in loaded] == [*first, *second]
        assert loaded[0] is before[0]


def test_rows_by_name_are_reserved_at_their_revision(run: World, trainer: Trainer) -> None:
    group = run.group(2)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        revisions = {item.trajectory_id: item.revision_before for item in update.held}
        update.abort("only to give them back")
    with trainer.update(rollout_id=1) as update:
        stale = [ReserveItem(trajectory_id=one, expected_revision=revisions[one] or 0) for one in group]
        with pytest.raises(Refused, match="revision_conflict"):
            update.reserve(stale, POLICY)
        assert set(update.refused) == set()
        fresh = [ReserveItem(trajectory_id=one, expected_revision=(revisions[one] or 0) + 2) for one in group]
        assert update.reserve(fresh, POLICY).outcome is Outcome.ACCEPTED


def test_a_drifted_row_leaves_the_update_and_the_others_are_trained(run: World, trainer: Trainer) -> None:
    group = run.group(3)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        admit_all(update, drifted=(group[1],))
        assert update.refused[group[1]].reason == "policy_drift"
        assert update.refused[group[1]].mean_abs_log_ratio == pytest.approx(1.0)
        update.start()
        assert set(update.trainable) == {group[0], group[2]}
        with pytest.raises(NotTrainable, match=rf"{group[1]}.*policy_drift"):
            update.step(group)
        update.step(update.trainable)
    assert update.phase is Phase.COMMITTED
    assert state_of(update, trainer, [group[1]]) == {"quarantined"}


def test_admitting_inside_the_training_forward_comes_after_the_start(run: World, trainer: Trainer) -> None:
    group = run.group(1)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        update.start()
        with pytest.raises(NotTrainable, match="no Admit"):
            update.step(group)
        admit_all(update)
        update.step(group)
    assert update.phase is Phase.COMMITTED


def test_rows_never_stepped_are_released_and_named_drops_discarded(run: World, trainer: Trainer) -> None:
    with trainer.update(rollout_id=0) as update:
        group = started(run, trainer, update, size=3)
        update.step(group[:1])
        update.drop(group[1:2], "too_long", disposition=Disposition.DISCARD)
        with pytest.raises(NotTrainable, match="trained on already"):
            update.drop(group[:1], "too_late")
        with pytest.raises(NotTrainable, match="it was dropped"):
            update.step(group[1:2])
    assert [state_of(update, trainer, [one]) for one in group] == [{"consumed"}, {"discarded"}, {"rewarded"}]


def test_several_steps_train_on_the_same_rows(run: World, trainer: Trainer) -> None:
    with trainer.update(rollout_id=4) as update:
        group = started(run, trainer, update)
        assert [update.step(group), update.step(group[:1])] == [0, 1]
    (committed,) = [record for record in run.records() if isinstance(record, Commit)]
    assert [(step.rollout_id, step.step_id, list(step.trajectory_ids)) for step in committed.steps] == [
        (4, 0, group),
        (4, 1, group[:1]),
    ]


def test_an_exception_before_the_start_aborts_and_gives_the_rows_back(run: World, trainer: Trainer) -> None:
    group = run.group(2)
    update = trainer.update(rollout_id=0)

    def fail() -> None:
        with update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert update.phase is Phase.ABORTED
    assert state_of(update, trainer, group) == {"rewarded"}
    assert trainer.may_export, "nothing was stepped"


def test_leaving_before_the_start_aborts(run: World, trainer: Trainer) -> None:
    group = run.group(2)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
    assert update.phase is Phase.ABORTED
    assert state_of(update, trainer, group) == {"rewarded"}


def fail_after_start(run: World, trainer: Trainer, failure: Callable[[Update, list[str]], None]) -> None:
    with trainer.update(rollout_id=0) as update:
        failure(update, started(run, trainer, update))


def divide(update: Update, group: list[str]) -> None:
    raise ZeroDivisionError("loss")


def interrupt(update: Update, group: list[str]) -> None:
    raise KeyboardInterrupt


def abort(update: Update, group: list[str]) -> None:
    update.abort("too late")


def test_an_exception_after_the_start_means_to_start_anew(run: World, trainer: Trainer) -> None:
    with pytest.raises(StartAnew, match=r"export no checkpoint.*start the learner anew") as anew:
        fail_after_start(run, trainer, divide)
    assert isinstance(anew.value.__cause__, ZeroDivisionError)
    assert not trainer.may_export
    with pytest.raises(StartAnew, match="over in this process"):
        trainer.update(rollout_id=1)


def test_ctrl_c_after_the_start_keeps_its_meaning(run: World, trainer: Trainer) -> None:
    with pytest.raises(KeyboardInterrupt) as stop:
        fail_after_start(run, trainer, interrupt)
    assert "start the learner anew" in stop.value.__notes__[0]
    assert not trainer.may_export


def test_a_started_update_cannot_be_aborted_by_its_learner(run: World, trainer: Trainer) -> None:
    with pytest.raises(UpdateInDoubt, match="start the learner anew"):
        fail_after_start(run, trainer, abort)
    assert not trainer.may_export


def test_an_operators_abort_fences_the_learner(run: World, trainer: Trainer) -> None:
    def burn(update: Update, group: list[str]) -> None:
        run.coordinator.abort(update.update_id, text="the machine burns")
        update.step(group)

    with pytest.raises(LearnerFenced, match="export nothing and exit"):
        fail_after_start(run, trainer, burn)
    assert not trainer.may_export


def test_a_second_process_takes_over_and_the_first_is_fenced(run: World, trainer: Trainer) -> None:
    epoch = trainer.learner.epoch
    with Trainer(run.settings, run.run_id, "learner-0", options=PATIENT) as second:
        with pytest.raises(EpochConflict, match=f"current epoch is {epoch}") as conflict:
            second.start()
        assert conflict.value.current_epoch == epoch == current_epoch(run.settings, run.run_id, "learner-0")
        with pytest.raises(StartAnew):
            second.start(expected_epoch=epoch)
    with Trainer(run.settings, run.run_id, "learner-0", options=PATIENT) as third:
        third.start(expected_epoch=current_epoch(run.settings, run.run_id, "learner-0"))
        assert third.learner.epoch > epoch
        with pytest.raises(LearnerFenced), trainer.update(rollout_id=0) as update:
            update.claim(POLICY, max_groups=1)


def test_the_epoch_of_a_learner_that_never_started_is_zero(run: World) -> None:
    assert current_epoch(run.settings, run.run_id, "nobody") == 0


def test_before_it_is_started_a_learner_can_do_nothing(run: World) -> None:
    with Trainer(run.settings, run.run_id, "learner-1") as idle, pytest.raises(OutOfOrder, match=r"trainer\.start"):
        idle.update(rollout_id=0)


def test_a_step_before_the_start_is_refused(run: World, trainer: Trainer) -> None:
    group = run.group(1)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        with pytest.raises(OutOfOrder, match="is open"):
            update.step(group)


def test_a_commit_out_of_order_is_not_sent(run: World, trainer: Trainer) -> None:
    group = run.group(1)
    with trainer.update(rollout_id=0) as update:
        with pytest.raises(OutOfOrder, match="is new"):
            update.commit()
        update.claim(POLICY, max_groups=1, wait_s=60)
        with pytest.raises(OutOfOrder, match="is open"):
            update.commit()
        admit_all(update)
        update.start()
        with pytest.raises(OutOfOrder, match="is started"):
            update.start()
        update.step(group)
        update.commit()
        with pytest.raises(OutOfOrder, match="is committed"):
            update.commit()
    assert trainer.may_export
    assert [one.outcome for one in run.decisions("Commit")] == [Outcome.ACCEPTED]


def test_an_iteration_that_is_no_number_is_refused_at_once(trainer: Trainer) -> None:
    odd: list[Any] = ["x", -1, 1.0, True, None, 2**63]
    for rollout_id in odd:
        with pytest.raises(ContractViolation, match=r"^Commit: field rollout_id"):
            trainer.update(rollout_id)


def test_a_refused_commit_means_to_start_anew(run: World) -> None:
    def train(trainer: Trainer) -> None:
        with trainer.update(rollout_id=0) as update:
            group = run.group(1)
            update.claim(POLICY, max_groups=1, wait_s=60)
            update.start()
            update.step(group)

    # A client that believes the drift gate to be off trains on what the ledger has not let through.
    with Trainer(run.settings, run.run_id, "learner-0", drift_gate=DriftGate.OFF, options=PATIENT) as trainer:
        trainer.start()
        with pytest.raises(StartAnew, match="not_admitted"):
            train(trainer)
        assert not trainer.may_export
