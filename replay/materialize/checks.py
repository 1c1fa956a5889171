"""Where log and recording contradict each other in one step: each contradiction names both places. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rollbook.replay.materialize.evidence import Recording, TrajectoryEvidence
from rollbook.schemas.digests import FloatArray, floats_of, mask_of
from rollbook.schemas.records.payload import ArrayName, Cohort, CohortMember, OldSource, RecordedRow
from rollbook.schemas.records.update import CommitStep

_OF_THE_STEP = ("world", "config", "policy", "conventions")
_OF_A_PLAIN_SUM = (*_OF_THE_STEP, "normalizer")
"""What all ranks of a step have in common; under a named convention each may divide by what its own rows show."""
_MAX_PLACES = 4


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a recording that is no padding: where it is, its tokens [start, end) in the arrays, its trajectory."""

    place: str
    row: RecordedRow
    start: int
    trajectory: TrajectoryEvidence

    @property
    def end(self) -> int:
        return self.start + len(self.row.loss_mask)

    @property
    def active(self) -> bool:
        """Whether any of its tokens counts in the loss."""
        return any(self.row.loss_mask)


@dataclass(frozen=True, slots=True)
class RankStep:
    """One step as one rank recorded it: the recording, and its rows without padding, in order."""

    recording: Recording
    rows: tuple[Row, ...]

    @property
    def rank(self) -> int:
        return self.recording.step.rank


def rank_step(recording: Recording, trajectories: Mapping[str, TrajectoryEvidence]) -> RankStep:
    """A recording with what the log says of its rows."""
    rows, start = [], 0
    for index, row in enumerate(recording.step.rows):
        if not row.padding:
            place = f"{recording.place} rows.{index} ({row.trajectory_id})"
            rows.append(Row(place, row, start, trajectories[row.trajectory_id]))
        start += len(row.loss_mask)
    return RankStep(recording, tuple(rows))


def contradictions(ranks: Sequence[RankStep], step: CommitStep, commit_place: str) -> Iterator[str]:
    """Every contradiction between a step's recordings, one a rank, and the log, and between the ranks."""
    for found in ranks:
        yield from _of_rank(found.recording, found.rows, step, commit_place)
    yield from _between_ranks(ranks, step, commit_place)


def _of_rank(recording: Recording, rows: Sequence[Row], step: CommitStep, commit_place: str) -> Iterator[str]:
    yield from _membership(recording, rows, step, commit_place)
    yield from _cohorts(recording, rows)
    old = _array(recording, ArrayName.OLD_LOG_PROBS) if recording.step.old_source is OldSource.ROLLOUT else None
    behavior = _array(recording, ArrayName.BEHAVIOR_LOG_PROBS)
    for row in rows:
        form = list(_form(row))
        yield from form
        if not form:
            yield from _mask(row)
            yield from _log_probs(row, "behavior_log_probs", behavior)
            yield from _log_probs(row, "old_log_probs, said to be the rollout's,", old)


def _between_ranks(ranks: Sequence[RankStep], step: CommitStep, commit_place: str) -> Iterator[str]:
    """All that the Commit trains is in some rank's recording, and the ranks recorded one and the same step."""
    rows = [row.row for found in ranks for row in found.rows]
    places = ", ".join(found.recording.place for found in ranks[:_MAX_PLACES])
    have = "has" if len(ranks) == 1 else "have"
    for missing in sorted(set(step.trajectory_ids) - {row.trajectory_id for row in rows}):
        yield f"{commit_place} trains {missing} in step {step.step_id}, {places} {have} no row of it"
    first = ranks[0].recording
    conventions = first.step.conventions
    for found in ranks[1:]:
        for name in _OF_A_PLAIN_SUM if conventions is None or conventions.loss is None else _OF_THE_STEP:
            ours, theirs = getattr(first.step, name), getattr(found.recording.step, name)
            if ours != theirs:
                yield f"{found.recording.place} has {name} {theirs!r}, {first.place} has {ours!r}"
    world = first.step.world
    if world.dp == len(ranks) > 1 and world.tp == world.pp == world.cp == 1:
        for (trajectory_id, segment), count in Counter((row.trajectory_id, row.segment) for row in rows).items():
            if count > 1:
                yield f"{count} of the data-parallel ranks {places} have {trajectory_id} segment {segment}"


def _membership(recording: Recording, rows: Sequence[Row], step: CommitStep, commit_place: str) -> Iterator[str]:
    """Which rows may be there: those that the Commit trains in this step; and with a zero loss mask, those that the
    update lost or dropped, since they stay members of their cohort."""
    trained = set(step.trajectory_ids)
    for row in rows:
        if row.row.trajectory_id not in trained and row.active:
            why = row.trajectory.refused or f"step {step.step_id} of {commit_place} does not name it"
            yield f"{row.place} counts in the loss, but {why}"
    for (trajectory_id, segment), count in Counter((row.row.trajectory_id, row.row.segment) for row in rows).items():
        if count > 1:
            yield f"{recording.place} has {count} rows of {trajectory_id} segment {segment}"
    for index, padding in enumerate(recording.step.rows):
        if padding.padding and any(padding.loss_mask):
            yield f"{recording.place} rows.{index} is padding, but its loss mask is active"


def _cohorts(recording: Recording, rows: Sequence[Row]) -> Iterator[str]:
    """Rewards were normalised over whole groups, and from the rewards that the log has."""
    members: dict[str, tuple[str, Cohort, CohortMember]] = {}
    for index, cohort in enumerate(recording.step.cohorts):
        place = f"{recording.place} cohorts.{index}"
        for member in cohort.members:
            if member.trajectory_id in members:
                yield f"{place} has {member.trajectory_id}, which is a member of another cohort or twice of this one"
            members[member.trajectory_id] = (place, cohort, member)
    for row in rows:
        found = members.get(row.row.trajectory_id)
        if row.trajectory.reward is None:
            if found is not None:
                yield f"{found[0]} has {row.row.trajectory_id}, which the log has no reward of"
            continue
        if found is None:
            yield f"{row.place} is a member of no cohort of {recording.place}"
            continue
        place, cohort, member = found
        if cohort.group_id != row.row.group_id:
            yield f"{place} is of group {cohort.group_id}, {row.place} is of group {row.row.group_id}"
        logged = row.trajectory.raw_reward
        if np.float32(member.raw_reward) != np.float32(logged):
            yield (
                f"{place} has raw reward {member.raw_reward!r} of {row.row.trajectory_id}, "
                f"{row.trajectory.reward.place} has {logged!r}"
            )


def _form(row: Row) -> Iterator[str]:
    """Group, segment and lengths are those of Generated."""
    fact = row.trajectory.generated
    if row.row.group_id != fact.record.identity.group_id:
        yield f"{row.place} is of group {row.row.group_id}, {fact.place} of group {fact.record.identity.group_id}"
    if row.row.segment >= len(fact.record.segments):
        yield f"{row.place} is of segment {row.row.segment}, {fact.place} has {len(fact.record.segments)}"
        return
    segment = fact.record.segments[row.row.segment]
    recorded = (row.row.prompt_length, len(row.row.loss_mask))
    logged = (segment.prompt_length, segment.response_length)
    if recorded != logged:
        yield (
            f"{row.place} has {recorded[0]} prompt and {recorded[1]} response tokens, {fact.place} has {logged[0]} and "
            f"{logged[1]}"
        )
    if not set(row.row.loss_mask) <= {0, 1}:
        yield f"{row.place}: its loss mask has bytes other than 0 and 1"


def _mask(row: Row) -> Iterator[str]:
    segment = row.trajectory.segments[row.row.segment]
    wrong = np.flatnonzero(mask_of(row.row.loss_mask) & ~segment.action_mask)
    if wrong.size:
        yield f"{row.place} counts token {wrong[0]} in the loss, at which {segment.place} says that no action was taken"


def _log_probs(row: Row, name: str, values: FloatArray | None) -> Iterator[str]:
    """Log-probs that are said to be the worker's are the worker's, to the bit, wherever it acted."""
    segment = row.trajectory.segments[row.row.segment]
    if values is None or segment.log_probs is None or row.end > len(values):
        return
    recorded = values[row.start : row.end]
    wrong = np.flatnonzero((recorded != segment.log_probs) & segment.action_mask)
    if wrong.size:
        at = int(wrong[0])
        yield (
            f"{row.place}: {name} at token {at} are {float(recorded[at])!r}, {segment.place} has "
            f"{float(segment.log_probs[at])!r}"
        )


def _array(recording: Recording, name: ArrayName) -> FloatArray | None:
    data = next((array.data for array in recording.step.arrays if array.name is name), None)
    return None if data is None or len(data) % 4 else floats_of(data)
