"""Learner epochs and fences: who may speak for a learner, and what a start from none undoes."""

import hashlib
from collections.abc import Callable

import pytest

from rollbook.schemas.records.decision import Decision, MassChange
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.records.update import Checkpoint, Disposition
from rollbook.tests.processors.history import History, says


def opened() -> History:
    history = History().opened()
    history.ready("t0", "t1", "t2")
    return history


def changes(decision: Decision) -> dict[str, tuple[str, ...]]:
    """Ids by what happened to them."""
    return {change.predicate: change.first_ids for change in decision.mass_changes}


# --- epochs


def test_the_epoch_is_the_sequence_of_the_accepted_start() -> None:
    history = opened()
    first = history.learner()
    assert (says(first), first.learner and first.learner.epoch) == ("accepted ok", first.sequence)
    second = history.learner()
    assert second.learner is not None
    assert second.learner.epoch == second.sequence == first.sequence + 1


def test_a_start_is_a_compare_and_set_on_the_epoch() -> None:
    history = opened()
    assert (says(history.learner(expected=7)), history.last.detail) == ("rejected epoch_conflict", "current epoch 0")
    history.learner(incarnation="a", expected=0)
    epoch = history.epoch()
    assert says(history.learner(incarnation="b", expected=0)) == "rejected epoch_conflict"
    assert history.last.detail == f"current epoch {epoch}"
    assert history.epoch() == epoch
    assert says(history.learner(incarnation="b", expected=epoch)) == "accepted ok"


def test_only_the_identical_start_of_the_current_process_is_a_duplicate() -> None:
    history = opened()
    history.learner(incarnation="a", expected=0)
    assert says(history.learner(incarnation="a", expected=0)) == "duplicate duplicate"
    assert says(history.learner(incarnation="a", expected=99)) == "rejected epoch_conflict", "not the identical one"
    history.learner(incarnation="b")
    assert says(history.learner(incarnation="a", expected=0)) == "rejected epoch_conflict"


def test_two_processes_that_start_at_once_do_not_share_an_epoch() -> None:
    history = opened()
    assert says(history.learner(incarnation="a", expected=0)) == "accepted ok"
    assert says(history.learner(incarnation="b", expected=0)) == "rejected epoch_conflict"


def test_learners_do_not_disturb_each_other() -> None:
    history = opened()
    history.learner("a")
    history.reserve("u0", "t0", learner="a")
    history.learner("b")
    assert history.update_status("u0") == "open"
    assert says(history.started("u0", learner="b")) == "rejected not_holder"
    assert says(history.started("u0", learner="a")) == "accepted ok"


def test_a_checkpoint_is_not_accepted_yet() -> None:
    history = opened()
    answer = history.learner(checkpoint=Checkpoint(id="c0", digest="d0"))
    assert (says(answer), answer.detail) == ("rejected unknown_checkpoint", "c0")
    assert says(history.learner(expected=5, checkpoint=Checkpoint(id="c0", digest="d"))) == "rejected epoch_conflict"
    assert history.epoch() == 0


# --- fences

COMMANDS: dict[str, Callable[[History, int], Decision]] = {
    "reserve": lambda history, epoch: history.reserve("u0", "t0", epoch=epoch),
    "claim": lambda history, epoch: history.claim("u9", epoch=epoch),
    "admit": lambda history, epoch: history.admit("u0", {"t0": 0.0}, epoch=epoch),
    "start": lambda history, epoch: history.started("u0", epoch=epoch),
    "commit": lambda history, epoch: history.commit("u0", "t0", epoch=epoch),
    "seal": lambda history, epoch: history.sealed("u0", epoch=epoch),
    "abort": lambda history, epoch: history.abort("u0", epoch=epoch),
    "early abort": lambda history, epoch: history.abort("u9", epoch=epoch),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_record_of_another_epoch_is_fenced_before_anything_else(command: str) -> None:
    history = opened()
    assert says(COMMANDS[command](history, 3)) == "rejected learner_fenced", "nobody started"
    history.learner()
    old = history.epoch()
    history.trained("u0", "t0")
    history.sealed("u0")
    history.learner()
    for epoch in (old, history.epoch() + 1, 0):
        decision = COMMANDS[command](history, epoch)
        assert (says(decision), decision.detail) == ("rejected learner_fenced", f"current epoch {history.epoch()}")
        assert decision.learner is not None
        assert decision.learner.epoch == history.epoch()


@pytest.mark.parametrize("command", COMMANDS)
def test_what_was_accepted_from_a_fenced_process_is_refused_when_it_comes_again(command: str) -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    if command not in ("abort", "early abort", "reserve", "claim"):
        history.admit("u0", {"t0": 0.0})
        history.started("u0")
    decision = COMMANDS[command](history, history.epoch())
    record = len(history.log.records)
    assert decision.outcome.value in ("accepted", "duplicate", "rejected")
    history.learner()
    history.again(len(history.log.records) - record + 1)
    assert says(history.last) == "rejected learner_fenced"


def test_an_operators_abort_of_a_started_update_fences_its_learner_until_it_starts_anew() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.started("u0")
    epoch = history.epoch()
    assert says(history.abort("u0", operator=True)) == "accepted operator"
    for command in COMMANDS.values():
        assert says(command(history, epoch)) == "rejected learner_fenced"
    assert history.epoch() == epoch
    assert says(history.learner(expected=epoch)) == "accepted ok"
    assert says(history.reserve("u1", "t0")) == "accepted ok"


def test_an_operators_abort_of_an_update_not_started_fences_nobody() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.abort("u0", operator=True)
    assert says(history.reserve("u1", "t0")) == "accepted ok"


# --- a start from none


def test_a_start_from_none_ends_all_that_the_learner_has_open() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.started("u0")
    history.reserve("u1", "t1")
    decision = history.learner()
    assert changes(decision) == {"updates aborted": ("u0", "u1"), "trajectories released": ("t0", "t1")}
    assert [history.status(name) for name in ("t0", "t1")] == ["rewarded", "rewarded"]
    assert [history.revision(name) for name in ("t0", "t1")] == [4, 4]
    assert [history.update_status(name) for name in ("u0", "u1")] == ["aborted", "aborted"]
    assert history.trajectory("t0").update_id == ""


def test_a_start_from_none_rolls_back_all_that_the_learner_committed() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    history.reserve("u1", "t1", "t2")
    history.admit("u1", {"t1": 0.0, "t2": 0.0}, own_updates=1)
    history.started("u1")
    history.commit("u1", "t1", dropped={"t2": Disposition.DISCARD})
    history.prepared(1, "u0")
    history.prepared(2, "u1")
    history.activate(2)
    history.generated("t3", 2)
    history.rewarded("t3")
    history.generated("t4", 1)
    decision = history.learner()
    assert changes(decision) == {
        "updates rolled back": ("u0", "u1"),
        "trajectories rolled back": ("t0", "t1"),
        "policies orphaned": ("1", "2"),
        "trajectories quarantined with an orphaned policy": ("t3", "t4"),
    }
    assert [history.status(f"t{at}") for at in range(5)] == [
        "rewarded",
        "rewarded",
        "discarded",
        "quarantined",
        "quarantined",
    ]
    assert (history.update_status("u0"), history.revision("t0")) == ("rolled_back", 5)
    assert (history.run.head.active and history.run.head.active.version) == 2
    assert history.run.head.active_orphaned


def test_rows_of_an_orphaned_policy_are_quarantined_when_they_come_back_and_change_once() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    history.advanced(1, "u0")
    history.ready("t3", "t4", version=1)
    history.trained("u1", "t3")
    history.reserve("u2", "t4")
    decision = history.learner()
    assert changes(decision)["policies orphaned"] == ("1",)
    assert [(history.status(name), history.revision(name)) for name in ("t0", "t3", "t4")] == [
        ("rewarded", 5),
        ("quarantined", 5),
        ("quarantined", 4),
    ]
    assert "trajectories quarantined with an orphaned policy" not in changes(decision)


def test_a_start_undoes_only_what_this_learner_did() -> None:
    history = opened()
    history.learner("a")
    history.learner("b")
    history.trained("u0", "t0", learner="a")
    history.trained("u1", "t1", learner="b")
    history.prepared(1, "u0")
    history.prepared(2, "u1", parent=0)
    decision = history.learner("a")
    assert changes(decision)["policies orphaned"] == ("1",)
    assert (history.update_status("u0"), history.update_status("u1")) == ("rolled_back", "committed")
    assert (history.status("t0"), history.status("t1")) == ("rewarded", "consumed")


def test_rolled_back_and_aborted_ids_never_reopen() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    history.reserve("u1", "t1")
    history.learner()
    assert (says(history.reserve("u0", "t0")), history.last.detail) == ("rejected update_ended", "rolled_back")
    assert (says(history.claim("u1")), history.last.detail) == ("rejected update_ended", "aborted")
    assert says(history.abort("u0")) == "rejected update_ended"
    assert says(history.learner()) == "accepted ok", "nothing is rolled back twice"
    assert not history.last.mass_changes


def test_a_mass_change_names_a_hundred_and_vouches_for_all() -> None:
    history = History().opened(gate=DriftGate.OFF)
    names = [f"t{at:03}" for at in range(150)]
    history.ready(*names)
    history.learner()
    history.reserve("u0", *reversed(names))
    decision = history.learner()
    released = next(change for change in decision.mass_changes if change.predicate == "trajectories released")
    assert released == MassChange(
        predicate="trajectories released",
        count=150,
        digest=hashlib.sha256("\n".join(names).encode()).hexdigest(),
        first_ids=tuple(names[:100]),
    )
