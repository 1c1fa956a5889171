"""Admit: the drift gate row by row, and what its first answer means for a commit."""

from typing import Any

import pytest

from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.run import DriftGate, LagUnit
from rollbook.tests.processors.history import History, item, reasons, says
from rollbook.tests.processors.parts import policy, sha


def held(*trajectory_ids: str, gate: DriftGate = DriftGate.REQUIRED, lag_unit: LagUnit = LagUnit.DEPTH) -> History:
    """An update u0 that holds these trajectories."""
    history = History().opened(gate=gate, drift=0.2, lag_unit=lag_unit)
    history.learner()
    history.ready(*trajectory_ids)
    history.reserve("u0", *trajectory_ids)
    return history


@pytest.mark.parametrize(
    ("figures", "reason", "status"),
    [
        ({"drifts": {"t0": 0.0}}, "ok", "reserved"),
        ({"drifts": {"t0": 0.2}}, "ok", "reserved"),
        ({"drifts": {"t0": 0.201}}, "policy_drift", "quarantined"),
        ({"drifts": {"t0": 9.0}, "active_tokens": 3}, "evidence_mismatch", "rewarded"),
        ({"drifts": {"t0": 9.0}, "active_tokens": 0}, "evidence_mismatch", "rewarded"),
        ({"drifts": {"t0": 9.0}, "evidence": sha("?")}, "evidence_mismatch", "rewarded"),
        ({"drifts": {"nobody": 0.0}}, "not_reserved", "none"),
        ({"drifts": {"free": 0.0}}, "not_reserved", "rewarded"),
        ({"drifts": {"theirs": 0.0}}, "not_reserved", "reserved"),
    ],
)
@pytest.mark.parametrize("gate", DriftGate)
def test_each_figure_has_its_answer(gate: DriftGate, figures: dict[str, Any], reason: str, status: str) -> None:
    history = held("t0", gate=gate)
    history.ready("free", "theirs")
    history.reserve("u1", "theirs")
    decision = history.admit("u0", **figures)
    name = decision.items[0].trajectory_id
    assert says(decision) == "accepted ok"
    assert reasons(decision) == {name: reason}
    if gate is DriftGate.OFF and name == "t0":
        status = "reserved"  # it only records
    assert history.status(name) == status


def test_the_decision_shows_the_ratio_of_admitted_and_refused_rows() -> None:
    history = held("t0", "t1", "t2")
    decision = history.admit("u0", {"t0": 0.125, "t1": 3.60039, "t2": 0.25})
    assert [found.mean_abs_log_ratio for found in decision.items] == [0.125, 3.60039, 0.25]
    assert reasons(decision) == {"t0": "ok", "t1": "policy_drift", "t2": "policy_drift"}
    assert history.trajectory("t0").admitted_ratio == 0.125
    assert reasons(history.started("u0")) == {"t0": "held"}


def test_an_empty_action_mask_is_never_admitted() -> None:
    history = History().opened()
    history.learner()
    history.generated("t0", active_tokens=0)
    history.rewarded("t0")
    history.reserve("u0", "t0")
    decision = history.admit("u0", {"t0": 0.0})
    assert reasons(decision) == {"t0": "empty_action_mask"}
    assert (item(decision, "t0").mean_abs_log_ratio, history.status("t0")) == (None, "quarantined")


def test_evidence_of_several_segments_is_taken_together() -> None:
    history = History().opened()
    history.learner()
    history.generated("t0", segments=3)
    history.rewarded("t0")
    history.reserve("u0", "t0")
    assert history.trajectory("t0").active_tokens == 6
    assert reasons(history.admit("u0", {"t0": 0.1})) == {"t0": "ok"}


@pytest.mark.parametrize(
    ("by", "reason", "lag"),
    [(policy(0), "future_policy", -1), (policy(1), "ok", 0), (policy(2), "ok", 1), (policy(3), "stale_policy", 2)],
)
def test_lag_is_judged_again_with_the_policy_that_gave_the_log_probs(by: PolicyRef, reason: str, lag: int) -> None:
    history = History().opened(max_lag=1, drift=0.2)
    history.learner()
    for version in (1, 2, 3):
        history.advanced(version)
    history.ready("t0", version=1)
    history.reserve("u0", "t0", by=policy(1))
    decision = history.admit("u0", {"t0": 9.0 if reason != "ok" else 0.1}, by=by)
    assert (item(decision, "t0").reason, item(decision, "t0").lag) == (reason, lag)
    assert history.status("t0") == ("reserved" if reason == "ok" else "rewarded"), "stale comes before drift"


def test_an_unknown_policy_refuses_the_whole_record() -> None:
    history = held("t0")
    assert says(history.admit("u0", {"t0": 0.0}, by=policy(4))) == "rejected unknown_policy"
    assert says(history.admit("u0", {"t0": 0.0}, by=policy(0, "other"))) == "rejected unknown_policy"
    assert says(history.admit("u0", {"t0": 0.0})) == "accepted ok"


@pytest.mark.parametrize(
    ("own_updates", "answer"), [(0, "accepted ok"), (1, "accepted ok"), (2, "rejected ordinal_mismatch")]
)
def test_a_client_cannot_have_more_updates_than_the_ledger_knows(own_updates: int, answer: str) -> None:
    history = held("t0")
    history.ready("t1")
    history.reserve("u1", "t1")
    assert says(history.admit("u1", {"t1": 0.0}, own_updates=own_updates)) == answer
    if answer != "accepted ok":
        assert history.last.detail == "the ledger knows 1"


def test_the_first_answer_to_a_row_stands() -> None:
    history = held("t0", "t1")
    first = history.admit("u0", {"t0": 0.1})
    assert says(history.again()) == "duplicate duplicate"
    assert history.last.items == first.items
    assert says(history.admit("u0", {"t0": 0.15})) == "rejected conflict", "part 0 was something else"
    decision = history.admit("u0", {"t0": 9.0, "t1": 9.0}, part=1, evidence=sha("?"))
    assert reasons(decision) == {"t0": "ok", "t1": "evidence_mismatch"}
    assert item(decision, "t0").mean_abs_log_ratio == 0.1
    assert (item(decision, "t0").lag, item(decision, "t0").freshness) == (0, "fresh")
    assert (history.status("t0"), history.revision("t0")) == ("reserved", 3)


def test_a_row_that_came_back_is_admitted_anew() -> None:
    history = held("t0")
    history.admit("u0", {"t0": 0.0})
    history.abort("u0")
    history.reserve("u1", "t0")
    history.started("u1")
    assert says(history.commit("u1", "t0")) == "rejected not_admitted"
    assert reasons(history.admit("u1", {"t0": 9.0})) == {"t0": "policy_drift"}


def test_an_admission_may_come_after_the_start() -> None:
    history = held("t0", "t1")
    history.started("u0")
    assert reasons(history.admit("u0", {"t0": 0.0, "t1": 9.0})) == {"t0": "ok", "t1": "policy_drift"}
    assert says(history.commit("u0", "t0", "t1")) == "rejected not_held"
    assert says(history.commit("u0", "t0")) == "accepted ok"


def test_an_admission_needs_its_update() -> None:
    history = held("t0")
    assert says(history.admit("u7", {"t0": 0.0})) == "rejected not_holder"
    history.learner("other")
    assert says(history.admit("u0", {"t0": 0.0}, learner="other")) == "rejected not_holder"
    history.abort("u0")
    assert (says(history.admit("u0", {"t0": 0.0})), history.last.detail) == ("rejected update_ended", "aborted")
