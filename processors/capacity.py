"""Capacity: how many more trajectories can be generated now without going stale. A pure function of a run's state.

A trajectory that is begun now carries the active policy's number a. The next update judges by the number n; each update
after it by one more, so that the updates with the numbers n to a + max_lag can train on it: `updates_left`. They have
room for `rows_per_update` each, and what is there already takes its place first. docs/freshness.md derives it.
"""

from typing import NamedTuple

from rollbook.processors.ledger.lag import known_policy, policy_number
from rollbook.processors.ledger.store import Run
from rollbook.schemas.records.ledger import PolicyState, TrajectoryStatus, UpdateStatus
from rollbook.schemas.records.run import LagUnit
from rollbook.schemas.types import INT63_MAX

COMMITS = 8
"""How many of the last ones say how large an update is."""
UNDER_WAY = (TrajectoryStatus.DISPATCHED, TrajectoryStatus.GENERATED, TrajectoryStatus.REWARD_FAILED)
"""What may yet be ready."""


class Capacity(NamedTuple):
    """`room` None: no update has shown yet how many rows it takes."""

    rows_per_update: int | None
    updates_left: int
    room: int | None


def capacity(run: Run) -> Capacity:
    """Of a configured run; a closed one has none, and neither has one whose active policy was undone or given up: what
    it generates is quarantined."""
    head, admission = run.head, run.config.admission
    rows = rows_per_update(run)
    active = None if head.active is None else known_policy(run, head.active)
    learner = learner_policy(run)
    if active is None or not _stands(active) or learner is None:
        return Capacity(rows, 0, 0)
    number = next_number(run, learner)
    left = max(0, policy_number(active, admission.lag_unit) + admission.max_lag - number + 1)
    live = max(0, run.config.max_live - run.trajectories.live)
    if not (left and live):
        return Capacity(rows, left, 0)
    return Capacity(rows, left, None if rows is None else min(live, max(0, rows * left - _placed(run, number))))


def learner_policy(run: Run) -> PolicyState | None:
    """The newest policy that is neither orphaned nor abandoned; None in a closed run."""
    every = run.policies.downwards(INT63_MAX + 1)
    return next(filter(_stands, every), None)


def _stands(policy: PolicyState) -> bool:
    return not any((policy.orphaned, policy.abandoned))


def rows_per_update(run: Run) -> int | None:
    """The most that one of the last commits trained on, or a started update holds. No mean: workers would wait for a
    trainer that waits for them."""
    committed = [len(one.trained) + one.forgotten for one in run.updates.last_committed(COMMITS)]
    started = [len(one.held) for one in run.updates.all_open() if one.status is UpdateStatus.STARTED]
    return max([*committed, *started], default=0) or None


def next_number(run: Run, learner: PolicyState) -> int:
    """What the next update, or one that still gathers its rows, is judged by once all before it are in the weights.

    In ordinals that is what the ledger counts; of several learners the one that is furthest. In depth each update that
    is started, and the commits that no policy has yet, will be one policy more."""
    started = [one for one in run.updates.all_open() if one.status is UpdateStatus.STARTED]
    if run.config.admission.lag_unit is LagUnit.ORDINAL:
        return max(
            (
                run.updates.committed_of(one.learner_id)
                + sum(other.learner is not None and other.learner.learner_id == one.learner_id for other in started)
                for one in run.learners.values()
            ),
            default=learner.ordinal,
        )
    return learner.depth + len(started) + _unexported(run, learner)


def _unexported(run: Run, learner: PolicyState) -> int:
    """1 where the last commit is in no policy. Trainers that name no updates in their policies cannot be asked."""
    last = run.updates.last_committed(1)
    names_updates = learner.ordinal > 0 or learner.depth == 0
    return int(bool(last) and names_updates and not run.policies.adding(last[0].update_id))


def _placed(run: Run, number: int) -> int:
    """Rows that take a place in the updates to come: ready or under way and not stale by then, or held by an update
    that still gathers."""
    admission = run.config.admission

    def waits(versions: tuple[int, ...]) -> bool:
        behavior = [policy for policy in map(run.policies.get, versions) if policy is not None]
        if len(behavior) < len(versions):
            return True
        return number - min(policy_number(policy, admission.lag_unit) for policy in behavior) <= admission.max_lag

    ready = sum(count for versions, count in run.trajectories.ready() if waits(versions))
    coming = sum(
        count for version, status, count in run.trajectories.by_version() if status in UNDER_WAY and waits((version,))
    )
    held = sum(len(one.held) for one in run.updates.all_open() if one.status is UpdateStatus.OPEN)
    return ready + coming + held
