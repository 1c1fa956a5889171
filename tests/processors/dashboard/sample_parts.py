"""Updates, workers, policies and decisions of a run that never was."""

import random
from typing import Any

from rollbook.processors.dashboard.answers import Activation, DecisionLine, PolicyLine, Step, UpdateLine, WorkerLine
from rollbook.tests.processors.dashboard.sample_series import NOW_MS, counts


def updates() -> tuple[UpdateLine, ...]:
    rng = random.Random(4)
    ended = [Step.COMMITTED] * 9 + [Step.ABORTED, Step.COMMITTED, Step.EXPIRED, Step.COMMITTED, Step.ROLLED_BACK]
    lines = [
        UpdateLine(
            update_id="update-0062",
            learner_id="learner-0",
            step=Step.RESERVED,
            reserved_ms=NOW_MS - 24_000,
            started_ms=None,
            ended_ms=None,
            reserved=64,
            refused=12,
            consumed=0,
            reason="",
            lease_until_ms=NOW_MS + 36_000,
        ),
        UpdateLine(
            update_id="update-0061",
            learner_id="learner-0",
            step=Step.IN_DOUBT,
            reserved_ms=NOW_MS - 190_000,
            started_ms=NOW_MS - 140_000,
            ended_ms=None,
            reserved=128,
            refused=3,
            consumed=0,
            reason="",
            lease_until_ms=None,
        ),
    ]
    begin = NOW_MS - 190_000
    for number in range(60, 20, -1):
        length = rng.randint(45_000, 110_000)
        begin -= length
        step = ended[number % len(ended)]
        started = None if step is Step.EXPIRED else begin + length // 3
        lines.append(
            UpdateLine(
                update_id=f"update-{number:04}",
                learner_id="learner-0",
                step=step,
                reserved_ms=begin,
                started_ms=started,
                ended_ms=begin + int(length * 0.92),
                reserved=128,
                refused=rng.randint(0, 9),
                consumed=128 if step is Step.COMMITTED else 0,
                reason="update_failed" if step is Step.ABORTED else "",
                lease_until_ms=None,
            )
        )
    return tuple(lines)


def activation() -> Activation:
    good, next_ = "sha256:" + "9f3ac1d2" * 8, "sha256:" + "0b77e6f1" * 8
    names = [f"worker-{n}" for n in range(8)]
    workers = [
        WorkerLine(
            worker_id=name,
            required=True,
            version=26,
            artifact_hash=good,
            serves_active=True,
            failure="",
            reported_ms=NOW_MS - 60_000 - 700 * n,
        )
        for n, name in enumerate(names[:6])
    ]
    workers.append(
        WorkerLine(
            worker_id=names[6],
            required=True,
            version=25,
            artifact_hash="sha256:" + "77aa01be" * 8,
            serves_active=False,
            failure="",
            reported_ms=NOW_MS - 340_000,
        )
    )
    workers.append(
        WorkerLine(
            worker_id=names[7],
            required=True,
            version=None,
            artifact_hash="",
            serves_active=False,
            failure="CUDA error: out of memory while loading shard 3 of 4",
            reported_ms=NOW_MS - 21_000,
        )
    )
    workers.append(
        WorkerLine(
            worker_id="evaluator",
            required=False,
            version=24,
            artifact_hash="sha256:" + "51c0ffee" * 8,
            serves_active=False,
            failure="",
            reported_ms=NOW_MS - 900_000,
        )
    )
    policies = [
        PolicyLine(
            version=27,
            artifact_hash=next_,
            state="committed",
            orphaned=False,
            prepared_ms=NOW_MS - 30_000,
            committed_ms=NOW_MS - 22_000,
            activated_ms=None,
            acks=tuple(names[:4]),
            refused="missing_worker_ack",
            refused_ms=NOW_MS - 9_000,
            missing_workers=tuple(names[4:6]),
            mismatched_workers=tuple(names[6:]),
        ),
        PolicyLine(
            version=26,
            artifact_hash=good,
            state="active",
            orphaned=False,
            prepared_ms=NOW_MS - 120_000,
            committed_ms=NOW_MS - 110_000,
            activated_ms=NOW_MS - 100_000,
            acks=tuple(names),
            refused="",
            refused_ms=None,
            missing_workers=(),
            mismatched_workers=(),
        ),
    ]
    policies += [
        PolicyLine(
            version=v,
            artifact_hash="sha256:" + f"{v:08x}" * 8,
            state="abandoned" if v == 23 else "retired",
            orphaned=v == 20,
            prepared_ms=NOW_MS - 100_000 * (27 - v),
            committed_ms=NOW_MS - 100_000 * (27 - v) + 8_000,
            activated_ms=None if v == 23 else NOW_MS - 100_000 * (27 - v) + 20_000,
            acks=(),
            refused="",
            refused_ms=None,
            missing_workers=(),
            mismatched_workers=(),
        )
        for v in range(25, 18, -1)
    ]
    return Activation(workers=tuple(workers), policies=tuple(policies))


def decision(sequence: int, **changed: Any) -> DecisionLine:
    said: dict[str, Any] = {
        "sequence": sequence,
        "time_ms": NOW_MS - (48_211 - sequence) * 130,
        "partition": 3,
        "source_offset": 52_000 + sequence,
        "offset": 61_000 + sequence,
        "record_type": "Generated",
        "outcome": "accepted",
        "violation": False,
        "reason": "ok",
        "detail": "",
        "subject_kind": "trajectory",
        "subject_id": f"01987a3c-77{sequence % 100:02}-7c11-b0de-{sequence:012}",
        "update_id": "",
        "items": (),
        "trajectory_ids": (f"01987a3c-77{sequence % 100:02}-7c11-b0de-{sequence:012}",),
    }
    return DecisionLine(**(said | changed))


def decisions() -> tuple[DecisionLine, ...]:
    last = 48_211
    lines = [decision(last - place) for place in range(50)]
    ids = tuple(f"01987a3c-88{n:02}-7c11-b0de-{n:012}" for n in range(8))
    lines[2] = decision(
        last - 2,
        record_type="Reserve",
        reason="ok",
        subject_kind="update",
        subject_id="update-0062",
        update_id="update-0062",
        items=counts({"reserved": 52, "stale_policy": 9, "not_rewarded": 3}),
        trajectory_ids=ids,
    )
    lines[5] = decision(
        last - 5,
        record_type="Activate",
        outcome="rejected",
        reason="missing_worker_ack",
        detail="2 of 8 workers",
        subject_kind="policy",
        subject_id="27",
        trajectory_ids=(),
    )
    lines[9] = decision(
        last - 9,
        record_type="Admit",
        subject_kind="update",
        subject_id="update-0061",
        update_id="update-0061",
        items=counts({"ok": 125, "policy_drift": 3}),
        trajectory_ids=ids[:5],
    )
    lines[13] = decision(last - 13, record_type="RewardReady", outcome="pending", reason="pending")
    lines[17] = decision(
        last - 17,
        record_type="Commit",
        outcome="duplicate",
        reason="duplicate",
        subject_kind="update",
        subject_id="update-0060",
        update_id="update-0060",
        trajectory_ids=ids[2:6],
    )
    lines[21] = decision(
        last - 21,
        record_type="",
        outcome="undecodable",
        reason="undecodable",
        subject_kind="",
        subject_id="",
        trajectory_ids=(),
        detail="unknown schema fingerprint",
    )
    return tuple(lines)
