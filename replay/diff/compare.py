"""Two updates held against each other: tokens bit by bit, cohorts as they are, and numbers as replay compares them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import StageId, Tolerance
from rollbook.replay.diff.result import Difference, Findings, Left, NotCompared, Side, Value, What
from rollbook.replay.diff.tasks import CohortOf, TaskRow, TrainedRow
from rollbook.replay.diff.tokens import first_difference, same_tokens
from rollbook.replay.diff.update import BundleOf, UpdateOf
from rollbook.replay.engine.compare import compare
from rollbook.replay.engine.run import Run, run_of
from rollbook.replay.history.source import LogSource
from rollbook.replay.stages.stage import Output, Stage, Unit
from rollbook.replay.stages.table import STAGES

_STAGES = [stage for stage in STAGES.values() if not stage.structural]
_ALONE = np.asarray([1], np.int64)


@dataclass(frozen=True, slots=True)
class _Of:
    """A run's update, and of it a bundle and rank where a value is in one."""

    update: UpdateOf
    bundle: BundleOf | None = None
    rank: int | None = None

    @property
    def ranked(self) -> Bundle:
        assert self.bundle is not None, "of a bundle"
        assert self.rank is not None, "of a rank"
        return self.bundle.ranks[self.rank]

    def side(self, name: TaskRow | None, place: str, value: Value) -> Side:
        sample_id = None if name is None else self.update.rows[name].sample_id
        step = "" if self.bundle is None else self.bundle.step
        return Side(self.update.run_id, self.update.update_id, step, self.rank, sample_id, place, value)

    def place_of(self, stage: StageId, name: TaskRow | None) -> str:
        """A raw reward is the log's, all other numbers are the recording's."""
        if stage is StageId.REWARD_RAW and name is not None:
            return _rewarded(self.update.rows[name])
        assert self.bundle is not None, "of a bundle"
        if name is not None and not self.bundle.step:
            return self.update.rows[name].recorded
        return self.bundle.places.get(self.rank or 0, "")


@dataclass(frozen=True, slots=True)
class _Shared:
    """Rows that a rank of one run and a rank of the other have, and where."""

    a: _Of
    b: _Of
    rows: list[TaskRow]
    at: list[tuple[int, int]]

    def alike(self) -> "_Shared":
        """Those that have as many tokens."""
        lengths = [[sample.response_length for sample in one.ranked.index.samples] for one in (self.a, self.b)]
        same = [n for n, (ours, theirs) in enumerate(self.at) if lengths[0][ours] == lengths[1][theirs]]
        return _Shared(self.a, self.b, [self.rows[n] for n in same], [self.at[n] for n in same])

    def runs(self) -> tuple[Run, Run]:
        ours, theirs = zip(*self.at, strict=True)
        return run_of(self.a.ranked, tuple(ours), np), run_of(self.b.ranked, tuple(theirs), np)


class Pair:
    """The updates of two runs that are the `number`-th of each, from 1, and what is found of them."""

    def __init__(
        self, number: int, a: UpdateOf, b: UpdateOf, logs: tuple[LogSource, LogSource], findings: Findings
    ) -> None:
        self._number, self._a, self._b, self._logs, self._found = number, a, b, logs, findings
        self._rows = [name for name in a.rows if name in b.rows]

    def compare(self) -> None:
        """All of it, in the order in which one thing leads to another."""
        self._found.updates += 1
        self._found.rows += len(self._rows)
        for ours, theirs in ((self._a, self._b), (self._b, self._a)):
            for name in (one for one in ours.rows if one not in theirs.rows):
                self._leave(NotCompared.NO_SUCH_ROW, ours, f"sample {ours.rows[name].sample_id}, {name}")
        for name in self._rows:
            self._tokens(name)
        for name in self._rows:
            self._scored(name)
        for at, (a, b) in enumerate(self._bundles()):
            shared = self._shared(a, b)
            if a.ranks.keys() != b.ranks.keys():
                what = f"scalars of step {a.step} on ranks {sorted(a.ranks)}, the other run has {sorted(b.ranks)}"
                self._leave(NotCompared.OTHER_RANKS, self._a, what)
            for stage in _STAGES:
                for one in shared:
                    self._stage_of_rows(stage, one)
                self._stage_of_all(stage, a, b)
                if at == 0 and stage.id is StageId.REWARD_RAW:
                    for name in self._rows:
                        self._cohort(name)

    def _bundles(self) -> Iterator[tuple[BundleOf, BundleOf]]:
        if self._a.whole is not None and self._b.whole is not None:
            yield self._a.whole, self._b.whole
        for a, b in zip_longest(self._a.steps, self._b.steps):
            if a is not None and b is not None:
                yield a, b
            else:
                update, step = (self._b, b) if a is None else (self._a, a)
                self._leave(NotCompared.NO_SUCH_STEP, update, f"step {step.step}")

    def _shared(self, a: BundleOf, b: BundleOf) -> list[_Shared]:
        """By ranks; a row that several ranks of a run have is taken from the first."""
        found: dict[tuple[int, int], _Shared] = {}
        places = a.located(), b.located()
        for name in self._rows:
            ours = places[0].get(self._a.rows[name].sample_id)
            theirs = places[1].get(self._b.rows[name].sample_id)
            if ours is None or theirs is None:
                if ours is not theirs:
                    update, step = (self._b, b) if ours is None else (self._a, a)
                    self._leave(
                        NotCompared.OTHER_STEP, update, f"sample {update.rows[name].sample_id} in step {step.step}"
                    )
                continue
            ranks = ours[0], theirs[0]
            if ranks not in found:
                found[ranks] = _Shared(_Of(self._a, a, ranks[0]), _Of(self._b, b, ranks[1]), [], [])
            found[ranks].rows.append(name)
            found[ranks].at.append((ours[1], theirs[1]))
        return list(found.values())

    def _tokens(self, name: TaskRow) -> None:
        a, b = self._a.rows[name], self._b.rows[name]
        if same_tokens(a, b):
            self._found.compared(What.TOKENS, 1)
            return
        first = None
        if self._found.tallies[What.TOKENS].first is None:
            found = first_difference(self._logs[0], a, self._logs[1], b)
            sides = self._sides(name, (_generated(a), found.a), (_generated(b), found.b))
            first = Difference(What.TOKENS, found.field, self._number, name, found.offset, None, *sides)
        self._found.compared(What.TOKENS, 1, 1, first)

    def _scored(self, name: TaskRow) -> None:
        """A row that only one run has a reward of; bundles hold 0 for it in the other."""
        a, b = self._a.rows[name], self._b.rows[name]
        values = [None if row.trajectory.reward is None else row.trajectory.raw_reward for row in (a, b)]
        if (values[0] is None) != (values[1] is None):
            sides = self._sides(name, (_rewarded(a), values[0]), (_rewarded(b), values[1]))
            first = Difference(What.REWARD_RAW, "raw_rewards", self._number, name, None, None, *sides)
            self._found.compared(What.REWARD_RAW, 1, 1, first)

    def _cohort(self, name: TaskRow) -> None:
        a, b = self._a.rows[name], self._b.rows[name]
        found = _cohorts_differ(a.cohort, b.cohort)
        if found is None:
            self._found.compared(What.COHORT, 1)
            return
        field, ours, theirs = found
        sides = self._sides(name, (a.recorded, ours), (b.recorded, theirs))
        self._found.compared(What.COHORT, 1, 1, Difference(What.COHORT, field, self._number, name, None, None, *sides))

    def _stage_of_rows(self, stage: Stage, shared: _Shared) -> None:
        for unit, part in ((Unit.SAMPLE, shared), (Unit.TOKEN, shared.alike())):
            # What the index has besides expected.json is the same number.
            outputs = [output for output in stage.outputs if output.unit is unit and output.index is None]
            if outputs and part.rows:
                runs = part.runs()
                for output in outputs:
                    self._output(stage, output, part, runs)

    def _output(self, stage: Stage, output: Output, shared: _Shared, runs: tuple[Run, Run]) -> None:
        ours, theirs = (run.recorded(output) for run in runs)
        if ours is None or theirs is None:
            self._not_recorded(stage, output, shared.a, shared.b, ours is None, theirs is None)
            return
        tolerance = _tolerance(stage, shared.a.ranked)
        found = compare(output, ours, theirs, tolerance, runs[0].sample_ids, runs[0].ends)
        first = None
        if (point := found.first) is not None:
            assert point.sample_id is not None, "a row's"
            name = shared.rows[runs[0].sample_ids.index(point.sample_id)]
            a = shared.a.side(name, shared.a.place_of(stage.id, name), point.expected)
            b = shared.b.side(name, shared.b.place_of(stage.id, name), point.actual)
            what = What(stage.id.value)
            first = Difference(what, output.field, self._number, name, point.token_offset, tolerance, a, b)
        self._found.compared(What(stage.id.value), found.values, found.diverging_values, first)

    def _stage_of_all(self, stage: Stage, a: BundleOf, b: BundleOf) -> None:
        """Scalars, rank by rank, where both have the same; the update's bundle has none."""
        outputs = [output for output in stage.outputs if output.unit is Unit.SCALAR]
        if a.ranks.keys() != b.ranks.keys():
            return
        for rank in a.ranks:
            for output in outputs:
                self._scalar(stage, output, _Of(self._a, a, rank), _Of(self._b, b, rank))

    def _scalar(self, stage: Stage, output: Output, a: _Of, b: _Of) -> None:
        assert output.expected is not None, "scalars are in expected.json"
        ours, theirs = output.expected(a.ranked.expected), output.expected(b.ranked.expected)
        if ours is None or theirs is None:
            self._not_recorded(stage, output, a, b, ours is None, theirs is None)
            return
        tolerance = _tolerance(stage, a.ranked)
        values = np.asarray([ours], np.float64), np.asarray([theirs], np.float64)
        found = compare(output, *values, tolerance, (), _ALONE)
        first = None
        if (point := found.first) is not None:
            sides = (
                one.side(None, one.place_of(stage.id, None), value)
                for one, value in ((a, point.expected), (b, point.actual))
            )
            first = Difference(What(stage.id.value), output.field, self._number, None, None, tolerance, *sides)
        self._found.compared(What(stage.id.value), 1, found.diverging_values, first)

    def _not_recorded(self, stage: Stage, output: Output, a: _Of, b: _Of, not_a: bool, not_b: bool) -> None:
        if not_a and not_b:
            return
        has = b if not_a else a
        step = has.bundle.step if has.bundle is not None else ""
        where = f"step {step}" if step else "the update"
        self._leave(NotCompared.NOT_RECORDED, has.update, f"{stage.id} {output.field} of {where}, rank {has.rank}")

    def _sides(self, name: TaskRow, a: tuple[str, Value], b: tuple[str, Value]) -> tuple[Side, Side]:
        return _Of(self._a).side(name, *a), _Of(self._b).side(name, *b)

    def _leave(self, reason: NotCompared, has: UpdateOf, text: str) -> None:
        self._found.leave(Left(reason, self._number, has.run_id, has.update_id, text))


def _tolerance(stage: Stage, bundle: Bundle) -> Tolerance:
    return bundle.manifest.comparison_policy.tolerances.get(stage.id, stage.tolerance)


def _cohorts_differ(a: CohortOf | None, b: CohortOf | None) -> tuple[str, Value, Value] | None:
    """What of two cohorts is not the same: their size, the rows in them, or the rewards of members without a row. The
    rewards of those with one are compared as rewards."""
    if a is None or b is None:
        return None if a is b else ("cohort", _size(a), _size(b))
    if a.size != b.size:
        return "members", a.size, b.size
    if a.rows != b.rows:
        return "members", _least(a.rows - b.rows), _least(b.rows - a.rows)
    for ours, theirs in zip(a.others, b.others, strict=True):
        if np.float32(ours) != np.float32(theirs):
            return "raw reward of a member without a row", ours, theirs
    return None


def _size(cohort: CohortOf | None) -> int | None:
    return None if cohort is None else cohort.size


def _least(rows: frozenset[TaskRow]) -> str | None:
    return min(map(str, rows), default=None)


def _generated(row: TrainedRow) -> str:
    return row.trajectory.generated.place


def _rewarded(row: TrainedRow) -> str:
    reward = row.trajectory.reward
    return row.trajectory.generated.place if reward is None else reward.place
