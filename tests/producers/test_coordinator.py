"""The coordinator with the real processor: policies from preparation to activation, and what is refused on the way."""

import threading
from typing import Any

import pytest

from rollbook.producers import Refused, new_identity
from rollbook.schemas.codec import ContractViolation
from rollbook.schemas.records.common import PolicyRef, TrajectoryIdentity
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.policy import AbandonReason, AckFailure, EvidenceKind
from rollbook.schemas.records.rollout import FinishReason, GenerationFailure
from rollbook.schemas.records.run import Admission, Artifact, ArtifactKind, DriftGate, InitialPolicy, LagUnit
from rollbook.tests.producers.world import POLICY, TASK, World, row

NEXT = PolicyRef(version=1, artifact_hash="weights-1")
ARTIFACT = Artifact(hash=NEXT.artifact_hash, kind=ArtifactKind.FILE)


def prepare(run: World, *, committed: bool = True) -> Decision:
    return run.coordinator.prepare(
        version=1, artifact=ARTIFACT, parent_version=0, update_ids=[], label="step 1", committed=committed
    )


def test_a_policy_is_prepared_committed_and_activated(run: World) -> None:
    prepare(run, committed=False)
    with pytest.raises(Refused, match="artifact_not_committed"):
        run.coordinator.activate(NEXT, expected_active_version=0)
    run.coordinator.committed(NEXT)
    run.worker.acknowledge(NEXT, EvidenceKind.FILE_HASH)
    decision = run.coordinator.activate(NEXT, expected_active_version=0, wait_for_acks_s=20)
    assert decision.active_policy == NEXT


def test_without_waiting_a_missing_report_is_a_refusal(run: World) -> None:
    run.worker.flush(20)
    prepare(run)
    with pytest.raises(Refused) as refusal:
        run.coordinator.activate(NEXT, expected_active_version=0)
    decision = refusal.value.decision
    assert decision.reason in ("missing_worker_ack", "worker_mismatch"), (
        "the worker's first report may not be there yet"
    )
    assert (*decision.missing_workers, *decision.mismatched_workers) == ("worker-0",)
    assert decision.active_policy == POLICY


def test_an_activation_waits_for_the_report(run: World) -> None:
    prepare(run)
    report = threading.Timer(0.3, lambda: run.worker.acknowledge(NEXT, EvidenceKind.FILE_HASH))
    report.start()
    decision = run.coordinator.activate(NEXT, expected_active_version=0, wait_for_acks_s=20)
    report.join()
    assert decision.outcome is Outcome.ACCEPTED


def test_an_activation_stops_waiting(run: World) -> None:
    prepare(run)
    run.worker.acknowledge_failure(AckFailure.HASH_MISMATCH)
    with pytest.raises(Refused, match="worker_mismatch"):
        run.coordinator.activate(NEXT, expected_active_version=0, wait_for_acks_s=0.5)


def test_another_refusal_is_not_waited_for(run: World) -> None:
    with pytest.raises(Refused, match="unknown_version"):
        run.coordinator.activate(NEXT, expected_active_version=0, wait_for_acks_s=600)


def test_engines_without_a_client_are_acknowledged_by_the_coordinator(run: World) -> None:
    limits = Admission(max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=DriftGate.REQUIRED)
    initial = InitialPolicy(version=0, artifact=Artifact(hash=POLICY.artifact_hash, kind=ArtifactKind.FILE))
    run.coordinator.configure(admission=limits, required_workers=["engine-0"], initial_policy=initial, config_version=2)
    prepare(run)
    run.coordinator.acknowledge_failure("engine-0", AckFailure.LOAD_FAILED)
    run.coordinator.acknowledge("engine-0", NEXT)
    assert run.coordinator.activate(NEXT, expected_active_version=0, wait_for_acks_s=20).active_policy == NEXT


def test_a_commit_before_its_preparation_is_kept(run: World) -> None:
    assert run.coordinator.committed(NEXT).outcome is Outcome.PENDING
    assert [one.record_type for one in prepare(run, committed=False).released] == ["PolicyCommitted"]


def test_an_unknown_update_cannot_be_aborted(run: World) -> None:
    with pytest.raises(Refused, match="unknown_update"):
        run.coordinator.abort("nobody's", text="tidying up")


def test_an_abandoned_policy_is_never_active_and_what_it_wrote_is_quarantined(run: World) -> None:
    prepare(run)
    identity = new_identity("group-0", 0, 1)
    publish(run, identity, NEXT)
    run.worker.flush(20)
    decision = run.coordinator.abandon(1, AbandonReason.LOAD_FAILED)
    assert [change.count for change in decision.mass_changes] == [1]
    with pytest.raises(Refused, match="policy_abandoned"):
        run.coordinator.activate(NEXT, expected_active_version=0)
    with pytest.raises(Refused, match="policy_active"):
        run.coordinator.abandon(0, AbandonReason.OPERATOR)


def test_quarantine_takes_trajectories_out_of_use(run: World) -> None:
    group = run.group(2)
    run.worker.flush(20)
    decision = run.coordinator.quarantine(group, "a check found them odd")
    assert {item.state_after for item in decision.items} == {"quarantined"}
    with pytest.raises(Refused, match="missing_rollout"):
        run.coordinator.quarantine(["nobody's"], "tidying up")


def test_a_generation_that_has_begun_is_visible_until_it_is_over(run: World) -> None:
    identities = [new_identity("group-0", index, 2) for index in range(2)]
    for identity in identities:
        run.worker.dispatched(identity, POLICY, task=TASK)
    publish(run, identities[0], POLICY)
    run.worker.generation_failed(identities[1], POLICY, GenerationFailure.WORKER_LOST)
    run.worker.flush(20)
    run.decided("GenerationFailed")
    begun = [decision.items[0].state_after for decision in run.decisions("Dispatched")]
    ended = [run.decisions(kind)[0].items[0] for kind in ("Generated", "GenerationFailed")]
    assert begun == ["dispatched", "dispatched"]
    assert [(item.state_before, item.state_after) for item in ended] == [
        ("dispatched", "generated"),
        ("dispatched", "generation_failed"),
    ]


def test_a_closed_run_refuses_everything(run: World) -> None:
    run.group(1)
    run.worker.flush(20)
    assert run.coordinator.close_run().reason == "ok"
    with pytest.raises(Refused, match="run_closed"):
        prepare(run)


def publish(run: World, identity: TrajectoryIdentity, policy: PolicyRef) -> None:
    run.worker.generated(
        identity,
        [row(policy=policy)],
        task=TASK,
        contract_hash=run.contract_hash,
        finish_reason=FinishReason.STOP,
        rollout_partition_id="batch-0",
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_mean_abs_log_ratio": -0.1}, "max_mean_abs_log_ratio"),
        ({"max_mean_abs_log_ratio": float("nan")}, "max_mean_abs_log_ratio"),
        ({"max_lag": -1}, "max_lag"),
        ({"max_lag": True}, "max_lag"),
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(change: dict[str, Any], field: str) -> None:
    limits: dict[str, Any] = {
        "max_lag": 1,
        "lag_unit": LagUnit.DEPTH,
        "max_mean_abs_log_ratio": 0.2,
        "drift_gate": DriftGate.REQUIRED,
    }
    with pytest.raises(ContractViolation, match=f"^Admission: field {field}: .*; correct the field"):
        Admission(**{**limits, **change})
