"""A decision is evidence: whom it is about, whose it is, and what was in force, for each record type."""

import pytest

from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.update import Checkpoint
from rollbook.schemas.registry import LIFECYCLE
from rollbook.tests.processors import parts
from rollbook.tests.processors.history import LEARNER, History, says
from rollbook.tests.processors.parts import policy


@pytest.fixture(scope="module")
def history() -> History:
    """One run in which every record type is accepted, and most are refused as well."""
    told = History().opened(workers=("w",), lease_ms=1000)
    told.contract("third", named=parts.sha("wrong"))
    told.learner()
    told.learner(expected=99)
    told.learner(checkpoint=Checkpoint(id="c", digest="d"))
    told.generated("t0")
    told.generated("t0", group="elsewhere")
    told.generated("t9", contract=parts.sha("unheard"))
    told.rewarded("t0")
    told.failed("t1")
    told.generated("t2")
    told.reward_failed("t2")
    told.discarded("t2")
    told.reserve("u0", "t0")
    told.reserve("u1", "t0")
    told.reserve("u0", "t0", part=1, epoch=1)
    told.admit("u0", {"t0": 0.0})
    told.started("u0")
    told.started("u9")
    told.commit("u0", "t0")
    told.sealed("u0")
    told.abort("u2")
    told.abort("u3", operator=True)
    told.prepared(1, "u0", committed=False)
    told.prepared(7)
    told.written(1)
    told.written(1, "other")
    told.written(8)
    told.ack("w", 1)
    told.ack("w", 0, seq=0)
    told.prepared(2)
    told.abandoned(2)
    told.abandoned(9)
    told.dispatched("t5")
    told.quarantined("t5")
    told.ready("t6")
    told.reserve("u6", "t6")
    told.renewed("u6")
    told.expired("u6")
    told.saved("c1", "u0")
    told.saved("c2", "u6")
    told.activate(1)
    told.activate(4)
    return told


ABOUT = {
    "RunConfigured": ("run", {"r"}),
    "Dispatched": ("trajectory", {"t5"}),
    "Quarantine": ("run", {"r"}),
    "PolicyAbandoned": ("policy", {"2", "9"}),
    "Renew": ("update", {"u6"}),
    "LeaseExpired": ("update", {"u6"}),
    "CheckpointSaved": ("checkpoint", {"c1", "c2"}),
    "GenerationContract": ("contract", {parts.contract_named(), parts.sha("wrong")}),
    "Generated": ("trajectory", {"t0", "t2", "t6", "t9"}),
    "GenerationFailed": ("trajectory", {"t1"}),
    "RewardReady": ("reward", {"exact"}),
    "RewardFailed": ("trajectory", {"t2"}),
    "Discarded": ("run", {"r"}),
    "LearnerStarted": ("learner", {LEARNER}),
    "Reserve": ("update", {"u0", "u1", "u6"}),
    "Admit": ("update", {"u0"}),
    "UpdateStarted": ("update", {"u0", "u9"}),
    "Commit": ("update", {"u0"}),
    "RecordingSealed": ("update", {"u0"}),
    "Abort": ("update", {"u2", "u3"}),
    "PolicyPrepared": ("policy", {"1", "2", "7"}),
    "PolicyCommitted": ("policy", {"1", "8"}),
    "ActivationAck": ("worker", {"w"}),
    "Activate": ("policy", {"1", "4"}),
}

BY_LEARNER = ("Reserve", "Admit", "UpdateStarted", "Commit", "RecordingSealed", "Abort", "Renew")


def _decisions(history: History, record_type: str) -> list[Decision]:
    return [fold.decision for fold in history.log.folded if fold.decision.record_type == record_type]


def test_every_record_type_is_told_of(history: History) -> None:
    assert {*ABOUT, "RunClosed"} == {model.__name__ for model in LIFECYCLE}


def test_the_end_of_a_run_is_about_the_run_and_refuses_what_comes_later() -> None:
    told = History().opened()
    told.ready("t0", "t1")
    told.learner()
    told.reserve("u0", "t0")
    closed = told.closed()
    assert says(closed) == "accepted ok"
    assert closed.subject is not None
    assert (closed.subject.kind, closed.subject.id) == ("run", "r")
    assert [(change.predicate, change.first_ids) for change in closed.mass_changes] == [
        ("updates aborted", ("u0",)),
        ("trajectories forgotten", ("t0", "t1")),
    ]
    assert says(told.generated("t2")) == says(told.configured(2)) == says(told.closed()) == "rejected run_closed"


@pytest.mark.parametrize("record_type", ABOUT)
def test_accepted_or_refused_a_decision_names_whom_it_is_about(history: History, record_type: str) -> None:
    decisions = _decisions(history, record_type)
    kind, ids = ABOUT[record_type]
    subjects = [decision.subject for decision in decisions]
    assert all(subject is not None and subject.kind == kind for subject in subjects)
    assert {subject.id for subject in subjects if subject is not None} == ids
    if record_type == "CheckpointSaved":
        assert [decision.update_id for decision in decisions] == ["u0", "u6"]  # the last update that each contains
        return
    of_update = record_type in (*BY_LEARNER, "LeaseExpired")
    assert [decision.update_id for decision in decisions] == [
        subject.id if of_update and subject is not None else None for subject in subjects
    ]


@pytest.mark.parametrize("record_type", ABOUT)
def test_a_learners_decision_names_its_current_epoch(history: History, record_type: str) -> None:
    for decision in _decisions(history, record_type):
        by_learner = record_type in (*BY_LEARNER, "LearnerStarted", "CheckpointSaved")
        if by_learner and decision.reason != "unknown_update":  # that one was an operator's
            assert decision.learner is not None
            assert (decision.learner.learner_id, decision.learner.epoch) == (LEARNER, history.epoch())
        else:
            assert decision.learner is None


@pytest.mark.parametrize("record_type", ["PolicyPrepared", "PolicyCommitted", "Activate", "ActivationAck"])
def test_a_policy_is_named_with_its_hash(history: History, record_type: str) -> None:
    hashes = [decision.subject and decision.subject.artifact_hash for decision in _decisions(history, record_type)]
    assert (
        hashes
        == {
            "PolicyPrepared": ["weights-1", "weights-7", "weights-2"],
            "PolicyCommitted": ["weights-1", "other", "weights-8"],
            "Activate": ["weights-1", "weights-4"],
            "ActivationAck": ["weights-1", "weights-0"],
        }[record_type]
    )


def test_each_decision_shows_what_was_in_force(history: History) -> None:
    decisions = [fold.decision for fold in history.log.folded]
    assert [decision.sequence for decision in decisions] == list(range(1, len(decisions) + 1))
    assert {decision.config_version for decision in decisions} == {1}
    assert {decision.fold_version for decision in decisions} == {1}
    assert not any(decision.violation for decision in decisions)
    activated = [decision.active_policy for decision in decisions]
    assert activated == [policy(0)] * (len(decisions) - 2) + [policy(1)] * 2
    assert [decision.event_id for decision in decisions] == [f"event-{at}" for at in range(len(decisions))]


def test_every_accepted_type_is_among_them(history: History) -> None:
    accepted = {fold.decision.record_type for fold in history.log.folded if fold.decision.outcome.value == "accepted"}
    assert accepted == set(ABOUT)
