"""What two runs call by the same name: a task's row, by the task, which of its groups in the update, and which sample.

Ids of trajectories and groups are a run's own. Where an update has several groups of one task, the first of one run is
held against the first of the other, in the order in which the recordings have their rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rollbook.replay.materialize.checks import Row, rank_step
from rollbook.replay.materialize.draft import sample_id_of
from rollbook.replay.materialize.evidence import TrajectoryEvidence, UpdateEvidence
from rollbook.schemas.records.payload import Cohort
from rollbook.schemas.records.rollout import Segment


@dataclass(frozen=True, slots=True)
class TaskRow:
    """`group`: which group of the task in the update, from 0; `again`: which trajectory of the same sample index there,
    from 0."""

    prompt_hash: str
    dataset: str
    row: int
    group: int
    sample_index: int
    again: int
    segment: int

    def __str__(self) -> str:
        """For people."""
        parts = [f"{self.dataset} row {self.row}", f"group {self.group}", f"sample {self.sample_index}"]
        parts += [f"again {self.again}"] * bool(self.again) + [f"segment {self.segment}"] * bool(self.segment)
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class CohortOf:
    """Rewards that were normalised together: of these rows of the update, and of members that have no row in it."""

    rows: frozenset[TaskRow]
    others: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.rows) + len(self.others)


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """A row of an update as its run has it. `cohort` is None where it has no reward; `recorded`: its place in the
    recording that the update's bundle has it from."""

    sample_id: str
    trajectory: TrajectoryEvidence
    segment: int
    cohort: CohortOf | None
    recorded: str

    @property
    def record(self) -> Segment:
        return self.trajectory.generated.record.segments[self.segment]

    @property
    def task_id(self) -> str:
        return self.trajectory.generated.record.task.task_id


def rows_of(evidence: UpdateEvidence) -> dict[TaskRow, TrainedRow]:
    """Every row of an update, once, in the order of the recordings: where it first counted in a loss, else the first
    of all."""
    steps = [rank_step(one, evidence.trajectories) for ranks in evidence.recordings for one in ranks]
    names = _names(row for step in steps for row in step.rows)
    found: dict[TaskRow, TrainedRow] = {}
    active: dict[TaskRow, bool] = {}
    for step in steps:
        for row in step.rows:
            name = replace(names[row.row.trajectory_id], segment=row.row.segment)
            if name not in found or (row.active and not active[name]):
                active[name] = row.active
                cohort = _cohort(row.row.trajectory_id, step.recording.step.cohorts, names)
                found[name] = TrainedRow(sample_id_of(row), row.trajectory, row.row.segment, cohort, row.place)
    return found


def _names(rows: Iterable[Row]) -> dict[str, TaskRow]:
    """Of each trajectory the name of its first segment."""
    groups: dict[tuple[str, str, int], dict[str, int]] = {}
    names: dict[str, TaskRow] = {}
    taken: set[TaskRow] = set()
    for row in rows:
        record = row.trajectory.generated.record
        task, identity = record.task, record.identity
        if identity.trajectory_id in names:
            continue
        of_task = groups.setdefault((task.prompt_hash, task.dataset, task.row), {})
        group = of_task.setdefault(identity.group_id, len(of_task))
        name = TaskRow(task.prompt_hash, task.dataset, task.row, group, identity.sample_index, again=0, segment=0)
        while name in taken:
            name = replace(name, again=name.again + 1)
        taken.add(name)
        names[identity.trajectory_id] = name
    return names


def _cohort(trajectory_id: str, cohorts: Sequence[Cohort], names: Mapping[str, TaskRow]) -> CohortOf | None:
    own = next((one for one in cohorts if any(it.trajectory_id == trajectory_id for it in one.members)), None)
    if own is None:
        return None
    members = {
        it.trajectory_id: it.raw_reward for one in cohorts if one.cohort_id == own.cohort_id for it in one.members
    }
    return CohortOf(
        rows=frozenset(names[name] for name in members if name in names),
        others=tuple(sorted(reward for name, reward in members.items() if name not in names)),
    )
