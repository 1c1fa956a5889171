"""What the contract refuses never reaches Kafka, and the error names the field. One line a case."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import Redaction, Reward, RewardService, RolloutWorker, new_identity
from rollbook.producers.clients.segments import prepare
from rollbook.schemas.codec import ContractViolation
from rollbook.schemas.records.reward import DiscardReason
from rollbook.schemas.records.rollout import FinishReason, Origin, Span
from rollbook.tests.producers.world import CONTRACT_HASH, POLICY, RULE, TASK, read_topic, row
from rollbook.tests.session_broker import own_topics

NAN, INF = float("nan"), float("inf")
GOOD = row()
MODEL = Span(start=0, end=4, origin=Origin.MODEL, policy=POLICY)
TOOL = Span(start=4, end=5, origin=Origin.TOOL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_probs": [-1, -1, NAN, 0, -1]}, "log_probs: position 2 is active and nan"),
        ({"log_probs": [-1, -1, -INF, 0, -1]}, "log_probs: position 2 is active and -inf"),
        ({"log_probs": [-1, -1, -1e39, 0, -1]}, "log_probs: position 2 is active and -inf"),
        ({"log_probs": [-1, -1]}, "log_probs: 2 elements for 5 response tokens"),
        ({"log_probs": ["a"] * 5}, "log_probs: its elements are texts"),
        ({"log_probs": np.zeros((5, 1))}, r"log_probs: its shape is \(5, 1\), it must be flat"),
        ({"log_probs": [-1, [-1]]}, "log_probs: it is a list that numpy takes for no flat array"),
        ({"log_probs": None}, "log_probs: it is None, and must be a flat list or array"),
        ({"log_probs": "-1 -1"}, "log_probs: it is a str, and must be a flat list or array"),
        ({"response_ids": [1.0, 2.0, 3.0, 4.0, 5.0]}, "response_ids: its elements are float64"),
        ({"response_ids": [2**31, 2, 3, 4, 5]}, "response_ids: position 0 is 2147483648: a token id is from 0 on"),
        ({"response_ids": [1, 2, -100, 4, 5]}, "response_ids: position 2 is -100: a token id is from 0 on"),
        ({"prompt_ids": ["a", "word"]}, "prompt_ids: its elements are texts, they must be the tokenizer's integers"),
        ({"log_probs": [0.5, -1, -1, 0, -1]}, "log_probs: position 0 is 0.5, above 0 by more than rounding .0.25.: it"),
        ({"spans": MODEL, "policy": None}, "spans: it is a rollbook.*Span, and must be a list: put it in one"),
        ({"spans": np.array([1, 2]), "policy": None}, "spans.0: it is a numpy.int64, and must be a Span"),
        ({"spans": None, "policy": None}, "spans: it is None, and must be a list"),
        ({"spans": [{"start": 0}], "policy": None}, "spans.0: it is a dict, and must be a Span"),
        ({"response_ids": [], "log_probs": [], "action_mask": None}, "response_ids: it is empty: an attempt that gave"),
        ({"prompt_ids": [[1, 2]]}, r"prompt_ids: its shape is \(1, 2\)"),
        ({"action_mask": [True] * 4}, "action_mask: 4 elements for 5 response tokens"),
        ({"action_mask": [0, 1, 2, 0, 0]}, "action_mask: its elements must be bools, or 0 and 1"),
        ({"action_mask": [0, 0.5, 1, 0, 0]}, "action_mask: its elements must be bools, or 0 and 1"),
        ({"policy": None}, "spans: give either spans or policy"),
        ({"spans": [MODEL, TOOL]}, "spans: give either spans or policy"),
        ({"policy": None, "spans": [MODEL, TOOL]}, "action_mask: position 4 is active, but no span says"),
        ({"policy": None, "spans": [MODEL], "action_mask": [1, 1, 1, 0, 0]}, "spans: they must end at response_length"),
    ],
)
def test_a_row_of_a_trajectory(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractViolation, match=rf"^Generated: field segments\.3\.{message}"):
        prepare(3, replace(GOOD, **change)).record(Redaction())


def test_a_masked_position_may_hold_anything() -> None:
    log_probs = [-1.0, -1.0, -1.0, NAN, -1.0]
    assert prepare(0, replace(GOOD, log_probs=log_probs)).record(Redaction()).active_tokens == 4


@dataclass
class Clients:
    """Clients that live as long as the module, and have nothing to publish."""

    worker: RolloutWorker
    rewards: RewardService


@pytest.fixture(scope="module")
def clients(broker: str) -> Iterator[Clients]:
    with (
        own_topics(broker, 1) as settings,
        RolloutWorker(settings, "run-0", "worker-0") as worker,
        RewardService(settings, "run-0", "rewards-0", RULE) as rewards,
    ):
        yield Clients(worker, rewards)
        assert worker.flush(20) == rewards.flush(20) == 0
        assert read_topic(settings, Topic.LIFECYCLE) == read_topic(settings, Topic.PAYLOADS) == []


def generate(worker: RolloutWorker, **change: Any) -> str:
    fields: dict[str, Any] = {
        "identity": new_identity("group-0", 0, 2),
        "segments": [GOOD],
        "task": TASK,
        "contract_hash": CONTRACT_HASH,
        "finish_reason": FinishReason.STOP,
        "rollout_partition_id": "batch-0",
    }
    return worker.generated(**{**fields, **change})


Call = Callable[[RolloutWorker, RewardService], object]
NAN_ROW = replace(GOOD, log_probs=[NAN] * 5)
NAN_TOKENS = [Reward("t-0", 1.0), Reward("t-1", 1.0, token_rewards=[0.0, NAN])]


@pytest.mark.parametrize(
    ("call", "record", "field"),
    [
        (lambda w, _: generate(w, segments=[GOOD, NAN_ROW]), "Generated", "segments.1.log_probs"),
        (lambda w, _: generate(w, segments=[]), "Generated", "segments"),
        (lambda w, _: generate(w, contract_hash="abc"), "Generated", "contract_hash"),
        (lambda w, _: generate(w, identity=new_identity("g", 2, 2)), "TrajectoryIdentity", "sample_index"),
        (lambda w, _: generate(w, rollout_partition_id=""), "Provenance", "rollout_partition_id"),
        (lambda w, _: w.generation_failed(new_identity("g", 0, 1), POLICY, "tired"), "GenerationFailed", "reason"),
        (lambda _, r: r.reward("t-0", NAN), "RewardReady", "items.0.raw_reward"),
        (lambda _, r: r.reward("t-0", np.float32(INF)), "RewardReady", "items.0.raw_reward"),
        (lambda _, r: r.reward("t-0", True), "RewardReady", "items.0.raw_reward"),
        (lambda _, r: r.reward("", 1.0), "RewardReady", "items.0.trajectory_id"),
        (lambda _, r: r.reward("t-0", 1.0, components={"style": NAN}), "RewardReady", "items.0.components.0.value"),
        (lambda _, r: r.rewards(NAN_TOKENS), "RewardReady", "items.1.token_rewards"),
        (lambda _, r: r.rewards([]), "RewardReady", "items"),
        (lambda _, r: r.discarded([], DiscardReason.SURPLUS), "Discarded", "trajectory_ids"),
    ],
)
def test_an_event(clients: Clients, call: Call, record: str, field: str) -> None:
    with pytest.raises(ContractViolation) as refusal:
        call(clients.worker, clients.rewards)
    assert (refusal.value.record_type, refusal.value.field) == (record, field)
    assert clients.worker.counters.published == clients.rewards.counters.published == 0


@pytest.mark.parametrize(("run_id", "worker_id", "field"), [("run 0", "worker-0", "run_id"), ("run-0", "", "id")])
def test_a_client_with_a_bad_name_opens_nothing(run_id: str, worker_id: str, field: str) -> None:
    with pytest.raises(ContractViolation, match=f": field {field}:"):
        RolloutWorker(Settings(bootstrap_servers="127.0.0.1:1"), run_id, worker_id)
