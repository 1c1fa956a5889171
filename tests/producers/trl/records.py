"""What the topics hold of one run."""

from collections import Counter
from collections.abc import Sequence

from rollbook.infra.settings import Settings, Topic
from rollbook.producers.reading.ledger_topic import read_states
from rollbook.schemas.codec import decode
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.ledger import (
    PolicyState,
    RunHead,
    TrajectoryState,
    TrajectoryStatus,
    UpdateState,
    UpdateStatus,
)
from rollbook.schemas.records.update import Commit
from rollbook.tests.producers.world import read_topic


def records(settings: Settings, topic: Topic, run_id: str) -> list[object]:
    """Lifecycle records, decisions or recordings, in the order of the log."""
    keyed = topic is not Topic.PAYLOADS  # which are by trajectory and update
    seen = [one for one in read_topic(settings, topic) if one.value]
    found = [decode(one.value) for one in seen if not keyed or one.key == run_id.encode()]
    return [one for one in found if _run_of(one) == run_id]


def decisions(settings: Settings, run_id: str) -> list[Decision]:
    return [one for one in records(settings, Topic.DECISIONS, run_id) if isinstance(one, Decision)]


def accepted(found: Sequence[Decision], record_type: str) -> int:
    return sum(one.record_type == record_type and one.outcome is Outcome.ACCEPTED for one in found)


def check_consistent(settings: Settings, run_id: str) -> None:
    """Nothing was trained twice in what stands, no id came twice, nothing is left open, and the active policy holds no
    undone update."""
    states = read_states(settings, run_id, frozenset({"run", "trajectory", "update", "policy"}), deadline_s=20)
    updates = {one.update_id: one for one in states if isinstance(one, UpdateState)}
    standing = {name for name, one in updates.items() if one.status is UpdateStatus.COMMITTED}
    assert {one.status for one in updates.values()} <= {
        UpdateStatus.COMMITTED,
        UpdateStatus.ABORTED,
        UpdateStatus.ROLLED_BACK,
    }
    commits = [one for one in records(settings, Topic.LIFECYCLE, run_id) if isinstance(one, Commit)]
    assert len({one.update_id for one in commits}) == len(commits)
    rows: Counter[str] = Counter()
    for one in commits:
        if one.update_id in standing:
            rows.update({name for step in one.steps for name in step.trajectory_ids})
    assert set(rows.values()) == {1}
    trajectories = [one for one in states if isinstance(one, TrajectoryState)]
    assert {one.trajectory_id for one in trajectories if one.status is TrajectoryStatus.CONSUMED} == set(rows)
    found = decisions(settings, run_id)
    assert [(one.record_type, one.reason) for one in found if one.outcome is Outcome.REJECTED or one.violation] == []
    assert sum(one.record_type == "Generated" for one in found) == len(trajectories)
    (head,) = (one for one in states if isinstance(one, RunHead))
    policies = {one.version: one for one in states if isinstance(one, PolicyState)}
    assert head.active is not None
    assert not policies[head.active.version].orphaned
    assert head.active.version == max(policies)


def _run_of(record: object) -> str:
    header = getattr(record, "header", record)
    return str(getattr(header, "run_id", ""))
