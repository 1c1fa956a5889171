"""Two learners race for the same trajectories on a real broker, each night a thousand times: each is reserved once."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import Coordinator, Refused, RewardService, RolloutWorker, SegmentArrays, Trainer, new_identity
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.rollout import FinishReason, TaskSource
from rollbook.schemas.records.run import (
    Admission,
    Artifact,
    ArtifactKind,
    DriftGate,
    InitialPolicy,
    LagUnit,
    LogProbKind,
    RewardIdentity,
    Sampling,
)
from rollbook.schemas.records.update import ReserveItem, ReserveMode
from rollbook.tests import recount
from rollbook.tests.nightly import often
from rollbook.tests.processors.hosting import host_in_thread

RUN = "race"
RACES = often(each_time=200, each_night=1_000)
AT_ONCE = 10
POLICY = PolicyRef(version=0, artifact_hash="h0")


def _configure(settings: Settings) -> None:
    with Coordinator(settings, RUN, "coordinator") as coordinator:
        coordinator.configure(
            admission=Admission(
                max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=DriftGate.REQUIRED
            ),
            required_workers=(),
            initial_policy=InitialPolicy(version=0, artifact=Artifact(hash="h0", kind=ArtifactKind.FILE)),
        )


def _generate(settings: Settings) -> list[str]:
    rule = RewardIdentity(rule_id="length", version="1", hash="0")
    sampling = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=2, log_probs=LogProbKind.RAW)
    with (
        RolloutWorker(settings, RUN, "worker", keep_payloads=False) as worker,
        RewardService(settings, RUN, "rewards", rule) as rewards,
    ):
        contract = worker.register_contract(tokenizer="t", template="none", engine="test", sampling=sampling)
        ids = []
        for row in range(RACES):
            identity = new_identity(f"group-{row}", 0, 1)
            arrays = SegmentArrays(np.array([1]), np.array([2, 3]), np.array([-0.5, -0.7]), policy=POLICY)
            task = TaskSource(task_id=f"task-{row}", prompt_hash="0" * 64, dataset="race", row=row)
            ids.append(
                worker.generated(
                    identity,
                    [arrays],
                    task=task,
                    contract_hash=contract,
                    finish_reason=FinishReason.STOP,
                    rollout_partition_id="batch-0",
                )
            )
        worker.flush(30)  # so that no reward comes early: the revision at the race is 2
        for trajectory_id in ids:
            rewards.reward(trajectory_id, 1.0)
        rewards.flush(30)
    return ids


def _race(settings: Settings, learner_id: str, ids: list[str], line: threading.Barrier) -> Counter[str]:
    reasons: Counter[str] = Counter()
    with Trainer(settings, RUN, learner_id) as trainer:
        trainer.start()
        for start in range(0, len(ids), AT_ONCE):
            wanted = [ReserveItem(trajectory_id=name, expected_revision=2) for name in ids[start : start + AT_ONCE]]
            if start // AT_ONCE % 2:  # the two meet from both ends, so that neither wins a whole round by being first
                wanted.reverse()
            update = trainer.update(rollout_id=start)
            line.wait(60)
            for item in wanted:
                try:
                    update.reserve([item], POLICY, mode=ReserveMode.ALL)
                    reasons["reserved"] += 1
                except Refused as refusal:
                    reasons[refusal.decision.items[0].reason] += 1
    return reasons


@pytest.mark.timeout(240)
def test_races_are_each_won_once(settings: Settings) -> None:
    with host_in_thread(settings):
        _configure(settings)
        ids = _generate(settings)
        line = threading.Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            races = [pool.submit(_race, settings, name, ids, line) for name in ("left", "right")]
            left, right = (race.result() for race in races)
    lifecycle = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.LIFECYCLE))
    decisions = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS))
    codec = recount.Codec()
    recount.check_decisions(lifecycle, decisions, codec)
    counted = recount.figures(RUN, lifecycle, decisions, codec)
    assert counted["trajectories"] == {"reserved": RACES}
    assert counted["outcomes"]["Reserve accepted"] == RACES
    assert counted["outcomes"]["Reserve rejected"] == RACES
    assert counted["refused"] == {"revision_conflict lag None": RACES}
    assert left + right == {"reserved": RACES, "revision_conflict": RACES}
    assert min(left["reserved"], right["reserved"]) > RACES // 50, "no race to speak of"
