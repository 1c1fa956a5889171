"""What the contract refuses at the client: before anything reaches Kafka, with the name of the field."""

import math
import re
from typing import Any

import pytest

from rollbook.schemas.codec import ContractViolation, encode, make
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records import common, payload, policy, reward, rollout, run, update
from rollbook.schemas.records.common import Header, PayloadRef
from rollbook.schemas.types import MAX_ITEMS, Part

HEADER = {
    "run_id": "r",
    "event_id": "e",
    "occurred_at": 0,
    "source": {"kind": "trainer", "id": "t"},
}
HASH = "0" * 64
POLICY = {"version": 0, "artifact_hash": "h"}
LEARNER = {"learner_id": "l", "epoch": 1}
SPAN = {"start": 0, "end": 2, "origin": "model", "policy": POLICY}
BY_TOOL = SPAN | {"origin": "tool", "policy": None}
ENDLESS = {"name": "c", "value": math.inf}
TWO_ITERATIONS = tuple({"rollout_id": at, "step_id": at, "trajectory_ids": ()} for at in (0, 1))
SEGMENT = {
    "prompt_length": 1,
    "response_length": 2,
    "spans": (SPAN,),
    "active_tokens": 2,
    "tokens_digest": HASH,
    "evidence_digest": HASH,
}
ADMIT_ITEM = {
    "trajectory_id": "t",
    "active_tokens": 1,
    "sum_abs_log_ratio": 0.0,
    "max_abs_log_ratio": 0.0,
    "evidence_digest": HASH,
    "current_digest": HASH,
}
VALID: dict[type[Part], dict[str, Any]] = {
    Header: HEADER,
    run.RunConfigured: {
        "header": HEADER,
        "config_version": 1,
        "fold_version": 1,
        "partition_count": 1,
        "enforcement": "gate",
        "admission": {
            "max_lag": 1,
            "lag_unit": "depth",
            "max_mean_abs_log_ratio": 0.2,
            "drift_gate": "required",
        },
        "required_workers": (),
        "initial_policy": {"version": 0, "artifact": {"hash": "h", "kind": "file"}},
    },
    rollout.Generated: {
        "header": HEADER,
        "identity": {"trajectory_id": "t", "group_id": "g", "sample_index": 0, "group_expected": 2},
        "purpose": "train",
        "task": {"task_id": "k", "prompt_hash": HASH, "dataset": "d", "row": 0},
        "contract_hash": HASH,
        "segments": (SEGMENT,),
        "finish_reason": "stop",
        "provenance": {"rollout_partition_id": "p", "worker_id": "w"},
    },
    reward.RewardReady: {
        "header": HEADER,
        "items": ({"trajectory_id": "t", "raw_reward": 1.0},),
        "reward": {"rule_id": "r", "version": "1", "hash": "h"},
        "remote": False,
    },
    reward.Discarded: {"header": HEADER, "trajectory_ids": ("t",), "reason": "surplus"},
    update.LearnerStarted: {"header": HEADER, "learner_id": "l", "incarnation": "i", "expected_epoch": 0},
    update.Reserve: {
        "header": HEADER,
        "learner": LEARNER,
        "update_id": "u",
        "part": 0,
        "policy": POLICY,
        "items": ({"trajectory_id": "t", "expected_revision": 1},),
        "mode": "all",
    },
    update.Admit: {
        "header": HEADER,
        "learner": LEARNER,
        "update_id": "u",
        "part": 0,
        "policy": POLICY,
        "own_updates": 0,
        "items": (ADMIT_ITEM,),
    },
    update.Commit: {
        "header": HEADER,
        "learner": LEARNER,
        "update_id": "u",
        "steps": ({"rollout_id": 0, "step_id": 0, "trajectory_ids": ("t",)},),
    },
    update.Abort: {
        "header": HEADER,
        "learner": LEARNER,
        "update_id": "u",
        "reason": "update_failed",
        "disposition": "release",
    },
    policy.PolicyPrepared: {
        "header": HEADER,
        "version": 1,
        "artifact": {"hash": "h", "kind": "file"},
        "parent_version": 0,
        "update_ids": (),
        "committed": True,
    },
    policy.ActivationAck: {
        "header": HEADER,
        "worker_id": "w",
        "incarnation": 0,
        "report_seq": 0,
        "serves": POLICY,
        "evidence": "file_hash",
    },
    PayloadRef: {"topic": "payloads", "partition": 0, "offsets": (0,), "size": 1, "sha256": HASH},
    payload.CurrentLogProbs: {"run_id": "r", "update_id": "u", "trajectory_id": "t", "log_probs": b""},
}


def _with(fields: Any, path: str, value: Any) -> Any:
    """The fields with one value replaced, added, or taken away (`...`)."""
    first, _, rest = path.partition(".")
    if isinstance(fields, tuple):
        changed = list(fields)
        changed[int(first)] = _with(changed[int(first)], rest, value) if rest else value
        return tuple(changed)
    if not rest:
        return {name: old for name, old in fields.items() if name != first} | ({} if value is ... else {first: value})
    return fields | {first: _with(fields.get(first), rest, value)}


@pytest.mark.parametrize("model", VALID, ids=lambda model: model.__name__)
def test_the_valid_one_is_valid(model: type[Part]) -> None:
    assert make(model, **VALID[model])


@pytest.mark.parametrize(
    ("model", "path", "value", "field", "problem"),
    [
        # numbers
        (run.RunConfigured, "admission.max_mean_abs_log_ratio", -0.1, None, "0 or more"),
        (run.RunConfigured, "admission.max_mean_abs_log_ratio", math.nan, None, "finite"),
        (run.RunConfigured, "admission.max_mean_abs_log_ratio", math.inf, None, "finite"),
        (run.RunConfigured, "admission.max_lag", -1, None, "0 or more"),
        (run.RunConfigured, "admission.max_lag", True, None, "and must be an int"),
        (run.RunConfigured, "admission.max_lag", 1.0, None, "and must be an int"),
        (run.RunConfigured, "config_version", 0, None, "1 or more"),
        (run.RunConfigured, "config_version", "1", None, "and must be an int"),
        (run.RunConfigured, "config_version", 2**63, None, "or less"),
        (reward.RewardReady, "items.0.raw_reward", math.nan, None, "finite"),
        (reward.RewardReady, "items.0.raw_reward", "1.0", None, "and must be a float"),
        (reward.RewardReady, "items.0.components", (ENDLESS,), "items.0.components.0.value", "finite"),
        (update.Admit, "items.0.sum_abs_log_ratio", math.nan, None, "finite"),
        (update.Admit, "items.0.max_abs_log_ratio", -1.0, None, "0 or more"),
        (update.Admit, "items.0.active_tokens", -1, None, "0 or more"),
        (PayloadRef, "size", 0, None, "1 or more"),
        # texts and names
        (Header, "run_id", "", None, "letters, digits and"),
        (Header, "run_id", "~partition-0", None, "letters, digits and"),
        (Header, "run_id", "with space", None, "letters, digits and"),
        (Header, "run_id", "r\n", None, "letters, digits and"),
        (Header, "run_id", "é", None, "letters, digits and"),
        (Header, "event_id", "", None, "it is empty"),
        (Header, "event_id", "e" * 257, None, "at most 256"),
        (Header, "event_id", "e\0", None, "on one line"),
        (Header, "event_id", "e\ud800", None, "UTF-8"),
        (Header, "source.kind", "visitor", None, "rollout_worker"),
        (update.LearnerStarted, "incarnation", b"i", None, "it is a bytes, and must be a str"),
        (update.Abort, "text", "x" * 4097, None, "at most 4096"),
        (PayloadRef, "sha256", "0" * 63, None, "64 hexadecimal digits"),
        (PayloadRef, "sha256", "A" * 64, None, "lower case"),
        # shapes
        (update.Commit, "surprise", 1, None, "no such field"),
        (Header, "source", ..., None, "missing"),
        (PayloadRef, "offsets", (), None, "it is empty"),
        (reward.RewardReady, "items", (), None, "it is empty"),
        (reward.Discarded, "trajectory_ids", (), None, "it is empty"),
        (reward.Discarded, "trajectory_ids", ("t",) * (MAX_ITEMS + 1), None, "at most 8192"),
        # what belongs together
        (run.RunConfigured, "required_workers", ("w", "w"), None, "each worker once"),
        (rollout.Generated, "identity.sample_index", 2, None, "below group_expected"),
        (rollout.Generated, "segments.0.spans.0.end", 0, None, "1 or more"),
        (rollout.Generated, "segments.0.spans.0.start", 2, "segments.0.spans.0.end", "at least one token"),
        (rollout.Generated, "segments.0.spans.0.start", 1, "segments.0.spans", "without gaps"),
        (rollout.Generated, "segments.0.response_length", 3, "segments.0.spans", "end at response_length"),
        (rollout.Generated, "segments.0.spans.0.policy", None, None, "exactly when the origin is model"),
        (rollout.Generated, "segments.0.spans.0.origin", "tool", "segments.0.spans.0.policy", "origin is model"),
        (rollout.Generated, "segments.0.active_tokens", 3, None, "more than the tokens that the model wrote"),
        (rollout.Generated, "segments.0.spans", (BY_TOOL,), "segments.0.active_tokens", "more than"),
        (update.Reserve, "claim", {"max_groups": 1, "order": "oldest"}, "items", "either items or a claim"),
        (update.Reserve, "items", (), None, "either items or a claim"),
        (update.Reserve, "items", VALID[update.Reserve]["items"] * 2, None, "each trajectory once"),
        (update.Admit, "items", (ADMIT_ITEM, ADMIT_ITEM), None, "each trajectory once"),
        (update.Commit, "steps.0.step_id", 1, "steps", "step_id must count 0, 1, 2"),
        (update.Commit, "steps", TWO_ITERATIONS, None, "one rollout_id"),
        (update.Commit, "expected_ranks", (0, 0), None, "each rank once"),
        (update.Abort, "reason", "operator", None, "exactly when no learner is named"),
        (update.Abort, "learner", None, "reason", "exactly when no learner is named"),
        (policy.PolicyPrepared, "parent_version", 1, None, "not its own ancestor"),
        (policy.PolicyPrepared, "rollback_of", 1, "parent_version", "not its own ancestor"),
        (policy.PolicyPrepared, "update_ids", ("u", "u"), None, "each update once"),
        (policy.ActivationAck, "failure", "timeout", None, "either serves or failure"),
        (policy.ActivationAck, "serves", None, "failure", "either serves or failure"),
        (policy.ActivationAck, "evidence", None, None, "goes with serves"),
        (policy.ActivationAck, "evidence", "probe", "probe", "goes with evidence probe"),
        (payload.CurrentLogProbs, "log_probs", 12, None, "it is an int, and must be bytes"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field_and_the_problem(
    model: type[Part], path: str, value: Any, field: str | None, problem: str
) -> None:
    with pytest.raises(ContractViolation) as caught:
        make(model, **_with(VALID[model], path, value))
    error = caught.value
    assert (error.record_type, error.field) == (model.__name__, field or path)
    assert problem in error.problem
    assert "\n" not in str(error)
    assert str(error).startswith(f"{model.__name__}: field {field or path}: ")
    assert error.exit_code == 2


def test_a_rollback_adds_no_updates() -> None:
    fields = VALID[policy.PolicyPrepared] | {"version": 2, "rollback_of": 1, "update_ids": ("u",)}
    with pytest.raises(ContractViolation, match="field update_ids: a rollback adds none"):
        make(policy.PolicyPrepared, **fields)


def test_a_trajectory_without_a_policy_is_refused() -> None:
    silent = SEGMENT | {"spans": (BY_TOOL,), "active_tokens": 0}
    with pytest.raises(ContractViolation, match="field segments: no span names a policy"):
        make(rollout.Generated, **VALID[rollout.Generated] | {"segments": (silent,)})


def test_records_are_frozen() -> None:
    header = make(Header, **HEADER)
    told = "Header: field run_id: a record is never changed; make another one with model_copy(update={...})"
    with pytest.raises(ContractViolation, match=re.escape(told)):
        header.run_id = "other"  # type: ignore[misc]
    with pytest.raises(ContractViolation, match=re.escape(told)):
        del header.run_id


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        ({"version": 2**70}, "version", f"it must be {2**63 - 1} or less"),
        ({"versoin": 1}, "versoin", "there is no such field"),
        ({"version": "1"}, "version", "it is a str, and must be an int"),
        ({"label\n": "l"}, "label\\n", "there is no such field"),
    ],
)
def test_a_copy_is_checked_as_a_new_one(change: dict[str, Any], path: str, problem: str) -> None:
    before = make(common.PolicyRef, **POLICY)
    assert before.model_copy() == before.model_copy(deep=True) == before
    assert before.model_copy(update={"version": 1}) == make(common.PolicyRef, **POLICY | {"version": 1})
    with pytest.raises(ContractViolation, match=re.escape(f"PolicyRef: field {path}: {problem};")):
        before.model_copy(update=change)
    with pytest.raises(ContractViolation, match=re.escape(f"PolicyRef: field {path}: {problem};")):
        before.copy(update=change)  # as pydantic's users of old know it


@pytest.mark.parametrize("update", [{1: 2}, [("version", 1)], "version", 3, []])
def test_a_copy_is_changed_by_a_dict(update: Any) -> None:
    with pytest.raises(ContractViolation, match="PolicyRef: field update: it must be a dict of values by their fields"):
        make(common.PolicyRef, **POLICY).model_copy(update=update)


def test_what_nobody_checked_is_not_written_as_another_number() -> None:
    unchecked = make(common.PolicyRef, **POLICY).but(version=2**70)
    with pytest.raises(BadInput, match="a whole number of 71 bits does not fit into 64"):
        encode(make(policy.Activate, header=HEADER, policy=POLICY, expected_active_version=0).but(policy=unchecked))


def test_no_field_states_a_bound_twice() -> None:
    """Which of two holds, and so what the fold decides, would be another with each version of pydantic: the inner one
    with 2.14, the outer one with 2.10."""
    twice = [
        f"{model.__name__}.{name}"
        for model in _models(Part)
        for name, field in model.model_fields.items()
        if len({type(bound) for bound in field.metadata}) < len(field.metadata)
    ]
    assert twice == []


def _models(base: type[Part]) -> set[type[Part]]:
    return {base}.union(*(_models(model) for model in base.__subclasses__()))
