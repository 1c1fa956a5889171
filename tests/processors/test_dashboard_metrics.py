"""The dashboard's metrics: every figure of a snapshot that has one is told, by the table, and never without bound."""

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rollbook.processors import metric_table as table
from rollbook.processors.dashboard.metrics import (
    ALWAYS_TOLD,
    BEYOND,
    FUTURE,
    LAG_RANGES,
    UNKNOWN,
    ReaderFigures,
    RunFigures,
    RunMetrics,
)
from rollbook.processors.freshness import snapshot
from rollbook.processors.ledger.figures import BOUNDS
from rollbook.processors.lifecycle import Event
from rollbook.processors.metric import IDLE_RUN_S, MOST_RUNS
from rollbook.schemas.records.decision import (
    DriftFloor,
    FailureCount,
    FreshnessSnapshot,
    LagCount,
    RefusalCount,
    VersionCount,
    WorkerReport,
)
from rollbook.tests.infra.test_freshness_page import HOSTILE, lived
from rollbook.tests.processors.history import History
from rollbook.tests.processors.test_metrics import samples

AT_MS = 1_764_500_000_125
READER = ReaderFigures(connected=True, lag_records={0: 7, 1: 0}, folded=41, unreadable=2)
Told = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def text(*views: RunFigures, reader: ReaderFigures = READER, metrics: RunMetrics | None = None) -> str:
    return (metrics or RunMetrics()).exposition(views, reader).decode()


def told(*views: RunFigures, reader: ReaderFigures = READER, metrics: RunMetrics | None = None) -> Told:
    return samples(text(*views, reader=reader, metrics=metrics))


def value(found: Told, name: str, **labels: str) -> float | None:
    return found.get((f"rollbook_{name}", tuple(sorted(labels.items()))))


def the_run(**changed: Any) -> FreshnessSnapshot:
    """Of a run that has figures of every sort."""
    return snapshot(lived().run).model_copy(update=changed)


def view(run_id: str = "run-a", at_ms: int = AT_MS, **changed: Any) -> RunFigures:
    return RunFigures(the_run(run_id=run_id, **changed), at_ms)


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("run_info", {"lag_unit": "depth", "drift_gate": "required"}, 1),
        ("run_decisions_total", {}, 25),
        ("run_snapshot_timestamp_seconds", {}, AT_MS / 1000),
        ("run_active_policy_version", {}, 1),
        ("run_learner_policy_version", {}, 2),
        ("run_max_lag", {}, 1),
        ("run_ready_mean_lag", {}, 1),
        ("run_ready_trajectories", {"freshness": "fresh"}, 0),
        ("run_ready_trajectories", {"freshness": "tolerated"}, 1),
        ("run_ready_trajectories", {"freshness": "unknown"}, 0),
        ("run_ready_by_lag_trajectories", {"lag": "1"}, 1),
        ("run_ready_expiring_trajectories", {}, 1),
        ("run_ready_stale_for_learner_trajectories", {}, 1),
        ("run_live_trajectories", {"state": "rewarded"}, 1),
        ("run_live_trajectories", {"state": "reserved"}, 1),
        ("run_live_trajectories", {"state": "dispatched"}, 0),
        ("run_capacity_trajectories", {}, 0),
        ("run_update_rows", {}, 2),
        ("run_updates_left", {}, 0),
        ("run_events_total", {"event": "commit"}, 2),
        ("run_events_total", {"event": "roll_back"}, 0),
        ("run_consumed_total", {"lag": "0"}, 2),
        ("run_consumed_total", {"lag": "unknown"}, 0),
        ("run_refusals_total", {"record": "Admit", "reason": "policy_drift"}, 1),
        ("run_refusals_total", {"record": "Activate", "reason": "missing_worker_ack"}, 0),
        ("run_failures_total", {"stage": "generation", "cause": "timeout"}, 1),
        ("run_failures_total", {"stage": "reward", "cause": "timeout"}, 0),
        ("run_drift_nats_bucket", {"verdict": "admitted", "le": "0.1"}, 1),
        ("run_drift_nats_bucket", {"verdict": "admitted", "le": "0.2"}, 2),
        ("run_drift_nats_bucket", {"verdict": "refused", "le": "2.0"}, 0),
        ("run_drift_nats_bucket", {"verdict": "refused", "le": "+Inf"}, 1),
        ("run_drift_nats_count", {"verdict": "admitted"}, 2),
        ("run_drift_limit_nats", {}, 0.2),
        ("run_drift_floor_nats", {"which": "newest"}, pytest.approx(1.241797, abs=1e-6)),
        ("run_drift_floor_version", {"which": "newest"}, 0),
        ("run_drift_floor_rows", {"which": "newest"}, 3),
        ("run_open_updates", {}, 1),
        ("run_in_doubt_updates", {}, 1),
        ("run_workers", {}, 3),
        ("run_required_workers", {}, 3),
        ("run_silent_workers", {}, 0),
        ("run_behind_workers", {}, 1),
        ("run_worker_behind", {"worker": HOSTILE}, 1),
        ("run_worker_behind", {"worker": "w0"}, 0),
        ("run_worker_policy_version", {"worker": "w0"}, 1),
        ("run_worker_policy_version", {"worker": HOSTILE}, None),
        ("run_lease_seconds", {}, None),
        ("run_lease_left_seconds", {}, None),
        ("run_drift_floor_jump_nats", {}, None),
    ],
)
def test_a_figure_is_told(name: str, labels: dict[str, str], expected: float | None) -> None:
    assert value(told(view()), name, run="run-a", **labels) == expected


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("dashboard_reader_connected", {}, 1),
        ("dashboard_reader_lag_records", {"partition": "0"}, 7),
        ("dashboard_reader_lag_records", {"partition": "1"}, 0),
        ("dashboard_folded_records_total", {}, 41),
        ("dashboard_unreadable_records_total", {}, 2),
        ("dashboard_runs", {}, 1),
        ("dashboard_runs_not_shown", {}, 0),
    ],
)
def test_so_is_what_the_reader_does(name: str, labels: dict[str, str], expected: float) -> None:
    assert value(told(view()), name, **labels) == expected


def test_what_is_not_known_is_not_told() -> None:
    """A young run: no update, nothing ready, no active drift. A 0 would say otherwise."""
    found = told(RunFigures(snapshot(History("run-a").opened().run), AT_MS))
    for name in ("ready_mean_lag", "capacity_trajectories", "update_rows", "lease_seconds"):
        assert value(found, f"run_{name}", run="run-a") is None
    assert not any(name.startswith("rollbook_run_drift_floor") for name, _ in found)
    assert value(found, "run_drift_nats_count", run="run-a", verdict="admitted") == 0


def test_what_an_alert_takes_the_increase_of_begins_at_0() -> None:
    found = told(RunFigures(snapshot(History("run-a").opened().run), AT_MS))
    for record, reason in ALWAYS_TOLD:
        assert value(found, "run_refusals_total", run="run-a", record=record, reason=reason.value) == 0
    for event in Event:
        assert value(found, "run_events_total", run="run-a", event=event.value) is not None


def test_before_the_broker_is_there_it_says_so() -> None:
    found = told(reader=ReaderFigures(connected=False, lag_records={}, folded=0))
    assert value(found, "dashboard_reader_connected") == 0
    assert value(found, "dashboard_runs") == 0
    assert not any(name.startswith("rollbook_run_") for name, _ in found)


def test_what_is_told_is_in_the_table_with_its_kind_and_help() -> None:
    by_name = {one.name.removesuffix("_total"): one for one in table.DASHBOARD}
    full = replace(
        view(
            drift_floor=tuple(
                DriftFloor(version=version, rows=9, mean_abs_log_ratio=0.01 * version) for version in (3, 4)
            ),
        ),
        lease_left_s=12.5,
        lease_s=60.0,
    )
    families = {
        family.name: family
        for family in text_string_to_metric_families(text(full))
        if not family.name.startswith("process_")
    }
    assert families.keys() == by_name.keys()
    for name, family in families.items():
        one = by_name[name]
        assert (family.type, family.documentation) == (one.kind.value, one.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(one.labels), sample


def test_the_floor_of_the_newest_version_is_held_against_the_one_before() -> None:
    floors = tuple(DriftFloor(version=v, rows=8 + v, mean_abs_log_ratio=0.01 * v) for v in (2, 3, 5))
    found = told(view(drift_floor=floors))
    assert value(found, "run_drift_floor_version", run="run-a", which="newest") == 5
    assert value(found, "run_drift_floor_version", run="run-a", which="previous") == 3
    assert value(found, "run_drift_floor_rows", run="run-a", which="newest") == 13
    assert value(found, "run_drift_floor_jump_nats", run="run-a") == pytest.approx(0.02)


def test_a_lease_is_told_with_what_is_left_of_it() -> None:
    found = told(replace(view(), lease_left_s=0.0, lease_s=30.0))
    assert value(found, "run_lease_seconds", run="run-a") == 30
    assert value(found, "run_lease_left_seconds", run="run-a") == 0
    assert value(told(view()), "run_lease_seconds", run="run-a") is None


@pytest.mark.parametrize(
    ("lag", "named"),
    [(-9, FUTURE), (-1, FUTURE), (0, "0"), (4, "4"), (5, "5-8"), (8, "5-8"), (9, "9-16"), (32, "17-32"), (33, BEYOND)],
)
def test_a_lag_has_the_label_of_its_range(lag: int, named: str) -> None:
    counts = (LagCount(lag=lag, count=5),)
    found = told(view(consumed_by_lag=counts, ready_by_lag=counts, consumed_lag_unknown=2))
    assert value(found, "run_consumed_total", run="run-a", lag=named) == 5
    assert value(found, "run_ready_by_lag_trajectories", run="run-a", lag=named) == 5
    assert value(found, "run_consumed_total", run="run-a", lag=UNKNOWN) == 2
    assert sum(count for (name, _), count in found.items() if name == "rollbook_run_consumed_total") == 7


def test_drift_lies_in_the_bins_of_the_snapshot() -> None:
    found = told(view())
    bounds = {
        dict(labels)["le"]
        for (name, labels) in found
        if name == "rollbook_run_drift_nats_bucket" and dict(labels)["verdict"] == "refused"
    }
    assert bounds == {*map(str, BOUNDS), "+Inf"}


def test_what_a_newer_processor_names_is_pooled() -> None:
    found = told(
        view(
            refusals=(
                RefusalCount(record_type="Reserve", reason="new_one", count=2),
                RefusalCount(record_type="Reserve", reason="newer_one", count=3),
                RefusalCount(record_type="Newest", reason="stale_policy", count=4),
            ),
            failures=(
                FailureCount(stage="generation", cause="cosmic_ray", count=5),
                FailureCount(stage="judging", cause="timeout", count=6),
            ),
            by_version=(VersionCount(version=1, state="sleeping", count=7),),
        )
    )
    assert value(found, "run_refusals_total", run="run-a", record="Reserve", reason="other") == 5
    assert value(found, "run_refusals_total", run="run-a", record="other", reason="stale_policy") == 4
    assert value(found, "run_failures_total", run="run-a", stage="generation", cause="other") == 5
    assert value(found, "run_failures_total", run="run-a", stage="other", cause="other") == 6
    assert "sleeping" not in text(view(by_version=(VersionCount(version=1, state="sleeping", count=7),)))


def _workers(count: int, behind: frozenset[int]) -> tuple[WorkerReport, ...]:
    return tuple(
        WorkerReport(
            worker_id=f"w{at:03}",
            required=True,
            serves=None,
            serves_active=at not in behind,
            failure="",
            incarnation=None if at in behind else 0,
            report_seq=0,
            offset=0,
        )
        for at in range(count)
    )


def test_of_too_many_workers_those_behind_have_labels_first() -> None:
    found = told(view(workers=_workers(200, frozenset({150, 199})), worker_count=200, workers_behind=2))
    named = {dict(labels)["worker"]: told for (name, labels), told in found.items() if name.endswith("worker_behind")}
    assert len(named) == table.MOST_WORKERS
    assert {worker for worker, behind in named.items() if behind} == {"w150", "w199"}
    assert value(found, "run_silent_workers", run="run-a") == 2


def test_a_run_that_is_closed_is_not_shown() -> None:
    found = told(view("open"), replace(view("closed"), closed=True))
    assert value(found, "run_decisions_total", run="open") == 25
    assert value(found, "run_decisions_total", run="closed") is None
    assert value(found, "dashboard_runs") == 1


def shown(found: Told) -> set[str]:
    return {dict(labels)["run"] for name, labels in found if name == "rollbook_run_decisions_total"}


def test_more_runs_than_labels_are_counted() -> None:
    """The newest are shown first, and then stay, also when others are newer: series must not come and go."""
    metrics = RunMetrics()
    views = [view(f"run-{at:02}", AT_MS + at) for at in range(MOST_RUNS + 9)]
    found = told(*views, metrics=metrics)
    first = {f"run-{at:02}" for at in range(9, MOST_RUNS + 9)}
    assert shown(found) == first
    assert value(found, "dashboard_runs_not_shown") == 9
    views[0] = view("run-00", AT_MS + 60_000)
    assert shown(told(*views, metrics=metrics)) == first
    views[30] = replace(views[30], closed=True)
    assert shown(told(*views, metrics=metrics)) == first - {"run-30"} | {"run-00"}
    late = view("late", AT_MS + int(IDLE_RUN_S * 1000) + 100_000)
    assert "late" in shown(told(*views, late, metrics=metrics))


def test_labels_are_bounded_whatever_a_run_does() -> None:
    """Lags, versions, workers, reasons without end: as many series as before."""
    wild = view(
        ready_by_lag=tuple(LagCount(lag=lag, count=1) for lag in range(-50, 950)),
        consumed_by_lag=tuple(LagCount(lag=lag, count=1) for lag in range(-1, 999)),
        by_version=tuple(VersionCount(version=at, state="rewarded", count=1) for at in range(1_000)),
        drift_floor=tuple(DriftFloor(version=at, rows=1, mean_abs_log_ratio=0.1) for at in range(64)),
        refusals=tuple(RefusalCount(record_type="Reserve", reason=f"r{at}", count=1) for at in range(1_000)),
        failures=tuple(FailureCount(stage="generation", cause=f"c{at}", count=1) for at in range(1_000)),
        workers=_workers(256, frozenset()),
    )
    lags = len(LAG_RANGES) + 3
    assert len([name for name, _ in told(wild) if "lag" in name and "run" in name]) <= 2 * lags + 2
    assert len(told(wild)) < 350


def test_a_hostile_worker_stays_in_its_label() -> None:
    hostile = 'a"} 1\nrollbook_run_max_lag{run="b"} 9\\'
    report = _workers(1, frozenset())[0].but(worker_id=hostile)
    found = told(view(workers=(report,)))
    assert value(found, "run_worker_behind", run="run-a", worker=hostile) == 0
    assert value(found, "run_max_lag", run="b") is None
