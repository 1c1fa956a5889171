"""The counterexamples of the protocol's model, rule by rule, through the fold: each ends as the rules say.

The model switched one rule off at a time and found the shortest way to harm. Rules that only a client can keep
(await_started, await_admit, quiescent, ck_fresh_id) are broken by simulated trainers in `test_trainers.py`; here is
what the fold says to what such a client sends.
"""

from rollbook.schemas.records.update import AbortDisposition, Checkpoint
from rollbook.tests.processors.history import History, reasons, says


def opened(**limits: int) -> History:
    history = History().opened(**limits)  # type: ignore[arg-type]
    return history.ready("t0", "t1", "t2")


def checkpoint(name: str) -> Checkpoint:
    return Checkpoint(id=name, digest=f"digest of {name}")


def test_ls_incarnation_two_processes_never_hold_one_epoch() -> None:
    history = opened()
    assert says(history.learner(incarnation="p0", expected=0)) == "accepted ok"
    assert says(history.learner(incarnation="p1", expected=0)) == "rejected epoch_conflict"
    assert says(history.again(2)) == "duplicate duplicate"
    assert says(history.learner(incarnation="p1")) == "accepted ok"
    assert says(history.learner(incarnation="p0", expected=0)) == "rejected epoch_conflict"


def test_ck_committed_a_checkpoint_of_an_unfinished_or_undone_update_is_refused() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    assert says(history.saved("c0", "u0")) == "rejected not_committed"
    history.started("u0")
    assert says(history.saved("c0", "u0")) == "rejected not_committed"
    history.admit("u0", {"t0": 0.0})
    history.commit("u0", "t0")
    history.learner()
    assert says(history.saved("c0", "u0")) == "rejected not_committed"
    assert says(history.saved("c0", "never heard of")) == "rejected not_committed"


def test_ck_known_no_start_from_a_file_whose_record_was_never_decided() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    assert says(history.learner(checkpoint=checkpoint("c0"))) == "rejected unknown_checkpoint"
    assert (history.update_status("u0"), history.status("t0")) == ("committed", "consumed")
    history.saved("c0", "u0")
    wrong = Checkpoint(id="c0", digest="of other content")
    assert says(history.learner(checkpoint=wrong)) == "rejected unknown_checkpoint"


def test_ck_orphan_no_start_from_a_checkpoint_whose_updates_were_rolled_back() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    history.saved("c0", "u0")
    history.learner()
    assert (history.update_status("u0"), history.status("t0")) == ("rolled_back", "rewarded")
    assert says(history.learner(checkpoint=checkpoint("c0"))) == "rejected checkpoint_orphaned"


def test_ck_by_content_what_was_committed_before_a_checkpoints_record_but_is_not_in_it_is_rolled_back() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    epoch = history.epoch()
    history.trained("u1", "t1")
    history.saved("c0", "u0", epoch=epoch)
    assert says(history.learner(checkpoint=checkpoint("c0"))) == "accepted ok"
    assert (history.update_status("u0"), history.update_status("u1")) == ("committed", "rolled_back")
    assert (history.status("t0"), history.status("t1")) == ("consumed", "rewarded")


def test_ck_fresh_id_a_checkpoint_that_is_written_over_is_a_conflict() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    history.saved("c0", "u0")
    history.trained("u1", "t1")
    assert says(history.saved("c0", "u1", digest="of what was written over it")) == "rejected conflict"
    assert says(history.again(6)) == "duplicate duplicate"


def test_ck_own_no_start_from_another_learners_checkpoint() -> None:
    history = opened()
    history.learner("a")
    history.trained("u0", "t0", learner="a")
    history.saved("c0", "u0", learner="a")
    assert says(history.learner("b", checkpoint=checkpoint("c0"))) == "rejected foreign_checkpoint"
    assert history.epoch("b") == 0


def test_abort_started_op_a_learner_inside_a_step_cannot_take_it_back_but_its_next_start_can() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.started("u0")
    assert says(history.abort("u0")) == "rejected update_in_doubt"
    assert history.status("t0") == "reserved"
    history.learner()
    assert (history.update_status("u0"), history.status("t0")) == ("aborted", "rewarded")


def test_abort_fences_after_an_operators_abort_of_a_started_update_nothing_of_that_process_counts() -> None:
    history = opened()
    history.learner()
    history.saved("c0")
    history.reserve("u0", "t0")
    history.started("u0")
    history.abort("u0", operator=True)
    refused = "rejected learner_fenced"
    assert says(history.commit("u0", "t0")) == refused
    assert says(history.reserve("u1", "t1")) == refused
    assert says(history.saved("c1")) == refused
    assert says(history.renewed("u0")) == refused
    assert says(history.learner(checkpoint=checkpoint("c0"))) == "accepted ok"
    assert says(history.reserve("u1", "t0")) == "accepted ok"


def test_an_operators_abort_before_the_start_fences_nobody() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.abort("u0", operator=True, disposition=AbortDisposition.RELEASE)
    assert says(history.started("u0")) == "rejected update_ended"
    assert says(history.reserve("u1", "t0")) == "accepted ok"


def test_abort_epoch_a_zombies_abort_reaches_neither_its_own_nor_its_successors_update() -> None:
    history = opened()
    history.learner()
    zombie = history.epoch()
    history.learner()
    history.reserve("u0", "t0")
    assert says(history.abort("u0", epoch=zombie)) == "rejected learner_fenced"
    assert says(history.abort("unknown", epoch=zombie)) == "rejected learner_fenced"
    assert says(history.reserve("unknown", "t1")) == "accepted ok"


def test_pp_transitive_a_policy_is_as_good_as_all_its_ancestors() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.started("u0")
    history.prepared(1, "u0")
    history.prepared(2, parent=1)
    assert (says(history.activate(2)), history.last.detail) == ("rejected update_not_committed", "u0")
    history.prepared(3, parent=0, rollback_of=1)
    assert says(history.activate(3)) == "rejected update_not_committed"
    history.learner()
    for version in (1, 2, 3):
        assert says(history.activate(version)) == "rejected policy_orphaned"


def test_fence_first_a_fenced_learner_gets_no_duplicate_either() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.learner()
    assert says(history.again(2)) == "rejected learner_fenced"


def test_admit_once_a_second_look_cannot_take_back_what_may_be_in_the_weights() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.admit("u0", {"t0": 0.0})
    history.started("u0")
    assert reasons(history.admit("u0", {"t0": 9.0}, part=1)) == {"t0": "ok"}
    assert says(history.commit("u0", "t0")) == "accepted ok"


def test_await_admit_a_row_that_was_stepped_too_early_is_never_committed() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.started("u0")
    assert reasons(history.admit("u0", {"t0": 9.0})) == {"t0": "policy_drift"}
    assert says(history.commit("u0", "t0")) == "rejected not_held"
    assert history.status("t0") == "quarantined"


def test_quiescent_a_checkpoint_from_inside_an_update_is_refused_while_the_update_is_open() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0", "t1")
    history.admit("u0", {"t0": 0.0, "t1": 0.0})
    history.started("u0")
    assert says(history.saved("c0", "u0")) == "rejected not_committed"


def test_basis_an_expiry_that_did_not_see_the_last_sign_of_life_is_refused() -> None:
    history = opened(lease_ms=1000)
    history.learner()
    history.reserve("u0", "t0")
    seen = history.log.next_offset - 1
    history.renewed("u0")
    assert says(history.expired("u0", basis=seen)) == "rejected lease_renewed"
    assert says(history.expired("u0", basis=seen + 1)) == "accepted lease_expired"
    assert (history.update_status("u0"), history.status("t0")) == ("aborted", "rewarded")


def test_an_admit_or_a_further_reserve_is_a_sign_of_life_and_a_refused_record_is_none() -> None:
    history = opened(lease_ms=1000)
    history.learner()
    history.reserve("u0", "t0")
    seen = history.log.next_offset - 1
    history.admit("u0", {"t0": 0.0})
    assert says(history.expired("u0", basis=seen)) == "rejected lease_renewed"
    seen = history.log.next_offset - 2
    history.reserve("u0", "t1", part=1)
    assert says(history.expired("u0", basis=seen)) == "rejected lease_renewed"
    seen = history.log.next_offset - 2
    history.reserve("u0", "no such row", part=2)
    assert says(history.expired("u0", basis=seen)) == "accepted lease_expired"


def test_started_needed_a_commit_of_what_never_began_is_refused() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.admit("u0", {"t0": 0.0})
    assert says(history.commit("u0", "t0")) == "rejected not_started"


def test_await_started_what_expired_before_its_start_was_decided_stays_ended() -> None:
    history = opened(lease_ms=1000)
    history.learner()
    history.reserve("u0", "t0")
    history.expired("u0")
    assert says(history.started("u0")) == "rejected update_ended"
    assert says(history.commit("u0", "t0")) == "rejected update_ended"


def test_a_lease_that_expires_after_the_start_takes_nothing_away() -> None:
    history = opened(lease_ms=1000)
    history.learner()
    history.reserve("u0", "t0")
    history.admit("u0", {"t0": 0.0})
    history.started("u0")
    assert says(history.expired("u0")) == "accepted in_doubt"
    assert history.status("t0") == "reserved"
    assert says(history.expired("u0")) == "duplicate duplicate"
    assert says(history.commit("u0", "t0")) == "accepted ok"


def test_early_abort_an_abort_that_overtakes_its_reserve_ends_the_id() -> None:
    history = opened()
    history.learner()
    history.abort("u0")
    assert says(history.reserve("u0", "t0")) == "rejected update_ended"


def test_ids_retired_an_ended_id_never_reopens() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    history.learner()
    assert says(history.reserve("u0", "t0")) == "rejected update_ended"
    history.prepared(1, "u0")
    assert says(history.activate(1)) == "rejected policy_orphaned"


def test_one_started_and_reserve_closed() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.reserve("u1", "t1")
    history.started("u0")
    assert says(history.started("u1")) == "rejected other_started"
    assert says(history.reserve("u0", "t2", part=1)) == "rejected update_started"


def test_an_abandoned_policy_is_never_activated_nor_restored_and_its_rows_are_out_of_use() -> None:
    history = opened()
    history.learner()
    history.advanced(1)
    history.prepared(2)
    history.generated("late", 2)
    history.abandoned(2)
    assert history.status("late") == "quarantined"
    assert says(history.activate(2)) == "rejected policy_abandoned"
    assert says(history.prepared(3, parent=1, rollback_of=2)) == "rejected policy_abandoned"
    assert says(history.prepared(3, parent=2)) == "accepted ok"
    assert says(history.activate(3)) == "accepted activated"


def test_acks_last_report_counts_whatever_the_order_of_arrival() -> None:
    history = History().opened(workers=("w",))
    history.prepared(1)
    assert says(history.ack("w", 1, incarnation=1, seq=0)) == "accepted ok"
    assert says(history.ack("w", 0, incarnation=0, seq=5)) == "rejected stale_ack"
    assert says(history.activate(1)) == "accepted activated"


def test_horizon_the_active_policy_of_a_roll_back_is_never_below_the_floor() -> None:
    history = History().opened(horizon=1)
    history.advanced(1).advanced(2)
    history.prepared(3, parent=2, rollback_of=0)
    history.activate(3)
    assert history.run.head.floor == 1
    assert says(history.generated("t9", 3)) == "accepted ok"
