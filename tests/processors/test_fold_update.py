"""An update from its start to its end: what becomes of every row."""

from typing import Any

import pytest

from rollbook.schemas.records.run import DriftGate, LagUnit
from rollbook.schemas.records.update import AbortDisposition, Disposition
from rollbook.tests.processors.history import History, reasons, says

RELEASE, DISCARD = Disposition.RELEASE, Disposition.DISCARD


def held(*trajectory_ids: str, gate: DriftGate = DriftGate.REQUIRED, lag_unit: LagUnit = LagUnit.DEPTH) -> History:
    """An update u0 that holds these trajectories."""
    history = History().opened(gate=gate, drift=0.2, lag_unit=lag_unit)
    history.learner()
    history.ready(*trajectory_ids)
    history.reserve("u0", *trajectory_ids)
    return history


def running(*trajectory_ids: str, gate: DriftGate = DriftGate.REQUIRED) -> History:
    """The same, admitted and started."""
    history = held(*trajectory_ids, gate=gate)
    history.admit("u0", dict.fromkeys(trajectory_ids, 0.0))
    history.started("u0")
    return history


# --- start


def test_a_start_lists_what_is_held() -> None:
    history = held("t0", "t1")
    decision = history.started("u0")
    assert (says(decision), reasons(decision)) == ("accepted ok", {"t0": "held", "t1": "held"})
    assert [found.revision_after for found in decision.items] == [3, 3]
    assert says(history.started("u0")) == "duplicate duplicate"
    assert history.last.items == decision.items
    assert history.update_status("u0") == "started"


def test_a_start_needs_its_update() -> None:
    history = held("t0")
    assert says(history.started("u1")) == "rejected not_holder"
    history.abort("u0")
    assert says(history.started("u0")) == "rejected update_ended"


def test_an_update_that_lost_every_row_can_still_be_started_and_committed_empty() -> None:
    history = held("t0")
    history.admit("u0", {"t0": 9.0})
    assert history.started("u0").items == ()
    assert says(history.commit("u0")) == "accepted ok"
    assert history.update_status("u0") == "committed"


# --- commit


def test_a_commit_consumes_what_was_trained() -> None:
    history = running("t0", "t1")
    decision = history.commit("u0", ["t0", "t1"], ["t1", "t0"], ["t0"])
    assert (says(decision), reasons(decision)) == ("accepted ok", {"t0": "trained", "t1": "trained"})
    assert [(found.state_after, found.revision_after) for found in decision.items] == [("consumed", 4)] * 2
    assert (history.trajectory("t0").update_id, history.update_status("u0")) == ("u0", "committed")
    assert says(history.again()) == "duplicate duplicate"
    assert says(history.commit("u0", "t0", "t1")) == "rejected update_ended"
    assert history.last.detail == "committed"


@pytest.mark.parametrize(
    ("trained", "dropped", "answer", "detail"),
    [
        (["t0", "t1"], {}, "accepted ok", ""),
        (["t0"], {"t1": RELEASE}, "accepted ok", ""),
        ([], {"t0": RELEASE, "t1": DISCARD}, "accepted ok", ""),
        (["t0"], {}, "rejected not_held", "t1"),
        ([], {}, "rejected not_held", "t0"),
        (["t0", "t1", "free"], {}, "rejected not_held", "free"),
        (["t0", "t1"], {"nobody": DISCARD}, "rejected not_held", "nobody"),
        (["t0", "t1"], {"t1": RELEASE}, "rejected not_held", "t1"),
        (["t0"], [("t1", RELEASE), ("t1", RELEASE)], "rejected not_held", "t1"),
        ([], [("t0", RELEASE), ("t1", RELEASE), ("t1", DISCARD)], "rejected not_held", "t1"),
    ],
)
def test_a_commit_names_exactly_what_is_held(trained: list[str], dropped: Any, answer: str, detail: str) -> None:
    history = running("t0", "t1")
    history.ready("free")
    decision = history.commit("u0", *trained, dropped=dropped)
    assert (says(decision), decision.detail) == (answer, detail)
    if answer != "accepted ok":
        assert [history.status(name) for name in ("t0", "t1", "free")] == ["reserved", "reserved", "rewarded"]
        assert history.update_status("u0") == "started"


def test_a_dropped_row_is_released_or_discarded() -> None:
    history = held("t0", "t1", "t2")
    history.admit("u0", {"t0": 0.125, "t1": 0.0625})
    history.started("u0")
    decision = history.commit("u0", "t0", dropped={"t1": RELEASE, "t2": DISCARD})
    assert reasons(decision) == {"t0": "trained", "t1": "dropped", "t2": "dropped"}
    assert [(found.lag, found.mean_abs_log_ratio) for found in decision.items] == [(0, 0.125), (0, 0.0625), (0, None)]
    assert [history.status(f"t{at}") for at in range(3)] == ["consumed", "rewarded", "discarded"]
    assert [history.revision(f"t{at}") for at in range(3)] == [4, 4, 4]
    assert history.trajectory("t1").admitted_ratio is None
    assert says(history.reserve("u1", "t1")) == "accepted ok"


def test_a_commit_needs_a_start_first_of_all() -> None:
    history = held("t0")
    assert says(history.commit("u0", "nobody")) == "rejected not_started"
    assert says(history.commit("u1", "t0")) == "rejected not_holder"


@pytest.mark.parametrize(
    ("gate", "answer"), [(DriftGate.REQUIRED, "rejected not_admitted"), (DriftGate.OFF, "accepted ok")]
)
def test_trained_rows_are_admitted_unless_the_gate_is_off(gate: DriftGate, answer: str) -> None:
    history = held("t0", "t1", gate=gate)
    history.admit("u0", {"t0": 0.0})
    history.started("u0")
    decision = history.commit("u0", "t0", "t1")
    assert says(decision) == answer
    assert decision.detail == ("t1" if gate is DriftGate.REQUIRED else "")
    if gate is DriftGate.REQUIRED:
        assert says(history.commit("u0", "t0", dropped={"t1": RELEASE})) == "accepted ok"


def test_the_gate_of_the_first_reserve_counts() -> None:
    history = held("t0")
    history.configured(2, gate=DriftGate.OFF)
    history.started("u0")
    assert says(history.commit("u0", "t0")) == "rejected not_admitted"


def test_commits_are_counted_in_order() -> None:
    history = running("t0")
    history.commit("u0", "t0")
    history.ready("t1")
    history.trained("u1", "t1")
    orders = [update.commit_order for update in history.run.updates.values()]
    assert (orders, history.run.head.commits) == ([1, 2], 2)


def test_a_consumed_row_is_trained_on_by_no_other_update() -> None:
    history = running("t0")
    history.commit("u0", "t0")
    assert says(history.reserve("u1", "t0")) == "rejected not_rewarded"
    assert says(history.discarded("t0")) == "rejected illegal_transition"


# --- abort


@pytest.mark.parametrize(
    ("disposition", "status"),
    [(AbortDisposition.RELEASE, "rewarded"), (AbortDisposition.QUARANTINE, "quarantined")],
)
@pytest.mark.parametrize("operator", [False, True])
def test_an_abort_gives_back_or_quarantines(operator: bool, disposition: AbortDisposition, status: str) -> None:
    history = held("t0", "t1")
    decision = history.abort("u0", operator=operator, disposition=disposition, text="out of memory")
    assert says(decision) == ("accepted operator" if operator else "accepted update_failed")
    assert (decision.detail, reasons(decision)) == ("out of memory", {"t0": "released", "t1": "released"})
    assert [(found.state_after, found.revision_after) for found in decision.items] == [(status, 4)] * 2
    assert (history.update_status("u0"), history.trajectory("t0").update_id) == ("aborted", "")
    assert says(history.again()) == "duplicate duplicate"
    assert says(history.abort("u0", operator=operator, text="another")) == "rejected update_ended"
    assert (history.last.detail, history.revision("t0")) == ("aborted", 4)


def test_the_first_of_commit_and_abort_wins() -> None:
    history = running("t0")
    history.commit("u0", "t0")
    for decision in (history.abort("u0"), history.abort("u0", operator=True)):
        assert (says(decision), decision.detail) == ("rejected update_ended", "committed")
    other = running("t0")
    other.abort("u0", operator=True)
    assert says(other.commit("u0", "t0")) == "rejected learner_fenced"
    assert other.status("t0") == "rewarded"


def test_a_learner_cannot_abort_what_it_started_nor_what_others_hold() -> None:
    history = running("t0")
    assert says(history.abort("u0")) == "rejected update_in_doubt"
    history.learner("other")
    assert says(history.abort("u0", learner="other")) == "rejected not_holder"
    assert history.status("t0") == "reserved"


def test_an_operator_ends_only_what_exists() -> None:
    history = held("t0")
    assert says(history.abort("u9", operator=True)) == "rejected unknown_update"
    assert says(history.reserve("u9", "t0")) != "rejected update_ended"


def test_an_abort_orphans_the_policies_made_of_the_update() -> None:
    history = running("t0")
    history.prepared(1, "u0")
    history.prepared(2)
    history.prepared(3, parent=0)
    history.generated("t1", 2)
    history.generated("t2", 3)
    decision = history.abort("u0", operator=True)
    assert [(change.predicate, change.first_ids) for change in decision.mass_changes] == [
        ("policies orphaned", ("1", "2")),
        ("trajectories quarantined with an orphaned policy", ("t1",)),
    ]
    assert [history.status(f"t{at}") for at in range(3)] == ["rewarded", "quarantined", "generated"]


def test_an_early_abort_orphans_too() -> None:
    history = held("t0")
    history.prepared(1, "u5")
    assert history.abort("u5").mass_changes[0].first_ids == ("1",)
    assert says(history.activate(1)) == "rejected policy_orphaned"


def test_a_policy_is_orphaned_once() -> None:
    history = held("t0")
    history.prepared(1, "u5", "u6")
    assert history.abort("u5").mass_changes[0].first_ids == ("1",)
    assert not history.abort("u6").mass_changes


def test_rows_of_a_policy_that_the_abort_undoes_are_quarantined_as_they_come_back() -> None:
    history = running("t0")
    history.commit("u0", "t0")
    history.advanced(1, "u0")
    history.learner("other")
    history.ready("t1", "t2", version=1)
    history.reserve("u1", "t1", learner="other")
    history.learner()
    assert (history.status("t1"), history.status("t2")) == ("reserved", "quarantined")
    decision = history.abort("u1", learner="other")
    assert [(found.state_after, found.revision_after) for found in decision.items] == [("quarantined", 4)]
    assert not decision.mass_changes


def test_the_longest_text_fits_a_decision() -> None:
    history = held("t0")
    assert history.abort("u0", text="\U0001f4a5" * 4096).detail == "\U0001f4a5" * 4096


# --- recordings


def test_recordings_are_sealed_by_rank_after_the_start_and_after_the_commit() -> None:
    history = held("t0", gate=DriftGate.OFF)
    assert says(history.sealed("u0")) == "rejected not_started"
    history.started("u0")
    assert (says(history.sealed("u0", 1)), history.last.detail) == ("accepted ok", "rank 1")
    history.commit("u0", "t0", ranks=(0, 1))
    assert says(history.sealed("u0", 0)) == "accepted ok"
    assert says(history.sealed("u0", 0)) == "duplicate duplicate"
    assert says(history.sealed("u0", 0, name="other")) == "rejected conflict"
    update = history.run.updates.get("u0")
    assert update is not None
    assert [sealed.rank for sealed in update.sealed] == [1, 0]


def test_recordings_need_their_update() -> None:
    history = held("t0")
    assert says(history.sealed("u9")) == "rejected not_holder"
    history.learner("other")
    assert says(history.sealed("u0", learner="other")) == "rejected not_holder"
    history.abort("u0")
    assert (says(history.sealed("u0")), history.last.detail) == ("rejected update_ended", "aborted")
