"""The snapshot of a run that never was: at its limits in most ways."""

from typing import Any

from rollbook.schemas.records.common import LearnerRef, PolicyRef
from rollbook.schemas.records.decision import (
    DriftFloor,
    FailureCount,
    FreshnessSnapshot,
    LagCount,
    OpenUpdate,
    RefusalCount,
    VersionCount,
    WorkerReport,
)
from rollbook.tests.processors.dashboard.sample_series import MAX_LAG, RUN

THRESHOLD = 0.05


def snapshot(run_id: str = RUN, **changed: Any) -> FreshnessSnapshot:
    by_lag = {0: 212, 1: 148, 2: 71, 3: 39, 4: 12, 5: 4}
    by_lag_total = sum(by_lag.values())
    said: dict[str, Any] = {
        "run_id": run_id,
        "sequence": 48_211,
        "active_policy": PolicyRef(version=26, artifact_hash="sha256:" + "9f3ac1d2" * 8),
        "lag_unit": "depth",
        "max_lag": MAX_LAG,
        "by_version": (VersionCount(version=26, state="rewarded", count=212),),
        "ready_fresh": by_lag[0],
        "ready_tolerated": by_lag[1] + by_lag[2] + by_lag[3],
        "ready_expiring": by_lag[3],
        "ready_stale": by_lag[4] + by_lag[5],
        "open_updates": ("update-0061", "update-0062"),
        "open_update_count": 2,
        "mean_lag": sum(lag * n for lag, n in by_lag.items()) / by_lag_total,
        "learner_policy": PolicyRef(version=27, artifact_hash="sha256:" + "0b77e6f1" * 8),
        "ready_unknown": 5,
        "ready_by_lag": tuple(LagCount(lag=lag, count=n) for lag, n in by_lag.items()),
        "ready_stale_for_learner": 55,
        "consumed_by_lag": (LagCount(lag=0, count=900),),
        "consumed_lag_unknown": 3,
        "drift_gate": "required",
        "max_mean_abs_log_ratio": THRESHOLD,
        "drift_floor": tuple(
            DriftFloor(
                version=v, rows=40 + v, mean_abs_log_ratio=0.0021 + 0.0004 * (v % 5) + (0.011 if v > 24 else 0.0)
            )
            for v in range(4, 27)
        ),
        "refusals": (RefusalCount(record_type="Reserve", reason="stale_policy", count=55),),
        "failures": (
            FailureCount(stage="generation", cause="timeout", count=171),
            FailureCount(stage="generation", cause="worker_lost", count=66),
            FailureCount(stage="reward", cause="service_error", count=120),
        ),
        "updates": (
            OpenUpdate(
                update_id="update-0062",
                learner=LearnerRef(learner_id="learner-0", epoch=4),
                status="open",
                held=64,
                in_doubt=False,
                opened_sequence=48_100,
                last_activity_offset=48_180,
                lease_ms=60_000,
            ),
        ),
        "workers": (
            WorkerReport(
                worker_id="worker-0",
                required=True,
                serves=PolicyRef(version=26, artifact_hash="sha256:" + "9f3ac1d2" * 8),
                serves_active=True,
                failure="",
                incarnation=1,
                report_seq=3,
                offset=40_000,
            ),
        ),
        "worker_count": 9,
        "workers_behind": 2,
        "rows_per_update": 128,
        "updates_left": 3,
        "capacity": 0,
        "figures_since": 1,
    }
    return FreshnessSnapshot(**(said | changed))
