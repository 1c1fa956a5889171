"""Rewards, their failures and what is filtered out; facts that come before what they are about."""

import pytest

from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.reward import DiscardReason, RewardFailure, RewardReady
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.types import NamedNumber
from rollbook.tests.processors.history import History, item, reasons, says
from rollbook.tests.processors.parts import payload_ref


def opened(**limits: int) -> History:
    return History().opened(**limits)  # type: ignore[arg-type]


def test_a_reward_makes_its_trajectory_ready() -> None:
    history = opened()
    history.generated("t0")
    decision = history.rewarded("t0")
    found = item(decision, "t0")
    assert says(decision) == "accepted ok"
    assert (found.reason, found.state_before, found.state_after) == ("rewarded", "generated", "rewarded")
    assert (found.revision_before, found.revision_after) == (1, 2)
    assert (found.generated_offset, found.reward_offset) == (2, 3)


def test_the_same_reward_again_is_a_duplicate_whatever_record_it_comes_in() -> None:
    history = opened()
    history.generated("t0")
    history.generated("t1")
    history.rewarded("t0")
    assert says(history.rewarded("t0")) == "duplicate duplicate"
    assert says(history.rewarded("t0", "t1")) == "accepted ok"
    assert reasons(history.last) == {"t0": "duplicate", "t1": "rewarded"}
    assert says(history.rewarded("t0", reward=0.5)) == "rejected conflict"
    assert says(history.rewarded("t0", label="others")) == "rejected conflict"
    assert history.revision("t0") == 2


def test_what_makes_a_reward_another_one() -> None:
    history = opened()
    history.ready("t0")
    sent = decode_as(RewardReady, history.log.records[-1].value or b"")
    with_parts = sent.items[0].model_copy(update={"components": (NamedNumber(name="format", value=1.0),)})
    with_payload = sent.items[0].model_copy(update={"payload": payload_ref("per token")})
    for other in (
        sent.model_copy(update={"items": (with_parts,)}),
        sent.model_copy(update={"items": (with_payload,)}),
        sent.model_copy(update={"remote": True}),
        sent.model_copy(update={"reward": sent.reward.model_copy(update={"version": "2"})}),
    ):
        assert says(history.send(other)) == "rejected conflict"
    assert says(history.send(sent)) == "duplicate duplicate"


def test_a_failed_reward_is_no_reward_and_may_be_followed_by_one() -> None:
    history = opened()
    history.generated("t0")
    assert says(history.reward_failed("t0")) == "accepted ok"
    assert (history.status("t0"), item(history.last, "t0").reward_offset) == ("reward_failed", None)
    assert says(history.reward_failed("t0")) == "duplicate duplicate"
    again = history.reward_failed("t0", RewardFailure.SERVICE_ERROR)
    assert (says(again), again.detail, history.revision("t0")) == ("accepted ok", "service_error", 2)
    assert says(history.rewarded("t0")) == "accepted ok"
    assert (history.status("t0"), history.revision("t0")) == ("rewarded", 3)
    assert says(history.reward_failed("t0", RewardFailure.SERVICE_ERROR)) == "duplicate duplicate"  # it was overcome
    assert says(history.reward_failed("t0")) == "rejected illegal_transition"


@pytest.mark.parametrize(
    ("first", "then", "answer"),
    [
        (["discard"], "reward", "rejected illegal_transition"),
        (["reward", "discard"], "reward", "duplicate duplicate"),
        (["reward"], "discard", "accepted ok"),
        (["fail"], "discard", "accepted ok"),
        (["discard"], "discard", "duplicate duplicate"),
        (["reward", "reserve"], "discard", "rejected illegal_transition"),
        (["reward", "reserve"], "reward", "duplicate duplicate"),
        (["reward", "reserve"], "fail", "rejected illegal_transition"),
    ],
)
def test_rewards_and_discards_in_every_state(first: list[str], then: str, answer: str) -> None:
    history = opened()
    history.learner()
    history.generated("t0")
    acts = {
        "reward": lambda: history.rewarded("t0"),
        "fail": lambda: history.reward_failed("t0"),
        "discard": lambda: history.discarded("t0"),
        "reserve": lambda: history.reserve("u0", "t0"),
    }
    for act in first:
        acts[act]()
    assert says(acts[then]()) == answer


def test_each_item_of_a_record_is_judged_by_itself() -> None:
    history = opened()
    for name in ("t0", "t1", "t2"):
        history.generated(name)
    history.rewarded("t1")
    history.discarded("t2")
    decision = history.rewarded("t0", "t1", "t2", "t3", "t0")
    assert says(decision) == "accepted ok"
    assert [found.reason for found in decision.items] == [
        "rewarded",
        "duplicate",
        "illegal_transition",
        "pending",
        "duplicate",
    ]
    assert history.revision("t0") == 2


@pytest.mark.parametrize(
    ("names", "answer"),
    [
        (("known", "early"), "accepted ok"),
        (("early", "gone"), "pending pending"),
        (("rewarded", "rewarded"), "duplicate duplicate"),
        (("rewarded", "gone"), "rejected illegal_transition"),
        (("gone",), "rejected illegal_transition"),
    ],
)
def test_the_outcome_of_a_record_follows_from_its_items(names: tuple[str, ...], answer: str) -> None:
    history = opened()
    history.generated("known")
    history.ready("rewarded")
    history.generated("gone")
    history.discarded("gone")
    assert says(history.rewarded(*names)) == answer


# --- early facts


def test_an_early_reward_waits_and_is_applied_as_part_of_the_arrival() -> None:
    history = opened()
    assert says(history.rewarded("t0")) == "pending pending"
    early = history.last.source.offset
    assert says(history.rewarded("t0")) == "duplicate duplicate"
    assert says(history.rewarded("t0", reward=0.0)) == "rejected conflict"
    decision = history.generated("t0")
    found = item(decision, "t0")
    assert (found.reason, found.state_after, found.revision_after) == ("generated", "rewarded", 1)
    assert found.reward_offset == early
    assert [(done.offset, done.record_type, done.subject_id, done.reason) for done in decision.released] == [
        (early, "RewardReady", "t0", "rewarded")
    ]
    assert len(history.run.pending) == 0
    assert says(history.rewarded("t0")) == "duplicate duplicate"
    assert not history.generated("t1").released


def test_an_early_failure_waits_too_and_gives_way_to_a_reward() -> None:
    history = opened()
    assert says(history.reward_failed("t0")) == "pending pending"
    assert says(history.reward_failed("t0")) == "duplicate duplicate"
    assert says(history.reward_failed("t1")) == "pending pending"
    assert says(history.rewarded("t0")) == "pending pending"
    assert says(history.reward_failed("t0")) == "duplicate duplicate"  # the failure that the reward took the place of
    assert says(history.reward_failed("t0", RewardFailure.SERVICE_ERROR)) == "rejected conflict"
    for name in ("t0", "t1"):
        history.generated(name)
    assert (history.status("t0"), history.status("t1")) == ("rewarded", "reward_failed")
    assert history.last.released[0].reason == "reward_failed"
    assert history.trajectory("t1").reward_offset is None


def test_a_reward_that_waited_for_a_generation_that_failed_is_released_without_effect() -> None:
    history = opened()
    history.rewarded("t0")
    decision = history.failed("t0")
    assert (history.status("t0"), decision.released[0].reason) == ("generation_failed", "illegal_transition")
    assert len(history.run.pending) == 0


def test_a_reward_that_waited_for_a_quarantined_trajectory_is_kept_with_it() -> None:
    history = opened()
    history.learner()
    history.abort("u0")
    history.prepared(1, "u0")
    history.rewarded("t0")
    decision = history.generated("t0", 1)
    assert (history.status("t0"), history.revision("t0")) == ("quarantined", 1)
    assert decision.released[0].record_type == "RewardReady"


def test_no_more_than_max_pending_facts_wait_of_all_kinds_together() -> None:
    history = opened(max_pending=2)
    history.rewarded("t0")
    early = history.last.source.offset
    history.written(7)
    assert reasons(history.rewarded("t1")) == {"t1": "pending"}
    assert [(one.offset, one.subject_id, one.reason) for one in history.last.released] == [
        (early, "t0", "pending_full")
    ]
    assert says(history.reward_failed("t1")) == "rejected conflict"
    assert says(history.written(8)) == "pending pending"
    assert [one.subject_id for one in history.last.released] == ["t1"], "what waits for a policy never makes room"
    assert says(history.written(9)) == "rejected pending_full"
    assert reasons(history.rewarded("t2")) == {"t2": "pending_full"}
    history.prepared(7, parent=0, committed=False)
    assert says(history.rewarded("t2")) == "pending pending"


def test_rewards_of_what_was_refused_do_not_take_the_room_of_others_for_ever() -> None:
    history = opened(max_live=1, max_pending=2)
    history.generated("t0")
    for name in ("refused-0", "refused-1", "refused-2"):
        assert says(history.generated(name)) == "rejected backlog_full"
        history.rewarded(name)
    history.discarded("t0")
    assert says(history.rewarded("t1")) == "pending pending"
    history.generated("t1")
    assert history.status("t1") == "rewarded"


def test_a_failure_that_waits_gives_way_even_when_the_room_is_full() -> None:
    history = opened(max_pending=1)
    history.reward_failed("t0")
    assert says(history.rewarded("t0")) == "pending pending"


# --- discards


def test_discards_name_the_reason_and_judge_each_trajectory() -> None:
    history = opened()
    history.ready("t0")
    history.generated("t1", purpose=Purpose.EVAL)
    decision = history.discarded("t0", "t1", "t2", "t0", reason=DiscardReason.ZERO_VARIANCE)
    assert (says(decision), decision.detail) == ("accepted ok", "zero_variance")
    assert [found.reason for found in decision.items] == ["discarded", "discarded", "missing_rollout", "duplicate"]
    assert (history.status("t0"), history.revision("t0")) == ("discarded", 3)
    assert says(history.discarded("t2")) == "rejected missing_rollout"
