"""How stale is what is left, and what has become of the rest: a pure function of a run's state."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from rollbook.processors.capacity import capacity, learner_policy
from rollbook.processors.gates import Freshness, freshness_of
from rollbook.processors.ledger.figures import ADMITTED, BINS, BOUNDS, CONSUMED, DRIFT, REFUSED, ROWS, SINCE, is_figure
from rollbook.processors.ledger.lag import known_policy, policy_number
from rollbook.processors.ledger.store import Run
from rollbook.processors.lifecycle import Event
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import (
    DriftBin,
    DriftFloor,
    FailureCount,
    FreshnessSnapshot,
    LagCount,
    OpenUpdate,
    RefusalCount,
    Tally,
    VersionCount,
    WorkerReport,
)
from rollbook.schemas.records.ledger import PolicyState, UpdateState

MOST_UPDATES = 100
MOST_WORKERS = 256
MOST_ROWS = 1_000
"""What a snapshot lists at most: it must fit its topic whatever a run does."""
_REFUSED_AT = " refused: "
_STAGES = {Event.GENERATION_FAILED.value: "generation", Event.REWARD_FAILED.value: "reward"}


def snapshot(run: Run) -> FreshnessSnapshot:
    """The figures of a configured run after its last decision. Ready is what waits to be trained on (evaluation never
    does); its lag is that of its span furthest behind, against the active policy."""
    head = run.head
    admission = run.config.admission
    active = None if head.active is None else known_policy(run, head.active)
    learner = learner_policy(run)
    lags, unknown = _lags(run, active)
    learners_lags, _ = _lags(run, learner)
    counts = dict.fromkeys(Freshness, 0)
    for lag, count in lags.items():
        counts[freshness_of(lag, admission.max_lag)] += count
    total = lags.total()
    opened = run.updates.all_open()
    workers = _workers(run)
    room = capacity(run)
    others = happened(run)
    figures = {tally.name: tally.count for tally in run.tallies.values()}
    consumed = tuple(_by_lag(figures))
    return FreshnessSnapshot(
        run_id=run.run_id,
        sequence=head.sequence,
        active_policy=head.active,
        lag_unit=admission.lag_unit.value,
        max_lag=admission.max_lag,
        by_version=tuple(
            VersionCount.trusted(version=v, state=s.value, count=c)
            for v, s, c in run.trajectories.by_version()[-MOST_ROWS:]
        ),
        ready_fresh=counts[Freshness.FRESH],
        ready_tolerated=counts[Freshness.TOLERATED],
        ready_expiring=lags[admission.max_lag],
        ready_stale=counts[Freshness.STALE],
        open_updates=tuple(update.update_id for update in opened[:MOST_UPDATES]),
        open_update_count=len(opened),
        mean_lag=sum(lag * count for lag, count in lags.items()) / total if total else None,
        happened=others,
        learner_policy=None if learner is None else _ref(learner),
        ready_future=counts[Freshness.FUTURE],
        ready_unknown=unknown,
        ready_by_lag=tuple(LagCount.trusted(lag=lag, count=lags[lag]) for lag in islice(sorted(lags), MOST_ROWS)),
        ready_stale_for_learner=sum(count for lag, count in learners_lags.items() if lag > admission.max_lag),
        consumed_by_lag=consumed,
        consumed_lag_unknown=figures.get(Event.COMMIT.value, 0) - sum(one.count for one in consumed),
        drift_gate=admission.drift_gate.value,
        max_mean_abs_log_ratio=admission.max_mean_abs_log_ratio,
        drift=tuple(_drift(figures)),
        drift_floor=tuple(_floor(figures, head.floor)),
        refusals=tuple(_refusals(others)),
        failures=tuple(_failures(others)),
        updates=tuple(one for update in opened[:MOST_UPDATES] for one in _update(run, update)),
        in_doubt_count=sum(update.in_doubt for update in opened),
        workers=workers[:MOST_WORKERS],
        worker_count=len(workers),
        workers_behind=sum(one.required and not one.serves_active for one in workers),
        rows_per_update=room.rows_per_update,
        updates_left=room.updates_left,
        capacity=room.room,
        figures_since=figures.get(SINCE, 0),
    )


def happened(run: Run) -> tuple[Tally, ...]:
    """What became of trajectories and records so far, without what the figures count."""
    return tuple(tally for tally in run.tallies.values() if not is_figure(tally.name))


def _lags(run: Run, policy: PolicyState | None) -> tuple[Counter[int], int]:
    """What is ready by its lag behind a policy, and how much of it has no lag: a span's policy is not prepared yet."""
    lags: Counter[int] = Counter()
    unknown = 0
    unit = run.config.admission.lag_unit
    for versions, count in run.trajectories.ready():
        behavior = [one for one in map(run.policies.get, versions) if one is not None]
        if policy is None or len(behavior) < len(versions):
            unknown += count
            continue
        lags[policy_number(policy, unit) - min(policy_number(one, unit) for one in behavior)] += count
    return lags, unknown


def _by_lag(figures: dict[str, int]) -> Iterator[LagCount]:
    lags = {int(name.removeprefix(CONSUMED)): count for name, count in figures.items() if name.startswith(CONSUMED)}
    for lag in sorted(lags):
        yield LagCount.trusted(lag=lag, count=lags[lag])


def _drift(figures: dict[str, int]) -> Iterator[DriftBin]:
    for name, bound in zip(BINS, (*BOUNDS, None), strict=True):
        admitted, refused = figures.get(f"{ADMITTED}{name}", 0), figures.get(f"{REFUSED}{name}", 0)
        if admitted + refused:
            yield DriftBin.trusted(up_to=bound, admitted=admitted, refused=refused)


def _floor(figures: dict[str, int], oldest: int) -> Iterator[DriftFloor]:
    versions = sorted(int(name.removeprefix(ROWS)) for name in figures if name.startswith(ROWS))
    for version in (one for one in versions if one >= oldest):
        rows = figures[f"{ROWS}{version}"]
        # Of whole numbers: exactly rounded, the same on every machine.
        yield DriftFloor.trusted(
            version=version, rows=rows, mean_abs_log_ratio=figures[f"{DRIFT}{version}"] / (rows * 1_000_000_000)
        )


def _refusals(tallies: Iterable[Tally]) -> Iterator[RefusalCount]:
    for tally in tallies:
        record_type, said, reason = tally.name.partition(_REFUSED_AT)
        if said:
            yield RefusalCount.trusted(record_type=record_type, reason=reason, count=tally.count)


def _failures(tallies: Iterable[Tally]) -> Iterator[FailureCount]:
    for tally in tallies:
        event, said, cause = tally.name.partition(": ")
        if said and event in _STAGES:
            yield FailureCount.trusted(stage=_STAGES[event], cause=cause, count=tally.count)


def _update(run: Run, update: UpdateState) -> Iterator[OpenUpdate]:
    config = run.configs.get(update.config_version)
    if update.learner is not None and config is not None:
        yield OpenUpdate.trusted(
            update_id=update.update_id,
            learner=update.learner,
            status=update.status.value,
            held=len(update.held),
            in_doubt=update.in_doubt,
            opened_sequence=update.opened_sequence,
            last_activity_offset=update.last_activity_offset,
            lease_ms=config.lease_ms,
        )


def _workers(run: Run) -> tuple[WorkerReport, ...]:
    required = frozenset(run.config.required_workers)
    others = [worker.worker_id for worker in run.workers.values() if worker.worker_id not in required]
    return tuple(_worker(run, name, name in required) for name in (*sorted(required), *others))


def _worker(run: Run, worker_id: str, required: bool) -> WorkerReport:
    last = run.workers.get(worker_id)
    return WorkerReport.trusted(
        worker_id=worker_id,
        required=required,
        serves=None if last is None else last.serves,
        serves_active=last is not None and last.serves is not None and last.serves == run.head.active,
        failure="" if last is None else last.failure,
        incarnation=None if last is None else last.incarnation,
        report_seq=None if last is None else last.report_seq,
        offset=None if last is None else last.offset,
    )


def _ref(policy: PolicyState) -> PolicyRef:
    return PolicyRef.trusted(version=policy.version, artifact_hash=policy.artifact.hash)
