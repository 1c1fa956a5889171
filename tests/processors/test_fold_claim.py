"""Reserve by claim: which groups the ledger chooses, in which order, and what it passes over."""

from collections.abc import Sequence

import pytest

from rollbook.processors.ledger import claim
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.update import ClaimOrder, ReserveMode
from rollbook.tests.processors.history import History, reasons, says
from rollbook.tests.processors.parts import policy

ALL = ReserveMode.ALL
FRESHEST = ClaimOrder.FRESHEST


def opened(versions: int = 0, max_lag: int = 9) -> History:
    """A run with a started learner and some activated policies."""
    history = History().opened(max_lag=max_lag)
    history.learner()
    for version in range(1, versions + 1):
        history.advanced(version)
    return history


def taken(history: History) -> list[str]:
    """What the last decision reserved, in its order."""
    return [found.trajectory_id for found in history.last.items if found.reason == "reserved"]


def test_a_claim_takes_whole_groups_in_the_order_of_their_samples() -> None:
    history = opened()
    history.generated("b", group="g", sample=1, of=2)
    history.generated("a", group="g", sample=0, of=2)
    history.rewarded("b", "a")
    assert says(history.claim("u0")) == "accepted ok"
    assert taken(history) == ["a", "b"]
    assert reasons(history.started("u0")) == {"a": "held", "b": "held"}


@pytest.mark.parametrize(
    ("order", "groups", "expected"),
    [
        (ClaimOrder.OLDEST, 1, ["b0"]),
        (ClaimOrder.OLDEST, 2, ["b0", "b1"]),
        (ClaimOrder.OLDEST, 9, ["b0", "b1", "a0", "a1", "c0"]),
        (FRESHEST, 1, ["c0"]),
        (FRESHEST, 3, ["c0", "a0", "a1"]),
        (FRESHEST, 9, ["c0", "a0", "a1", "b0", "b1"]),
    ],
)
def test_oldest_or_freshest_version_first_then_offset(order: ClaimOrder, groups: int, expected: Sequence[str]) -> None:
    history = opened(versions=2)
    for name, version in (("a0", 1), ("b0", 0), ("b1", 0), ("c0", 2), ("a1", 1)):
        history.ready(name, version=version)
    history.claim("u0", groups, order=order)
    assert taken(history) == expected


def test_the_oldest_member_ready_to_train_gives_a_group_its_place() -> None:
    history = opened(versions=2)
    history.generated("a0", 2, group="a", sample=0, of=3)
    history.generated("a1", 0, group="a", sample=1, of=3)
    history.generated("a2", 0, group="a", sample=2, of=3)
    history.ready("b0", version=1)
    history.rewarded("a0", "a1")
    history.reward_failed("a2")
    history.discarded("a1")
    history.claim("u0", 1)
    assert taken(history) == ["b0"]


@pytest.mark.parametrize(
    ("acts", "claimable"),
    [
        ("generate 0", False),
        ("generate 0, reward 0", False),
        ("generate 0, reward 0, generate 1", False),
        ("generate 0, reward 0, generate 1, reward 1", True),
        ("generate 0, reward 0, fail 1", True),
        ("fail 0, fail 1", False),
        ("generate 0, reward 0, generate 1, lose 1", True),
        ("generate 0, reward 0, generate 1, discard 1", True),
        ("generate 0, lose 0, fail 1", False),
        ("generate 0, reward 0, discard 0, generate 1, reward 1", True),
        ("reward 0, generate 0, generate 1, reward 1", True),
        ("fail 0, generate 0 again, reward 0 again", False),
        ("fail 0, generate 0 again, reward 0 again, generate 1, reward 1", True),
        ("generate 0, reward 0, generate 1, reward 1, generate 0 again", False),
    ],
)
def test_a_group_is_claimable_when_each_place_is_known_none_is_awaited_and_one_is_rewarded(
    acts: str, claimable: bool
) -> None:
    history = opened()
    for act in acts.split(", "):
        verb, place, *again = act.split()
        name = f"t{place}{''.join(again)}"
        if verb == "generate":
            history.generated(name, group="g", sample=int(place), of=2)
        elif verb == "fail":
            history.failed(name, group="g", sample=int(place), of=2)
        elif verb == "reward":
            history.rewarded(name)
        elif verb == "lose":
            history.reward_failed(name)
        else:
            history.discarded(name)
    assert (history.run.trajectories.claimable_groups() == ["g"]) is claimable
    assert says(history.claim("u0")) == ("accepted ok" if claimable else "rejected nothing_taken")


def test_a_group_is_as_large_as_its_largest_member_says() -> None:
    history = opened()
    history.generated("a", group="g", sample=0, of=1)
    history.generated("b", group="g", sample=1, of=3)
    history.rewarded("a", "b")
    assert says(history.claim("u0")) == "rejected nothing_taken"
    history.failed("c", group="g", sample=2, of=3)
    history.claim("u0")
    assert taken(history) == ["a", "b"]


def test_evaluation_members_are_left_out() -> None:
    history = opened()
    history.generated("a", group="g", sample=0, of=2, purpose=Purpose.EVAL)
    history.generated("b", group="g", sample=1, of=2)
    history.rewarded("a", "b")
    history.ready("c", purpose=Purpose.EVAL)
    history.claim("u0", 9)
    assert reasons(history.last) == {"b": "reserved"}


def test_a_stale_row_is_passed_over_and_the_rest_of_its_group_taken() -> None:
    history = opened(versions=2, max_lag=1)
    history.generated("a", 0, group="g", sample=0, of=2)
    history.generated("b", 1, group="g", sample=1, of=2)
    history.rewarded("a", "b")
    history.claim("u0")
    assert reasons(history.last) == {"a": "stale_policy", "b": "reserved"}
    assert history.status("a") == "rewarded"


def test_groups_that_do_not_pass_do_not_count_as_taken() -> None:
    history = opened(versions=2, max_lag=1)
    history.ready("old0", "old1", version=0)
    history.ready("mixed0", group="mixed")
    history.ready("new0", "new1", version=2)
    history.claim("u0", 2)
    assert (taken(history), history.last.detail) == (["new0", "new1"], "3 groups passed over")
    assert says(history.claim("u1")) == "rejected nothing_taken"
    assert history.last.items == ()
    assert history.update_status("u1") == "none"


def test_mode_all_passes_over_a_group_with_a_row_that_does_not_pass() -> None:
    history = opened(versions=2, max_lag=1)
    history.generated("a", 0, group="g", sample=0, of=2)
    history.generated("b", 1, group="g", sample=1, of=2)
    history.rewarded("a", "b")
    history.ready("c", version=1)
    history.claim("u0", 2, mode=ALL)
    assert taken(history) == ["c"]
    assert [history.status(name) for name in ("a", "b")] == ["rewarded", "rewarded"]


@pytest.mark.parametrize("by", [policy(9), policy(0, "other")])
def test_a_claim_with_an_unknown_policy_takes_nothing(by: PolicyRef) -> None:
    history = opened()
    history.ready("a")
    assert says(history.claim("u0", by=by)) == "rejected nothing_taken"


def test_parts_of_a_claim_and_retries() -> None:
    history = opened()
    history.ready("a", "b", "c")
    first = history.claim("u0")
    assert says(history.claim("u0")) == "duplicate duplicate"
    assert history.last.items == first.items
    assert says(history.claim("u0", 2)) == "rejected conflict"
    history.claim("u0", part=1)
    assert taken(history) == ["b"]
    assert reasons(history.started("u0")) == {"a": "held", "b": "held"}


def test_two_learners_never_claim_the_same_group() -> None:
    history = opened()
    history.learner("other")
    history.ready("a", "b", "c")
    history.claim("u0", 2)
    assert taken(history) == ["a", "b"]
    history.claim("u1", 2, learner="other")
    assert taken(history) == ["c"]


def test_what_is_given_back_can_be_claimed_again() -> None:
    history = opened()
    history.ready("a", "b", group="g")
    history.claim("u0")
    assert says(history.claim("u1")) == "rejected nothing_taken"
    history.abort("u0")
    assert says(history.claim("u1")) == "accepted ok"


def test_a_group_too_large_for_one_command_does_not_stand_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "MAX_ITEMS", 3)
    history = opened()
    history.ready("a0", "a1", "a2", "a3", group="a")
    history.ready("b0", "b1", group="b")
    history.ready("c0", "c1", group="c")
    history.ready("d0", group="d")
    history.claim("u0", 9)
    assert (taken(history), history.last.detail) == (["b0", "b1", "d0"], "2 groups passed over")
