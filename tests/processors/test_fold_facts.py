"""What is taken as a fact: trained on without the ledger's answer, unreserved or observed; never offered again."""

import pytest

from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.run import DriftGate, Enforcement
from rollbook.schemas.records.update import Disposition
from rollbook.tests.processors.history import History, reasons, says


def opened(**settings: object) -> History:
    history = History().opened(gate=DriftGate.OFF, lease_ms=1000, **settings)  # type: ignore[arg-type]
    history.learner()
    history.learner("b")
    return history


def observed(**settings: object) -> History:
    return opened(enforcement=Enforcement.OBSERVE, **settings)


def answer(decision: Decision) -> tuple[str, bool, str]:
    return says(decision), decision.violation, decision.detail


def offered_to_b(history: History, name: str) -> str:
    """What another learner is told that asks for the row."""
    decision = history.reserve("u-b", name, learner="b")
    return decision.items[0].reason


@pytest.mark.parametrize("reserved", [True, False])
def test_an_unreserved_commit_consumes_what_it_names_and_is_a_violation(reserved: bool) -> None:
    history = opened().ready("t0")
    if reserved:
        history.reserve("u0", "t0")
    decision = history.commit("u0", "t0", unreserved=True)
    assert answer(decision) == ("accepted unreserved", True, "" if reserved else "not_held")
    assert (history.status("t0"), history.update_status("u0")) == ("consumed", "committed")
    assert says(history.again()) == "duplicate duplicate"
    assert offered_to_b(history, "t0") == "not_rewarded"


def test_what_it_does_not_name_is_given_back() -> None:
    history = opened().ready("t0", "t1")
    history.reserve("u0", "t0", "t1")
    history.commit("u0", "t0", unreserved=True)
    assert (history.status("t0"), history.status("t1")) == ("consumed", "rewarded")


def test_it_counts_among_the_learners_updates_and_is_rolled_back_like_them() -> None:
    history = opened().ready("t0", "t1")
    history.commit("u0", "t0", unreserved=True)
    history.trained("u1", "t1")
    history.saved("before")
    assert history.run.head.commits == 2
    history.prepared(1, "u0", "u1")
    assert says(history.activate(1)) == "accepted activated"
    history.learner()
    assert (history.status("t0"), history.update_status("u0")) == ("rewarded", "rolled_back")


def test_it_takes_nothing_from_another_learner_and_comes_to_nothing_after_a_fence() -> None:
    history = opened().ready("t0", "t1")
    history.reserve("u-b", "t0", learner="b")
    decision = history.commit("u0", "t0", unreserved=True)
    assert (decision.violation, reasons(decision), history.status("t0")) == (True, {"t0": "not_held"}, "reserved")
    assert says(history.commit("u-b", "t0", unreserved=True)) == "rejected not_holder"
    history.learner()
    assert says(history.commit("u1", "t1", epoch=2, unreserved=True)) == "rejected learner_fenced"
    assert history.status("t1") == "rewarded"


@pytest.mark.parametrize("known", ["unknown", "generated", "reward_failed"])
@pytest.mark.parametrize("observes", [True, False])
def test_what_was_trained_on_before_its_reward_is_consumed_when_that_comes(known: str, observes: bool) -> None:
    history = observed() if observes else opened()
    if known != "unknown":
        history.generated("t0")
    if known == "reward_failed":
        history.reward_failed("t0")
    decision = history.commit("u0", "t0", unreserved=not observes)
    assert (decision.violation, reasons(decision)) == (True, {"t0": "pending"})
    if known == "unknown":
        released = history.generated("t0").released
        assert [(one.record_type, one.subject_id, one.reason) for one in released] == [("Commit", "t0", "ok")]
    assert history.status("t0") == ("reward_failed" if known == "reward_failed" else "generated")
    history.rewarded("t0")
    assert (history.status("t0"), history.trajectory("t0").update_id) == ("consumed", "u0")
    assert offered_to_b(history, "t0") == "not_rewarded"
    history.learner()
    assert history.status("t0") == "rewarded", "the update was rolled back"


def test_a_commit_that_came_before_everything_is_applied_with_the_arrival() -> None:
    history = observed()
    history.commit("u0", "t0")
    history.rewarded("t0")
    decision = history.generated("t0")
    assert [one.record_type for one in decision.released] == ["RewardReady", "Commit"]
    assert decision.items[0].state_after == "consumed"


def test_of_two_updates_that_trained_on_it_before_its_reward_the_first_that_stands_has_it() -> None:
    history = observed()
    history.generated("t0")
    history.commit("u0", "t0")
    assert reasons(history.commit("u-b", "t0", learner="b")) == {"t0": "pending"}
    history.rewarded("t0")
    assert history.trajectory("t0").update_id == "u0"
    history.learner()
    assert (history.status("t0"), history.trajectory("t0").update_id) == ("consumed", "u-b")
    history.learner("b")
    assert history.status("t0") == "rewarded"


def test_a_roll_back_ends_what_its_updates_trained_on_before_the_reward() -> None:
    history = observed()
    history.generated("t0")
    history.commit("u0", "t0")
    history.learner()
    history.rewarded("t0")
    assert history.status("t0") == "rewarded"


@pytest.mark.parametrize("end", ["failed", "discarded"])
def test_what_ends_without_a_reward_is_trained_on_by_nobody_any_more(end: str) -> None:
    history = observed()
    history.commit("u0", "t0")
    if end == "discarded":
        history.dispatched("t0")
    released = (history.failed("t0") if end == "failed" else history.discarded("t0")).released
    assert [one.reason for one in released] == (["illegal_transition"] if end == "failed" else [])
    assert history.rewarded("t0").items[0].reason == "illegal_transition"
    assert len(history.run.pending) == 0


@pytest.mark.parametrize("gives_back", ["abort", "commit", "admit", "lease", "operator", "start anew"])
def test_what_another_update_holds_meanwhile_is_never_offered_a_third_time(gives_back: str) -> None:
    history = History().opened(gate=DriftGate.REQUIRED, lease_ms=1000)
    history.learner()
    history.learner("b")
    history.ready("t0")
    history.reserve("u0", "t0")
    assert reasons(history.commit("u-b", "t0", learner="b", unreserved=True)) == {"t0": "not_held"}
    if gives_back == "abort":
        history.abort("u0")
    elif gives_back == "commit":
        history.started("u0")
        history.commit("u0", dropped={"t0": Disposition.RELEASE})
    elif gives_back == "admit":
        history.admit("u0", {"t0": 0.0}, active_tokens=99)
    elif gives_back == "lease":
        history.expired("u0")
    elif gives_back == "operator":
        history.abort("u0", operator=True)
    else:
        history.learner()
    assert (history.status("t0"), history.trajectory("t0").update_id) == ("consumed", "u-b")


def test_who_commits_what_another_trained_on_unreserved_is_told() -> None:
    history = opened().ready("t0")
    history.reserve("u0", "t0")
    history.commit("u-b", "t0", learner="b", unreserved=True)
    history.started("u0")
    assert answer(history.commit("u0", "t0")) == ("accepted trained_twice", True, "t0")
    history.learner()
    assert history.trajectory("t0").update_id == "u-b"


@pytest.mark.parametrize("ended", ["lease", "operator"])
def test_an_unreserved_commit_is_a_fact_also_where_its_update_was_ended_meanwhile(ended: str) -> None:
    history = opened().ready("t0")
    history.reserve("u0", "t0")
    if ended == "lease":
        history.expired("u0")
    else:
        history.abort("u0", operator=True)
    assert answer(history.commit("u0", "t0", unreserved=True)) == ("accepted unreserved", True, "not_held")
    assert (history.status("t0"), history.update_status("u0")) == ("consumed", "committed")


def test_an_observed_commit_is_a_fact_also_where_an_operator_ended_its_update() -> None:
    history = observed().ready("t0")
    history.reserve("u0", "t0")
    history.abort("u0", operator=True)
    assert answer(history.commit("u0", "t0")) == ("accepted update_ended", True, "aborted")
    assert history.status("t0") == "consumed"


def test_what_was_trained_on_never_makes_room() -> None:
    history = opened(max_pending=2).ready("t1")
    history.generated("t0")
    history.commit("u0", "t0", "strange", unreserved=True)
    for stray in ("s0", "s1", "s2", "s3"):
        history.rewarded(stray)
    history.rewarded("t0")
    history.generated("strange")
    history.rewarded("strange")
    assert [history.status(name) for name in ("t0", "strange")] == ["consumed", "consumed"]
    unknown = [f"more-{at}" for at in range(4)]
    decision = history.commit("u1", *unknown, unreserved=True)
    assert [one.reason for one in decision.items] == ["pending", "pending", "pending_full", "pending_full"]


def test_an_observed_update_whose_lease_is_over_is_only_in_doubt() -> None:
    history = observed().ready("t0")
    history.reserve("u0", "t0")
    assert says(history.expired("u0")) == "accepted in_doubt"
    assert history.status("t0") == "reserved", "the trainer may be training on it: it waits for nothing"
    assert says(history.expired("u0")) == "duplicate duplicate"
    history.ready("t1")
    history.reserve("u0", "t1", part=1)
    assert not history.run.updates.all_open()[0].in_doubt, "a sign of life"
    history.abort("u0")
    history.reserve("u1", "t0")
    history.started("u1")
    assert answer(history.commit("u1", "t0")) == ("accepted ok", False, "")


def test_what_an_observed_commit_drops_without_anybody_knowing_it_is_said_so() -> None:
    history = observed()
    assert reasons(history.commit("u0", dropped={"nobody": Disposition.RELEASE})) == {"nobody": "missing_rollout"}
    assert len(history.run.pending) == 0


def test_an_observing_trainer_cannot_know_revisions() -> None:
    history = observed().ready("t0")
    history.reserve("u0", "t0", revisions={"t0": 77})
    assert answer(history.last) == ("accepted ok", False, "")


def test_a_fenced_learner_holds_nothing_any_more() -> None:
    history = opened().ready("t0", "t1")
    history.reserve("u0", "t0")
    history.started("u0")
    history.reserve("u1", "t1")
    decision = history.abort("u0", operator=True)
    assert [(one.predicate, one.first_ids) for one in decision.mass_changes] == [
        ("updates aborted", ("u1",)),
        ("trajectories released", ("t1",)),
    ]
    assert (history.status("t1"), history.update_status("u1")) == ("rewarded", "aborted")


def test_an_update_holds_no_more_than_a_commit_can_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("room", "claim"):
        monkeypatch.setattr(f"rollbook.processors.ledger.{module}.MAX_ITEMS", 3)
    history = opened().ready("t0", "t1", "t2", "t3")
    history.claim("u0", 2)
    assert says(history.reserve("u0", "t2", "t3", part=1)) == "rejected update_full"
    history.claim("u0", 9, part=2)
    assert history.run.updates.all_open()[0].held == ("t0", "t1", "t2")
