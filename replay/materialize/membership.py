"""Which members of a group are where: in a rank's rows, in another rank's or step's, or not consumed at all. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rollbook.replay.bundle.convention import RewardOnly
from rollbook.replay.materialize.checks import RankStep
from rollbook.replay.materialize.evidence import TrajectoryEvidence
from rollbook.schemas.records.payload import Cohort, RecordedRow

Groups = Mapping[str, int]
"""A group's index in a bundle, by its id."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Of one update. `sizes`: rows with a reward of each group over all steps and ranks, each row once. `names_absent`:
    whether a bundle can name members that it has no row of."""

    sizes: Mapping[str, int]
    trajectories: Mapping[str, TrajectoryEvidence]
    names_absent: bool

    @classmethod
    def of(
        cls, steps: Sequence[Sequence[RankStep]], trajectories: Mapping[str, TrajectoryEvidence], *, names_absent: bool
    ) -> "Membership":
        every = (row for found in chain.from_iterable(steps) for row in found.rows)
        rows = (row.row for row in every if row.trajectory.reward is not None)
        sizes = Counter(group for group, _, _ in {(row.group_id, row.trajectory_id, row.segment) for row in rows})
        return cls(sizes, trajectories, names_absent)

    def absent(
        self, cohorts: Sequence[Cohort], rows: Sequence[RecordedRow], groups: Groups
    ) -> tuple[RewardOnly, ...] | None:
        """The members of the rows' cohorts, as normalised together, that have no row among them; their raw rewards as
        the log has them, where it was read."""
        if not self.names_absent:
            return None
        here, of_groups = {row.trajectory_id for row in rows}, {row.group_id for row in rows}
        of_cohorts = {cohort.cohort_id for cohort in cohorts if cohort.group_id in of_groups}
        found = {
            member.trajectory_id: RewardOnly(
                sample_id=member.trajectory_id,
                group_index=groups[cohort.group_id],
                raw_reward=self._raw_reward(member.trajectory_id, member.raw_reward),
            )
            for cohort in cohorts
            if cohort.cohort_id in of_cohorts
            for member in cohort.members
            if member.trajectory_id not in here
        }
        return tuple(found.values()) or None

    def is_part(self, rows: Sequence[RecordedRow], absent: Sequence[RewardOnly], groups: Groups, size: int) -> bool:
        """Whether a group that is whole over the update is not whole in these rows, so that nobody can normalise it
        from them again."""
        names = {index: name for name, index in groups.items()}
        here = Counter(row.group_id for row in rows)
        known = here + Counter(names[member.group_index] for member in absent)
        return any(known[group] < size == self.sizes[group] for group in here)

    def _raw_reward(self, trajectory_id: str, recorded: float) -> float:
        evidence = self.trajectories.get(trajectory_id)
        return recorded if evidence is None else evidence.raw_reward
