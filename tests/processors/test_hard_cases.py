"""Cases from public trackers of RL frameworks, where training went on with wrong numbers: here each ends as the rules
say."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from rollbook.processors import activate_policy_version, assess_policy_compatibility
from rollbook.processors.freshness import snapshot
from rollbook.producers.arrays import Field
from rollbook.producers.clients.segments import PreparedSegment, SegmentArrays, prepare
from rollbook.producers.redaction.policy import Redaction
from rollbook.producers.updates.drift import admit_item
from rollbook.schemas.codec import ContractViolation
from rollbook.schemas.digests import FloatArray, Mask
from rollbook.schemas.records.common import SourceKind
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.policy import PolicyPrepared
from rollbook.schemas.records.reward import DiscardReason, RewardFailure
from rollbook.schemas.records.rollout import FinishReason, Generated, Origin, Purpose, Segment, Span
from rollbook.schemas.records.run import Artifact, ArtifactKind, DriftGate
from rollbook.schemas.records.update import AdmitItem, ReserveMode
from rollbook.tests.processors import parts
from rollbook.tests.processors.history import History, item, reasons, says
from rollbook.tests.processors.parts import policy


def group(history: History, name: str, *rewards: float | None) -> list[str]:
    """A group of as many members as there are rewards; None for a member whose generation failed."""
    names = [f"{name}{at}" for at in range(len(rewards))]
    for at, (member, reward) in enumerate(zip(names, rewards, strict=True)):
        if reward is None:
            history.failed(member, group=name, sample=at, of=len(names))
        else:
            history.generated(member, group=name, sample=at, of=len(names))
            history.rewarded(member, reward=reward)
    return names


def spans(*lengths: tuple[int, int]) -> Segment:
    """A row whose tokens are by these (version, tokens) in turn, all active."""
    made, at = [], 0
    for version, tokens in lengths:
        made.append(Span(start=at, end=at + tokens, origin=Origin.MODEL, policy=policy(version)))
        at += tokens
    return Segment(
        prompt_length=3,
        response_length=at,
        spans=tuple(made),
        active_tokens=at,
        tokens_digest=parts.sha("tokens"),
        evidence_digest=parts.sha("evidence"),
    )


def generated(history: History, name: str, *segments: Segment) -> Decision:
    """Generated with these rows."""
    return history.send(
        Generated(
            header=history.header(SourceKind.ROLLOUT_WORKER),
            identity=parts.identity(name, f"group of {name}", 0, 1),
            purpose=Purpose.TRAIN,
            task=parts.task(name),
            contract_hash=parts.contract_named(),
            segments=segments,
            finish_reason=FinishReason.STOP,
            provenance=parts.PROVENANCE,
        )
    )


def at_version(newest: int, *, max_lag: int) -> History:
    """A run with a learner whose policies 0 to `newest` have all been active."""
    history = History().opened(max_lag=max_lag, gate=DriftGate.OFF)
    for version in range(1, newest + 1):
        history.advanced(version)
    history.learner()
    return history


# --- groups


def test_uneven_groups_are_taken_whole_each_with_its_own_size() -> None:
    history = History().opened()
    history.learner()
    for name, size in (("a", 2), ("b", 3), ("c", 1)):
        group(history, name, *[1.0] * size)
    assert list(reasons(history.claim("u0", 3))) == ["a0", "a1", "b0", "b1", "b2", "c0"]


def test_groups_that_arrive_interleaved_are_told_apart_by_their_name_and_not_by_their_batch() -> None:
    history = History().opened()
    history.learner()
    for at in range(2):
        for name in ("a", "b", "c"):
            history.generated(f"{name}{at}", group=name, sample=at, of=2)
    history.rewarded("c1", "a0", "b1")
    history.rewarded("b0", "a1")
    assert [set(reasons(history.claim(f"u{at}"))) for at in range(3)] == [{"a0", "a1"}, {"b0", "b1"}, set()]
    history.rewarded("c0")
    assert list(reasons(history.claim("u2"))) == ["c0", "c1"]


def test_members_of_one_group_by_different_versions_are_each_judged_by_their_own() -> None:
    history = at_version(2, max_lag=1)
    for at, version in enumerate((0, 1, 2)):
        history.generated(f"t{at}", version, group="g", sample=at, of=3)
    history.rewarded("t0", "t1", "t2")
    decision = history.claim("u0")
    assert [(one.trajectory_id, one.reason, one.lag) for one in decision.items] == [
        ("t0", "stale_policy", 2),
        ("t1", "reserved", 1),
        ("t2", "reserved", 0),
    ]
    history.abort("u0")
    assert says(history.claim("u1", mode=ReserveMode.ALL)) == "rejected nothing_taken"


def test_a_group_whose_one_member_failed_is_trained_on_without_it() -> None:
    history = History().opened()
    history.learner()
    group(history, "g", 1.0, None, 0.0)
    assert list(reasons(history.claim("u0"))) == ["g0", "g2"]
    assert history.status("g1") == "generation_failed"


def test_zero_variance_groups_discarded_after_their_reward_are_no_failures_and_never_taken() -> None:
    history = History().opened()
    history.learner()
    flat, varied = group(history, "flat", 1.0, 1.0), group(history, "varied", 1.0, 0.0)
    discarded = history.discarded(*flat, reason=DiscardReason.ZERO_VARIANCE)
    assert (says(discarded), discarded.detail) == ("accepted ok", "zero_variance")
    assert list(reasons(history.claim("u0", 2))) == varied
    assert says(history.reserve("u0", *flat, part=1)) == "rejected not_rewarded"
    assert {history.status(name) for name in flat} == {"discarded"}


# --- versions and lag


@pytest.mark.parametrize(("max_lag", "said"), [(3, "stale_policy"), (4, "reserved")])
def test_versions_2_4_6_over_tokens_2_2_8_are_as_old_as_version_2(max_lag: int, said: str) -> None:
    history = at_version(6, max_lag=max_lag)
    generated(history, "t0", spans((2, 2), (4, 2), (6, 8)))
    history.rewarded("t0")
    decided = item(history.reserve("u0", "t0"), "t0")
    assert (decided.reason, decided.lag) == (said, 4)


def test_90_tokens_by_version_1_and_10_by_version_5_are_not_fresh_at_version_5() -> None:
    history = at_version(5, max_lag=3)
    generated(history, "t0", spans((1, 90), (5, 10)))
    generated(history, "t1", spans((1, 90)), spans((5, 10)))
    history.rewarded("t0", "t1")
    decision = history.reserve("u0", "t0", "t1")
    assert [(one.reason, one.lag, one.freshness) for one in decision.items] == [("stale_policy", 4, "stale")] * 2


@pytest.mark.parametrize(("lag", "said"), [(1, "reserved"), (2, "reserved"), (3, "stale_policy")])
def test_a_lag_below_at_and_above_the_limit_of_2(lag: int, said: str) -> None:
    history = at_version(3, max_lag=2)
    history.ready("t0", version=3 - lag)
    decided = item(history.reserve("u0", "t0"), "t0")
    assert (decided.reason, decided.lag) == (said, lag)
    assert snapshot(history.run).ready_stale == (lag == 3)


def prepared(history: History, version: int, label: str) -> Decision:
    """PolicyPrepared under the trainer's own name for it."""
    return history.send(
        PolicyPrepared(
            header=history.header(SourceKind.COORDINATOR),
            version=version,
            label=label,
            artifact=Artifact(hash=policy(version).artifact_hash, kind=ArtifactKind.DECLARED),
            parent_version=version - 1,
            update_ids=(),
            committed=True,
        )
    )


def test_a_trainers_label_may_fall_from_57_to_1_where_a_version_may_not() -> None:
    history = History().opened(max_lag=1, gate=DriftGate.OFF)
    history.learner()
    for version, label in ((1, "57"), (2, "1")):
        assert says(prepared(history, version, label)) == "accepted ok"
        assert says(history.activate(version)) == "accepted activated"
    history.ready("t0", version=1)
    assert item(history.reserve("u0", "t0"), "t0").lag == 1
    history.prepared(57, parent=2)
    history.activate(57)
    history.prepared(3, parent=57)
    assert says(history.activate(3)) == "rejected non_monotonic_version"


def test_an_activation_before_the_last_ack_names_who_is_missing_and_moves_nothing() -> None:
    history = History().opened(workers=("w0", "w1", "w2"))
    history.prepared(1)
    history.ack("w0", 1)
    history.ack("w2", 0)
    early = history.activate(1)
    assert (says(early), early.missing_workers, early.mismatched_workers) == (
        "rejected missing_worker_ack",
        ("w1",),
        ("w2",),
    )
    history.ack("w1", 1)
    assert says(history.activate(1)) == "rejected worker_mismatch"
    assert history.run.head.active == policy(0)
    history.ack("w2", 1)
    assert says(history.activate(1)) == "accepted activated"


def test_version_0_is_a_version_like_any_other() -> None:
    rule = activate_policy_version(None, {"version": 0, "artifact_hash": "w", "committed": True}, {}, [])
    assert (rule["activated"], rule["active_pointer"]) == (True, {"version": 0, "artifact_hash": "w"})
    history = History().opened(gate=DriftGate.OFF)
    history.learner()
    history.ready("t0", version=0)
    assert says(history.activate(0)) == "rejected non_monotonic_version"
    history.advanced(1)
    assert says(history.activate(0)) == "rejected non_monotonic_version"
    assert item(history.reserve("u0", "t0"), "t0").lag == 1


# --- rewards and failures


def test_a_reward_delivered_twice_counts_once() -> None:
    history = History().opened()
    history.generated("t0")
    history.rewarded("t0", reward=0.5)
    revision = history.revision("t0")
    assert says(history.again()) == "duplicate duplicate"
    assert says(history.rewarded("t0", reward=0.5)) == "duplicate duplicate"
    assert says(history.rewarded("t0", reward=0.0)) == "rejected conflict"
    assert (history.status("t0"), history.revision("t0")) == ("rewarded", revision)


def test_a_time_out_never_becomes_a_reward_of_0() -> None:
    history = History().opened()
    history.learner()
    history.generated("a", group="g", sample=0, of=3)
    history.failed("b", group="g", sample=1, of=3)
    history.generated("c", group="g", sample=2, of=3)
    history.rewarded("a")
    history.reward_failed("c", RewardFailure.TIMEOUT)
    assert says(history.rewarded("b", reward=0.0)) == "rejected illegal_transition"
    assert list(reasons(history.claim("u0"))) == ["a"]
    assert (history.status("b"), history.status("c")) == ("generation_failed", "reward_failed")
    assert reasons(history.reserve("u1", "b", "c")) == {"b": "not_rewarded", "c": "not_rewarded"}


def test_a_failed_rollout_sent_as_one_padding_token_trains_nothing() -> None:
    template = Span(start=0, end=1, origin=Origin.TEMPLATE)
    arrays = SegmentArrays([1, 2], [0], [0.0], [False], spans=(template,))
    with pytest.raises(ContractViolation, match="Generated: field segments: no span names a policy"):
        generated(History().opened(), "t0", prepare(0, arrays).record(Redaction()))
    history = History().opened()
    history.learner()
    generated(history, "t0", prepare(0, masked([False])).record(Redaction()))
    history.rewarded("t0", reward=0.0)
    history.reserve("u0", "t0")
    assert reasons(history.admit("u0", {"t0": 0.0})) == {"t0": "empty_action_mask"}
    history.started("u0")
    assert says(history.commit("u0", "t0")) == "rejected not_held"


# --- evidence


@dataclass(frozen=True)
class Acted:
    """What was recorded of a row when it acted."""

    trajectory_id: str
    evidence_digest: str
    action_mask: Mask
    log_probs: FloatArray


def masked(mask: list[bool], log_probs: list[float] | None = None) -> SegmentArrays:
    """A row by policy 0 with this mask."""
    length = len(mask)
    return SegmentArrays([1], list(range(length)), log_probs or [-1.0] * length, mask, policy=policy(0))


def acted(row: PreparedSegment) -> Acted:
    return Acted("t0", row.record(Redaction()).evidence_digest, row.action_mask, row.log_probs)


def figures(row: PreparedSegment, current: list[float] | FloatArray) -> AdmitItem:
    return admit_item(Field("Admit", "items.0"), acted(row), current)


def test_5_tokens_with_4_log_probs_are_refused_by_the_client_and_the_rule() -> None:
    with pytest.raises(ContractViolation, match=r"segments\.0\.log_probs: 4 elements for 5 response tokens"):
        prepare(0, SegmentArrays([1], [1, 2, 3, 4, 5], [-1.0] * 4, policy=policy(0)))
    with pytest.raises(ContractViolation, match="4 elements for 5 response tokens"):
        figures(prepare(0, masked([True] * 5)), [-1.0] * 4)
    with pytest.raises(ValueError, match="unequal lengths"):
        assess_policy_compatibility([-1.0] * 5, [-1.0] * 4, [True] * 5, 0, 0, 0, 1.0)


@pytest.mark.parametrize("behind_the_mask", [199.0, math.nan, math.inf])
def test_a_masked_token_may_hold_anything(behind_the_mask: float) -> None:
    row = prepare(0, masked([True, False], [-1.0, behind_the_mask]))
    assert row.record(Redaction()) == prepare(0, masked([True, False])).record(Redaction())
    one = figures(row, [-1.125, -1.0])
    assert (one.active_tokens, one.sum_abs_log_ratio, one.max_abs_log_ratio) == (1, 0.125, 0.125)
    assert one == figures(row, [-1.125, math.nan])
    rule = assess_policy_compatibility([-1.0, behind_the_mask], [-1.125, -1.0], [True, False], 0, 0, 0, 0.2)
    assert (rule["accepted"], rule["mean_abs_log_ratio"]) == (True, 0.125)
    with pytest.raises(ContractViolation, match="position 1 is active"):
        figures(prepare(0, masked([True, True])), [-1.0, math.nan])


def test_a_mask_of_all_zeros_is_refused_and_never_a_drift_of_0() -> None:
    one = figures(prepare(0, masked([False, False])), [-1.0, -1.0])
    assert (one.active_tokens, one.sum_abs_log_ratio) == (0, 0.0)
    rule = assess_policy_compatibility([-1.0], [-1.0], [False], 0, 0, 0, 0.2)
    assert (rule["accepted"], rule["reason"], rule["mean_abs_log_ratio"]) == (False, "empty_action_mask", None)
    history = History().opened()
    history.learner()
    history.generated("t0", active_tokens=0)
    history.rewarded("t0")
    history.reserve("u0", "t0")
    assert item(history.admit("u0", {"t0": 0.0}), "t0").mean_abs_log_ratio is None
    assert (history.status("t0"), reasons(history.last)) == ("quarantined", {"t0": "empty_action_mask"})


def test_131072_tokens_with_the_action_at_the_end_are_judged_by_that_action() -> None:
    length, action = 131_072, 3
    by_tool = Span(start=0, end=length - action, origin=Origin.TOOL)
    by_model = Span(start=length - action, end=length, origin=Origin.MODEL, policy=policy(0))
    mask = np.arange(length) >= length - action
    behind = np.where(mask, -1.0, np.nan)
    row = prepare(0, SegmentArrays([1], np.zeros(length, np.int32), behind, mask, spans=(by_tool, by_model)))
    history = History().opened(drift=0.2)
    history.learner()
    assert says(generated(history, "t0", row.record(Redaction()))) == "accepted ok"
    assert len(history.log.records[-1].value or b"") < 1024
    history.rewarded("t0")
    history.reserve("u0", "t0")
    one = figures(row, np.where(mask, -1.5, 0.0).astype(np.float32))
    assert (one.active_tokens, one.sum_abs_log_ratio) == (action, 1.5)
    mean = one.sum_abs_log_ratio / one.active_tokens  # over the action: over all 131,072 it would be 0.00001
    assert reasons(history.admit("u0", {"t0": mean})) == {"t0": "policy_drift"}


# --- ids


def test_deterministic_ids_used_again_in_a_second_epoch_train_nothing_twice() -> None:
    history = History().opened()
    history.learner()
    history.ready("task-7/sample-0").trained("update-0", "task-7/sample-0")
    assert says(history.generated("task-7/sample-0", segments=2)) == "rejected conflict"
    assert says(history.rewarded("task-7/sample-0", reward=0.0)) == "rejected conflict"
    assert says(history.reserve("update-1", "task-7/sample-0")) == "rejected not_rewarded"
    history.ready("task-7/second-epoch")
    assert says(history.reserve("update-0", "task-7/second-epoch")) == "rejected update_ended"
    history.learner()  # the process starts over, from the initial weights: its first update is undone, its id is spent
    assert history.status("task-7/sample-0") == "rewarded"
    assert says(history.reserve("update-0", "task-7/sample-0")) == "rejected update_ended"
