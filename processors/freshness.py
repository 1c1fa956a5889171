"""How stale is what is left: a pure function of a run's state."""

from rollbook.processors.gates import Freshness, freshness_of
from rollbook.processors.ledger.lag import known_policy, policy_number
from rollbook.processors.ledger.store import Run
from rollbook.schemas.records.decision import FreshnessSnapshot, VersionCount

MOST_UPDATES = 100
MOST_ROWS = 1_000
"""What a snapshot lists at most: it must fit its topic whatever a run does."""


def snapshot(run: Run) -> FreshnessSnapshot:
    """The figures of a configured run after its last decision. Ready is what waits to be trained on (evaluation never
    does); its lag is that of its span furthest behind, against the active policy."""
    head = run.head
    admission = run.config.admission
    active = None if head.active is None else known_policy(run, head.active)
    counts = dict.fromkeys(Freshness, 0)
    expiring = total = weighted = 0
    for versions, count in run.trajectories.ready():
        behavior = [policy for policy in map(run.policies.get, versions) if policy is not None]
        if active is None or len(behavior) < len(versions):  # a span's policy is not prepared yet
            continue
        number = min(policy_number(policy, admission.lag_unit) for policy in behavior)
        lag = policy_number(active, admission.lag_unit) - number
        counts[freshness_of(lag, admission.max_lag)] += count
        expiring += count if lag == admission.max_lag else 0
        total += count
        weighted += lag * count
    opened = run.updates.all_open()
    return FreshnessSnapshot(
        run_id=run.run_id,
        sequence=head.sequence,
        active_policy=head.active,
        lag_unit=admission.lag_unit.value,
        max_lag=admission.max_lag,
        by_version=tuple(
            VersionCount(version=v, state=s.value, count=c) for v, s, c in run.trajectories.by_version()[-MOST_ROWS:]
        ),
        ready_fresh=counts[Freshness.FRESH],
        ready_tolerated=counts[Freshness.TOLERATED],
        ready_expiring=expiring,
        ready_stale=counts[Freshness.STALE],
        open_updates=tuple(update.update_id for update in opened[:MOST_UPDATES]),
        open_update_count=len(opened),
        mean_lag=weighted / total if total else None,
        happened=tuple(run.tallies.values()),
    )
