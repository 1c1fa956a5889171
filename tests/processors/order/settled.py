"""What a history has ended in: everything that a run's state says, but for what numbers the records on the way.

Left out are revisions, offsets, sequences and epochs; what only recognises a record that comes again (content digests
and first answers); and what is over and below the floor, which is as good as forgotten: the next floor forgets it.
"""

from typing import TypeAlias

from rollbook.processors.ledger.store import Run, behavior_version, is_open
from rollbook.processors.lifecycle import LIVE, TRANSITIONS
from rollbook.schemas.records.ledger import CheckpointState, TrajectoryState, UpdateState

Settled: TypeAlias = tuple[tuple[str, object], ...]


def settled(run: Run) -> Settled:
    """The end of a run, as (thing, what it is), in one order."""
    head = run.head
    return (
        ("active policy", (str(head.active), head.active_orphaned)),
        ("floor", head.floor),
        ("configuration", (head.closed, head.config_version, _limits(run))),
        *((f"contract {row.contract_hash}", True) for row in run.contracts.values()),
        *((f"trajectory {row.trajectory_id}", _trajectory(row)) for row in _that_count(run)),
        *((f"update {row.update_id}", _update(row)) for row in run.updates.values()),
        *((f"learner {row.learner_id}", (row.incarnation, row.fenced)) for row in run.learners.values()),
        *((f"commits of {row.learner_id}", _in_order(run, row.learner_id)) for row in run.learners.values()),
        *((f"checkpoint {row.checkpoint_id}", _checkpoint(run, row)) for row in run.checkpoints.values()),
        *(
            (
                f"policy {row.version}",
                (
                    (row.artifact.hash, row.source_version, row.update_ids, row.depth, row.ordinal),
                    (row.committed, row.activated, row.orphaned, row.abandoned),
                ),
            )
            for row in run.policies.values()
        ),
        *(
            (f"worker {row.worker_id}", (row.incarnation, row.report_seq, str(row.serves), row.failure))
            for row in run.workers.values()
        ),
        *(
            (f"{row.record_type} waiting for {row.subject_id}", (row.content, row.apart, row.artifact_hash))
            for row in run.pending.values()
        ),
        ("live", (run.trajectories.live, tuple(run.trajectories.by_version()))),
        ("ready", tuple(run.trajectories.ready())),
        ("claimable", tuple(run.trajectories.claimable_groups())),
    )


def _limits(run: Run) -> object:
    found = run.configs.get(run.head.config_version)
    return None if found is None else str(found.but(content=""))


def _that_count(run: Run) -> list[TrajectoryState]:
    rows = run.trajectories.values()
    return [row for row in rows if row.status in LIVE or behavior_version(row) >= run.head.floor]


def _trajectory(row: TrajectoryState) -> object:
    """Of what is out of use for good, only that it is: what came too late to change it may still have told of it."""
    if not any(state is row.status for state, _ in TRANSITIONS):
        return (row.status.value,)
    return (
        row.status.value,
        (row.group_id, row.sample_index, row.group_expected, row.apart, row.purpose.value),
        (str(row.policies), row.active_tokens, row.evidence_digest),
        row.reward_content,
        (row.update_id, row.lag, row.admitted_ratio),
    )


def _update(row: UpdateState) -> object:
    return (
        row.status.value,
        None if row.learner is None else row.learner.learner_id,
        row.config_version if is_open(row) else None,
        (tuple(sorted(row.held)), tuple(sorted(row.trained)), row.in_doubt),
        tuple(sorted(one.rank for one in row.sealed)),
    )


def _committed(run: Run, learner_id: str) -> list[UpdateState]:
    mine = (u for u in run.updates.values() if u.learner is not None and u.learner.learner_id == learner_id)
    return sorted((u for u in mine if u.commit_order), key=lambda u: u.commit_order)


def _in_order(run: Run, learner_id: str) -> object:
    return tuple(update.update_id for update in _committed(run, learner_id))


def _checkpoint(run: Run, row: CheckpointState) -> object:
    contained = (u.update_id for u in _committed(run, row.learner_id) if u.commit_order <= row.commit_order)
    return (row.learner_id, row.digest, tuple(contained), row.orphaned)


def difference(one: Settled, other: Settled) -> str:
    """The first thing that two ends disagree on."""
    ours, theirs = dict(one), dict(other)
    for thing in [*ours, *theirs]:
        if ours.get(thing) != theirs.get(thing):
            return f"{thing}: {ours.get(thing)} or {theirs.get(thing)}"
    return ""
