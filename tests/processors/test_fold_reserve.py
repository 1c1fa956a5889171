"""Reserve by name: the order of the gates, the two modes, parts and retries, lag in both units."""

import pytest

from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.run import LagUnit
from rollbook.schemas.records.update import ReserveMode
from rollbook.tests.processors.history import History, item, reasons, says
from rollbook.tests.processors.parts import policy

AVAILABLE = ReserveMode.AVAILABLE


def opened(*, max_lag: int = 1, lag_unit: LagUnit = LagUnit.DEPTH) -> History:
    """A run with a started learner."""
    history = History().opened(max_lag=max_lag, lag_unit=lag_unit)
    history.learner()
    return history


def exported(versions: int, *, max_lag: int = 1, active: int | None = None) -> History:
    """Versions 1 and on prepared, and activated in turn up to `active`; the learner's policy is the newest."""
    history = opened(max_lag=max_lag)
    for version in range(1, versions + 1):
        history.prepared(version)
        if active is None or version <= active:
            history.activate(version)
    return history


# --- one trajectory


def test_a_reservation_raises_the_revision_and_names_the_holder() -> None:
    history = opened()
    history.ready("t0")
    decision = history.reserve("u0", "t0")
    found = item(decision, "t0")
    assert says(decision) == "accepted ok"
    assert (found.reason, found.state_before, found.state_after) == ("reserved", "rewarded", "reserved")
    assert (found.revision_before, found.revision_after) == (2, 3)
    assert (found.lag, found.freshness) == (0, "fresh")
    assert (found.generated_offset, found.reward_offset) == (3, 4)
    assert (history.trajectory("t0").update_id, decision.update_id) == ("u0", "u0")


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("unknown", "missing_rollout"),
        ("held by this update", "idempotent_retry"),
        ("changed since", "revision_conflict"),
        ("not rewarded", "not_rewarded"),
        ("held by another update", "not_rewarded"),
        ("consumed", "not_rewarded"),
        ("evaluation", "eval_only"),
        ("learner's policy unknown", "unknown_policy"),
        ("span's policy unknown", "unknown_policy"),
        ("span's policy not active", "policy_not_active"),
        ("from the future", "future_policy"),
        ("too old", "stale_policy"),
        ("fresh", "reserved"),
    ],
)
def test_the_gates_in_their_order_each_before_all_that_follow(case: str, reason: str) -> None:
    """Each case would also be refused by the gates after it; the first one answers."""
    history = opened(max_lag=0)
    history.ready("held", "other", "consumed", "fresh", "changed", "old")
    history.trained("u8", "consumed")
    history.reserve("u0", "held")
    history.reserve("u9", "other")
    history.advanced(1)
    history.prepared(2)
    history.generated("raw", 7, purpose=Purpose.EVAL)
    history.ready("exam", version=7, purpose=Purpose.EVAL)
    history.ready("early", version=7)
    history.ready("unserved", version=2)
    history.ready("newest", version=1)
    unknown = policy(9)
    cases: dict[str, tuple[str, int | None, PolicyRef]] = {
        "unknown": ("nobody", 5, unknown),
        "held by this update": ("held", 99, unknown),
        "changed since": ("raw", 99, unknown),
        "not rewarded": ("raw", None, unknown),
        "held by another update": ("other", None, unknown),
        "consumed": ("consumed", None, unknown),
        "evaluation": ("exam", None, unknown),
        "learner's policy unknown": ("unserved", None, unknown),
        "span's policy unknown": ("early", None, policy(0)),
        "span's policy not active": ("unserved", None, policy(0)),
        "from the future": ("newest", None, policy(0)),
        "too old": ("old", None, policy(1)),
        "fresh": ("fresh", None, policy(0)),
    }
    name, revision, by = cases[case]
    at = history.revision(name) if revision is None else revision
    decision = history.reserve("u0", revisions={name: at}, by=by, part=3)
    assert reasons(decision) == {name: reason}
    taken = reason in ("reserved", "idempotent_retry")
    assert says(decision) == ("accepted ok" if taken else f"rejected {reason}")


@pytest.mark.parametrize("by", [policy(0, "other"), policy(4)])
def test_the_learners_policy_is_known_by_version_and_hash(by: PolicyRef) -> None:
    history = opened()
    history.ready("t0")
    assert reasons(history.reserve("u0", "t0", by=by)) == {"t0": "unknown_policy"}


# --- lag


@pytest.mark.parametrize(
    ("max_lag", "behavior", "lag", "freshness", "reason"),
    [
        (0, 3, 0, "fresh", "reserved"),
        (0, 2, 1, "stale", "stale_policy"),
        (1, 2, 1, "tolerated", "reserved"),
        (2, 1, 2, "tolerated", "reserved"),
        (2, 0, 3, "stale", "stale_policy"),
    ],
)
def test_lag_in_depth(max_lag: int, behavior: int, lag: int, freshness: str, reason: str) -> None:
    history = exported(3, max_lag=max_lag)
    history.ready("t0", version=behavior)
    found = item(history.reserve("u0", "t0"), "t0")
    assert (found.lag, found.freshness, found.reason) == (lag, freshness, reason)


def test_a_policy_ahead_of_the_learners_is_future() -> None:
    history = exported(2)
    history.ready("t0", version=2)
    found = item(history.reserve("u0", "t0", by=policy(1)), "t0")
    assert (found.lag, found.freshness, found.reason) == (-1, "future", "future_policy")


@pytest.mark.parametrize(
    ("versions", "segments", "lag"),
    [((2, 1), 1, 2), ((3, 3), 1, 0), ((3, 1), 2, 2), ((2, 3), 3, 1), ((3, 0), 1, 3)],
)
def test_the_oldest_of_all_spans_of_all_segments_counts(versions: tuple[int, ...], segments: int, lag: int) -> None:
    history = exported(3, max_lag=9)
    history.generated("t0", *versions, segments=segments)
    history.rewarded("t0")
    assert item(history.reserve("u0", "t0"), "t0").lag == lag


def test_one_span_that_was_never_active_is_enough() -> None:
    history = exported(2, active=1)
    history.generated("t0", 1, 2)
    history.rewarded("t0")
    assert reasons(history.reserve("u0", "t0")) == {"t0": "policy_not_active"}
    history.activate(2)
    assert reasons(history.reserve("u0", "t0")) == {"t0": "reserved"}


def test_a_rollback_is_as_deep_as_what_it_restores() -> None:
    history = exported(2, max_lag=9)
    history.prepared(3, parent=2, rollback_of=0)
    history.activate(3)
    history.ready("t0", version=3)
    history.ready("t1", version=1)
    assert item(history.reserve("u0", "t0"), "t0").lag == 0
    assert item(history.reserve("u0", "t1", by=policy(2), part=1), "t1").lag == 1
    history.generated("t2", 2, 3)
    history.rewarded("t2")
    assert item(history.reserve("u0", "t2", by=policy(2), part=2), "t2").lag == 2, "version 3 is the older one"


def test_lag_in_ordinal_counts_standing_commits_and_earlier_open_updates() -> None:
    history = opened(max_lag=9, lag_unit=LagUnit.ORDINAL)
    history.ready(*(f"t{at}" for at in range(8)))
    assert item(history.reserve("u0", "t0"), "t0").lag == 0
    assert item(history.reserve("u1", "t1"), "t1").lag == 1, "u0 was reserved before and will be in the weights"
    assert item(history.reserve("u0", "t2", part=1), "t2").lag == 0
    history.abort("u0")
    assert item(history.reserve("u1", "t3", part=1), "t3").lag == 0
    history.admit("u1", {"t1": 0.0, "t3": 0.0})
    history.started("u1")
    history.commit("u1", "t1", "t3")
    assert item(history.reserve("u2", "t4"), "t4").lag == 1
    history.prepared(1, "u1")
    history.activate(1)
    history.ready("t8", version=1)
    assert item(history.reserve("u2", "t8", part=1), "t8").lag == 0
    history.learner()
    assert item(history.reserve("u3", "t5"), "t5").lag == 0, "a start from none has undone the commit"


def test_other_learners_do_not_count_in_the_ordinal() -> None:
    history = opened(max_lag=9, lag_unit=LagUnit.ORDINAL)
    history.ready("t0", "t1")
    history.learner("other")
    history.trained("u0", "t0", learner="other")
    assert item(history.reserve("u1", "t1"), "t1").lag == 0


def test_an_update_is_judged_by_the_configuration_of_its_first_reserve() -> None:
    history = exported(1, max_lag=1)
    history.ready("t0", "t1", "t2", version=0)
    history.reserve("u0", "t0")
    history.configured(2, max_lag=0)
    assert reasons(history.reserve("u0", "t1", part=1)) == {"t1": "reserved"}
    assert reasons(history.reserve("u1", "t2")) == {"t2": "stale_policy"}


# --- modes


def test_mode_all_takes_every_item_or_none() -> None:
    history = opened()
    history.ready("t0", "t1")
    history.generated("t2")
    decision = history.reserve("u0", "t0", "t2", "t1", "nobody")
    assert says(decision) == "rejected not_rewarded"
    assert reasons(decision) == {
        "t0": "all_or_none",
        "t2": "not_rewarded",
        "t1": "all_or_none",
        "nobody": "missing_rollout",
    }
    assert [history.status(name) for name in ("t0", "t1")] == ["rewarded", "rewarded"]
    assert history.update_status("u0") == "none", "a refused Reserve leaves no trace"
    assert says(history.reserve("u0", "t0", "t1")) == "accepted ok"


def test_mode_available_takes_what_passes() -> None:
    history = opened()
    history.ready("t0", "t1")
    history.generated("t2")
    decision = history.reserve("u0", "t2", "t0", "nobody", "t1", mode=AVAILABLE)
    assert says(decision) == "accepted ok"
    assert reasons(decision) == {
        "t2": "not_rewarded",
        "t0": "reserved",
        "nobody": "missing_rollout",
        "t1": "reserved",
    }
    assert reasons(history.started("u0")) == {"t0": "held", "t1": "held"}


def test_a_reserve_that_takes_nothing_is_rejected_for_its_first_item() -> None:
    history = opened()
    history.generated("t0")
    assert says(history.reserve("u0", "nobody", "t0", mode=AVAILABLE)) == "rejected missing_rollout"
    assert history.update_status("u0") == "none"


# --- parts, retries, holders


def test_parts_add_to_an_update_until_it_starts() -> None:
    history = opened()
    history.ready("t0", "t1", "t2")
    history.reserve("u0", "t0")
    decision = history.reserve("u0", "t0", "t1", part=1)
    assert reasons(decision) == {"t0": "idempotent_retry", "t1": "reserved"}
    assert item(decision, "t0").lag == 0, "that of its first judgement"
    assert item(history.reserve("u1", "t0"), "t0").lag is None, "nobody judged it for this update"
    assert history.revision("t0") == 3
    assert reasons(history.started("u0")) == {"t0": "held", "t1": "held"}
    assert says(history.reserve("u0", "t2", part=2)) == "rejected update_started"
    assert history.status("t2") == "rewarded"


def test_a_retry_of_a_part_gets_the_first_answer_even_after_the_start() -> None:
    history = opened()
    history.ready("t0", "t1")
    first = history.reserve("u0", "t0", revisions={"t0": 2})
    assert says(history.again()) == "duplicate duplicate"
    assert history.last.items == first.items
    assert says(history.reserve("u0", revisions={"t0": 2})) == "duplicate duplicate", "the event id does not matter"
    assert says(history.reserve("u0", "t1")) == "rejected conflict", "part 0 was something else"
    history.started("u0")
    assert says(history.again(4)) == "duplicate duplicate"
    assert history.last.items == first.items
    assert history.revision("t0") == 3


def test_a_retry_of_a_refused_part_is_judged_anew() -> None:
    history = opened()
    history.generated("t0")
    assert says(history.reserve("u0", revisions={"t0": 2})) == "rejected revision_conflict"
    history.rewarded("t0")
    assert says(history.again(2)) == "accepted ok"


def test_an_update_belongs_to_one_learner() -> None:
    history = opened()
    history.ready("t0", "t1")
    history.learner("other")
    history.reserve("u0", "t0")
    assert says(history.reserve("u0", "t1", learner="other", part=1)) == "rejected not_holder"
    assert says(history.claim("u0", learner="other", part=1)) == "rejected not_holder"
    assert history.update_status("u0") == "open"


def test_of_two_learners_one_gets_the_trajectory() -> None:
    history = opened()
    history.ready("t0")
    history.learner("other")
    history.reserve("u0", revisions={"t0": 2})
    decision = history.reserve("u1", revisions={"t0": 2}, learner="other")
    assert reasons(decision) == {"t0": "revision_conflict"}
    assert (item(decision, "t0").state_after, history.trajectory("t0").update_id) == ("reserved", "u0")


def test_what_was_given_back_can_be_taken_again() -> None:
    history = opened()
    history.ready("t0")
    history.reserve("u0", "t0")
    history.abort("u0")
    decision = history.reserve("u1", "t0")
    assert (item(decision, "t0").revision_before, item(decision, "t0").revision_after) == (4, 5)
