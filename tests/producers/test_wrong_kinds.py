"""What a trainer's author hands over in the first ten minutes: of a wrong kind it is named, and what is right is taken
as they have it at hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.infra.settings import Settings
from rollbook.producers import Coordinator, RewardService, RolloutWorker, SegmentArrays, new_identity
from rollbook.producers.arrays import Field, real, reals, token_ids
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.reward import DiscardReason
from rollbook.schemas.records.rollout import FinishReason
from rollbook.schemas.records.run import Admission, Artifact, ArtifactKind, DriftGate, InitialPolicy, LagUnit
from rollbook.schemas.types import called
from rollbook.tests.producers.world import CONTRACT_HASH, RULE, TASK, row
from rollbook.tests.session_broker import own_topics

PLACE = Field("Generated", "segments.0.log_probs")
ADMISSION = Admission(max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=DriftGate.OFF)
INITIAL = InitialPolicy(version=0, artifact=Artifact(hash="h", kind=ArtifactKind.FILE))


@pytest.mark.parametrize(
    "values",
    [
        [-0.5, -0.25],
        (-0.5, -0.25),
        np.array([-0.5, -0.25], np.float16),
        torch.tensor([-0.5, -0.25], requires_grad=True),
        torch.tensor([-0.5, -0.25], dtype=torch.bfloat16),
        torch.tensor([-0.5, -0.25], dtype=torch.float64),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_numbers_are_taken_as_a_trainer_has_them(values: Any) -> None:
    assert reals(PLACE, values, 2).tolist() == [-0.5, -0.25]


def test_ids_and_single_numbers_are_taken_too() -> None:
    assert token_ids(PLACE, torch.tensor([1, 2])).tolist() == [1, 2]
    assert [real(one) for one in (1.0, np.float32(1), torch.tensor(1.0), np.int64(1))] == [1.0] * 4
    identity = new_identity("g", np.int64(1), np.int64(4))
    assert (identity.sample_index, identity.group_expected) == (1, 4)


@pytest.mark.parametrize(
    ("value", "name"),
    [(None, "None"), (1, "an int"), ("", "a str"), (np.int64(1), "a numpy.int64"), (torch.ones(1), "a torch.Tensor")],
)
def test_a_kind_by_its_name(value: object, name: str) -> None:
    assert called(value) == name


def generated(worker: RolloutWorker, **change: Any) -> str:
    given: dict[str, Any] = {
        "identity": new_identity("g", 0, 1),
        "segments": [row()],
        "task": TASK,
        "contract_hash": CONTRACT_HASH,
        "finish_reason": FinishReason.STOP,
        "rollout_partition_id": "b",
    }
    return worker.generated(**{**given, **change})


Call = Callable[[Settings, RolloutWorker, RewardService], object]
WRONG: list[tuple[Call, str]] = [
    (lambda s, w, r: RolloutWorker("127.0.0.1:9092", "r", "w"), "settings is a str, and must be a Settings"),  # type: ignore[arg-type]
    (lambda s, w, r: RolloutWorker(None, "r", "w"), "settings is None, and must be a Settings: give Settings.from_env"),  # type: ignore[arg-type]
    (lambda s, w, r: RolloutWorker(s, "r", "w", options={}), "options is a dict, and must be an Options"),  # type: ignore[arg-type]
    (lambda s, w, r: RolloutWorker(s, 5, "w"), "run_id: Input should be a valid string, and not an int"),  # type: ignore[arg-type]
    (lambda s, w, r: RewardService(s, "r", "w", "exact"), "reward: it is a str, and must be a RewardIdentity"),  # type: ignore[arg-type]
    (lambda s, w, r: generated(w, task={"task_id": "x"}), "task: it is a dict, and must be a TaskSource"),
    (lambda s, w, r: generated(w, task=None), "task: it is None, and must be a TaskSource"),
    (lambda s, w, r: generated(w, segments=row()), "segments: it is a rollbook.producers.clients.segments.Segment"),
    (lambda s, w, r: generated(w, segments=[{}]), "segments.0: it is a dict, and must be a SegmentArrays"),
    (lambda s, w, r: generated(w, identity=None), "identity: .*, and not None"),
    (
        lambda s, w, r: generated(w, segments=[SegmentArrays([1], [2], [-1.0], policy=0)]),  # type: ignore[arg-type]
        "policy: .*, and not an int",
    ),
    (lambda s, w, r: w.discarded("one", DiscardReason.SURPLUS), "trajectory_ids: it is a str, and must be a list"),  # type: ignore[arg-type]
    (lambda s, w, r: w.register_contract(tokenizer="t", template="t", engine="e", sampling=None), "must be a Sampling"),  # type: ignore[arg-type]
    (lambda s, w, r: r.reward("t", None), "raw_reward: Input should be a valid number, and not None"),  # type: ignore[arg-type]
    (lambda s, w, r: r.reward("t", True), "raw_reward: Input should be a valid number, and not a bool"),
    (lambda s, w, r: r.reward("t", [1.0]), "raw_reward: Input should be a valid number, and not a list"),  # type: ignore[arg-type]
    (lambda s, w, r: r.reward(new_identity("g", 0, 1), 1.0), "trajectory_id: .*, and not a rollbook.*Identity"),  # type: ignore[arg-type]
]


def test_what_is_of_a_wrong_kind_is_named(broker: str) -> None:
    """No AttributeError from within, and nothing is published."""
    with (
        own_topics(broker, 1) as settings,
        RolloutWorker(settings, "run-0", "worker-0") as worker,
        RewardService(settings, "run-0", "rewards-0", RULE) as rewards,
    ):
        for call, said in WRONG:
            with pytest.raises(RollbookError, match=said):
                call(settings, worker, rewards)
        assert worker.counters.published == rewards.counters.published == 0


COMMANDED: list[tuple[Callable[[Coordinator], object], str]] = [
    (
        lambda c: c.configure(admission=ADMISSION, required_workers="w0", initial_policy=INITIAL),
        "required_workers: it is a str, and must be a list: put it in one",  # else workers w and 0 would be waited for
    ),
    (
        lambda c: c.configure(admission=ADMISSION, required_workers=[], initial_policy={"version": 0}),  # type: ignore[arg-type]
        "initial_policy: it is a dict, and must be an InitialPolicy",
    ),
    (
        lambda c: c.prepare(version=1, artifact=INITIAL.artifact, parent_version=0, update_ids="u0"),
        "update_ids: it is a str, and must be a list",
    ),
    (
        lambda c: c.prepare(version=1, artifact="hash", parent_version=0, update_ids=[]),  # type: ignore[arg-type]
        "artifact: it is a str, and must be an Artifact",
    ),
    (lambda c: c.quarantine("t0", "why"), "trajectory_ids: it is a str, and must be a list"),
    (lambda c: c.activate(1, 0), "policy: .*, and not an int"),  # type: ignore[arg-type]
    (lambda c: c.activate(PolicyRef(version=1, artifact_hash="h"), None), "expected_active_version: .*, and not None"),  # type: ignore[arg-type]
]


def test_commands_likewise(broker: str) -> None:
    with own_topics(broker, 1) as settings, Coordinator(settings, "run-0", "c") as coordinator:
        for call, said in COMMANDED:
            with pytest.raises(RollbookError, match=said):
                call(coordinator)
        assert coordinator.counters.published == 0
