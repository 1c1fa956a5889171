"""Frames of a run that never was, for the tests of the page: typed by the contract, the same each time."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from rollbook.processors.dashboard.answers import (
    Activation,
    Frame,
    Now,
    Reading,
    Refusals,
    RunLine,
    Runs,
    Size,
    Status,
    Trajectory,
    TrajectoryStep,
)
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import FailureCount
from rollbook.tests.processors.dashboard.sample_parts import activation, decision, decisions, updates
from rollbook.tests.processors.dashboard.sample_series import NOW_MS, RUN, counts, series, totals
from rollbook.tests.processors.dashboard.sample_snapshot import snapshot


@dataclass(frozen=True, slots=True)
class Hostile:
    """What a run may put into its names and reasons at worst."""

    script: str = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>\'"`${1}</td>{{a}}{b|c}'
    reversed: str = "safe\u202egnp.exe\u2066\u200b\u200d\ufeff\u00adend"
    stacked: str = "z" + "\u0301\u0302\u0303" * 60
    long: str = "W" * 4096
    id: str = "<b onmouseover=window.pwned=1>" + "x" * 220


HOSTILE = Hostile()


def status(reading: Reading = Reading.LIVE, *, fault: str = "", behind: int | None = 0, at_ms: int = NOW_MS) -> Status:
    return Status(
        version="0.1.0",
        instance="instance-1",
        now_ms=at_ms,
        reading=reading,
        fault=fault,
        records=184_223,
        unreadable=0,
        behind=behind,
        topic_prefix="rollbook.",
    )


def empty(reading: Reading = Reading.LIVE, **said: Any) -> Frame:
    """A frame of a dashboard that knows no run."""
    return Frame(status=status(reading, **said), runs=Runs(runs=(), left_out=0), now=None, series=None)


@cache
def frame(
    size: Size = Size.TEN_SECONDS,
    run_id: str = RUN,
    *,
    reading: Reading = Reading.LIVE,
    fault: str = "",
    windows: int = 260,
) -> Frame:
    """A run in full swing: a stale burst, a refused activation, a worker behind, an update in doubt."""
    over_time = series(size, windows, run_id)
    sofar = totals(over_time.windows)
    line = RunLine(
        run_id=run_id,
        first_ms=over_time.windows[0].start_ms,
        last_ms=NOW_MS - 400,
        decisions=48_211,
        since=1,
        closed=False,
        active_version=26,
        ready=491,
        stale=16,
    )
    others = (
        line.model_copy(update={"run_id": "llama-70b/dapo-2", "last_ms": NOW_MS - 90_000, "ready": 12, "stale": 0}),
        line.model_copy(
            update={
                "run_id": "smoke-test",
                "last_ms": NOW_MS - 86_400_000,
                "closed": True,
                "ready": None,
                "stale": None,
            }
        ),
    )
    shown = snapshot(run_id, in_doubt_count=1)
    return Frame(
        status=status(reading, fault=fault, behind=12_345 if reading is Reading.CATCHING_UP else 0),
        runs=Runs(runs=(line, *others), left_out=0),
        now=Now(
            run=line,
            snapshot=shown,
            snapshot_ms=NOW_MS - 400,
            totals=sofar,
            updates=updates(),
            activation=activation(),
            decisions=decisions(),
        ),
        series=over_time,
    )


def trajectory(trajectory_id: str, run_id: str = RUN) -> Trajectory:
    said: list[tuple[str, str, str, str | None, str, int | None, float | None, str]] = [
        ("Dispatched", "accepted", "dispatched", "none", "dispatched", None, None, ""),
        ("Generated", "accepted", "generated", "dispatched", "generated", None, None, ""),
        ("RewardReady", "accepted", "rewarded", "generated", "rewarded", None, None, ""),
        ("Reserve", "accepted", "reserved", "rewarded", "reserved", 1, None, "update-0060"),
        ("Admit", "accepted", "ok", "reserved", "reserved", 1, 0.0123, "update-0060"),
        ("Commit", "accepted", "trained", "reserved", "consumed", None, None, "update-0060"),
    ]
    steps = tuple(
        TrajectoryStep(
            sequence=47_000 + 31 * place,
            time_ms=NOW_MS - 100_000 + 9_000 * place,
            source_offset=52_000 + 31 * place,
            record_type=of,
            outcome=outcome,
            reason=reason,
            state_before=before,
            state_after=after,
            lag=lag,
            mean_abs_log_ratio=ratio,
            update_id=update,
        )
        for place, (of, outcome, reason, before, after, lag, ratio, update) in enumerate(said)
    )
    more = f"rollbook explain {run_id} --trajectory {trajectory_id}"
    return Trajectory(run_id=run_id, trajectory_id=trajectory_id, steps=steps, complete=True, more=more)


def hostile() -> Frame:
    """The same run, all of whose names and reasons are hostile."""
    bad = HOSTILE
    usual = frame()
    assert usual.now is not None
    assert usual.series is not None
    now = usual.now
    ids = (bad.script, bad.reversed, bad.stacked, bad.id, "..", "a/b?c#d&e=%2e")
    line = decision(
        50_000,
        record_type=bad.script,
        reason=bad.script,
        detail=bad.long,
        subject_kind=bad.script,
        subject_id=bad.id,
        update_id=bad.script,
        items=counts({bad.script: 3, bad.long: 2}),
        trajectory_ids=ids,
    )
    worker = now.activation.workers[7].model_copy(update={"worker_id": bad.script, "failure": bad.long})
    policy = now.activation.policies[0].model_copy(
        update={
            "artifact_hash": bad.script,
            "refused": bad.script,
            "missing_workers": (bad.id, bad.reversed, bad.stacked),
        }
    )
    update = now.updates[0].model_copy(update={"update_id": bad.script, "learner_id": bad.id, "reason": bad.long})
    refusals = (
        Refusals(record_type=bad.script, reason=bad.script, count=500),
        Refusals(record_type=bad.long, reason=bad.reversed, count=400),
    )
    changed = usual.series.windows[-1].model_copy(update={"refusals": refusals})
    return usual.model_copy(
        update={
            "status": usual.status.model_copy(update={"fault": bad.script + bad.long}),
            "now": now.model_copy(
                update={
                    "decisions": (line, *now.decisions[:49]),
                    "updates": (update, *now.updates[1:]),
                    "totals": now.totals.model_copy(update={"refusals": (*now.totals.refusals, *refusals)}),
                    "activation": Activation(
                        workers=(*now.activation.workers[:7], worker), policies=(policy, *now.activation.policies[1:])
                    ),
                    "snapshot": snapshot(
                        in_doubt_count=1,
                        active_policy=PolicyRef(version=26, artifact_hash=bad.script),
                        failures=(FailureCount(stage=bad.script, cause=bad.long, count=9),),
                        drift_gate=bad.script,
                    ),
                }
            ),
            "series": usual.series.model_copy(update={"windows": (*usual.series.windows[:-1], changed)}),
        }
    )
