"""Looking at a ledger's whole state from outside: what tests compare, and what a restart restores."""

import hashlib
from typing import Any

from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.keys import parse_key, restore_row
from rollbook.processors.ledger.store import Run, is_open
from rollbook.processors.lifecycle import LIVE, PENDING
from rollbook.schemas.records.ledger import TrajectoryStatus, UpdateStatus
from rollbook.schemas.records.rollout import Purpose

Rows = dict[str, dict[int, Any]]
Topic = list[tuple[bytes, bytes | None]]


def rows(run: Run) -> Rows:
    """Every row of every table, by the number of its place in the table's order."""
    return {table.kind: dict(enumerate(table.values())) for table in run.tables()}


def all_rows(ledger: Ledger) -> dict[str, Rows]:
    """The rows of all runs that have any."""
    return {name: rows(run) for name, run in ledger.runs.items() if any(len(table) for table in run.tables())}


def indexes(run: Run) -> dict[str, Any]:
    """What the tables answer from beside their rows."""
    groups = {trajectory.group_id for trajectory in run.trajectories.values()}
    learners = {update.learner.learner_id for update in run.updates.values() if update.learner is not None}
    return {
        "claimable": run.trajectories.claimable_groups(),
        "members": {group: run.trajectories.members(group) for group in sorted(groups)},
        "by_version": run.trajectories.by_version(),
        "ready": run.trajectories.ready(),
        "live": run.trajectories.live,
        "with_span": {version: run.trajectories.live_with((version,)) for version in range(6)},
        "open": {name: run.updates.open_of(name) for name in sorted(learners)},
        "all_open": run.updates.all_open(),
        "committed": {name: run.updates.committed_of(name) for name in sorted(learners)},
        "last_committed": [run.updates.last_committed(count) for count in range(1, 8)],
    }


def recounted(run: Run) -> dict[str, Any]:
    """The same answers, counted from the rows alone."""
    known = run.trajectories.values()
    updates = run.updates.values()
    groups = {name: [t for t in known if t.group_id == name] for name in sorted({t.group_id for t in known})}
    learners = sorted({update.learner.learner_id for update in updates if update.learner is not None})
    opened = sorted(filter(is_open, updates), key=lambda update: update.opened_sequence)
    live = [t for t in known if t.status in LIVE]
    ready = [t for t in known if t.status is TrajectoryStatus.REWARDED and t.purpose is Purpose.TRAIN]
    return {
        "claimable": [
            name
            for name, members in groups.items()
            if len({t.sample_index for t in members}) >= max(t.group_expected for t in members)
            and not any(t.status in PENDING for t in members)
            and any(t in ready for t in members)
        ],
        "members": {
            name: sorted(members, key=lambda t: (t.sample_index, t.generated_offset))
            for name, members in groups.items()
        },
        "by_version": _counted((t.policies[0].version, t.status) for t in live),
        "ready": _tallied(tuple(ref.version for ref in t.policies) for t in ready),
        "live": len(live),
        "with_span": {
            version: [t for t in live if any(ref.version == version for ref in t.policies)] for version in range(6)
        },
        "open": {
            name: [update for update in opened if update.learner is not None and update.learner.learner_id == name]
            for name in learners
        },
        "all_open": opened,
        "committed": {
            name: sum(
                update.status is UpdateStatus.COMMITTED
                for update in updates
                if update.learner is not None and update.learner.learner_id == name
            )
            for name in learners
        },
        "last_committed": [
            sorted(
                (update for update in updates if update.status is UpdateStatus.COMMITTED),
                key=lambda update: update.commit_order,
            )[-count:]
            for count in range(1, 8)
        ],
    }


def _tallied(keys: Any) -> list[Any]:
    listed = sorted(keys)
    return [(key, listed.count(key)) for key in sorted(set(listed))]


def _counted(keys: Any) -> list[Any]:
    return [(*key, count) for key, count in _tallied(keys)]


def write_changes(topic: Topic, ledger: Ledger) -> None:
    """Write what changed since the last batch to the ledger topic, and keep the batch."""
    topic.extend(ledger.changes())
    ledger.journal.keep()


def compacted(topic: Topic) -> Topic:
    """The last record of each key, without tombstones, in an order that nothing may rely on."""
    last = dict(topic)
    order = sorted(last, key=lambda key: hashlib.sha256(key).digest())
    return [(key, last[key]) for key in order if last[key] is not None]


def restored(topic: Topic, partition: int, topic_partitions: int) -> Ledger:
    """A ledger from the records of the ledger topic."""
    ledger = Ledger(partition, topic_partitions)
    for key, value in topic:
        run_id, kind, name = parse_key(key)
        restore_row(ledger.run(run_id), kind, name, value)
    return ledger
