"""What a comparison of two runs found, as typed records."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rollbook.replay.bundle.model import StageId, Tolerance
from rollbook.replay.diff.tasks import TaskRow


class What(StrEnum):
    """What is compared, in the order in which one leads to the other."""

    TOKENS = "tokens"
    REWARD_RAW = StageId.REWARD_RAW.value
    COHORT = "cohort"
    REWARD_POST_PROCESS = StageId.REWARD_POST_PROCESS.value
    ADVANTAGE_KL = StageId.ADVANTAGE_KL.value
    ADVANTAGE_ESTIMATE = StageId.ADVANTAGE_ESTIMATE.value
    LOSS_POLICY = StageId.LOSS_POLICY.value
    LOSS_VALUE = StageId.LOSS_VALUE.value


class NotCompared(StrEnum):
    """Why something of one run has nothing in the other to be held against."""

    NO_SUCH_UPDATE = "no such update"
    CANNOT_BE_READ = "cannot be read"
    NO_SUCH_ROW = "no such row"
    OTHER_STEP = "in another step"
    NO_SUCH_STEP = "no such step"
    OTHER_RANKS = "other ranks"
    NOT_RECORDED = "not recorded"


class DiffVerdict(StrEnum):
    """`same` only when all of both runs was compared."""

    SAME = "same"
    DIFFERENT = "different"
    NOT_COMPARABLE = "not comparable"


Value = float | str | None


@dataclass(frozen=True, slots=True)
class Side:
    """One run's value, and where it is from: its update, its step, rank and sample where it is of one, and the record
    that has it. None: there is none."""

    run_id: str
    update_id: str
    step: str
    rank: int | None
    sample_id: str | None
    place: str
    value: Value


@dataclass(frozen=True, slots=True)
class Difference:
    """Two values that are not the same. `number`: of the update in the order of the commits, from 1. `row` is None for
    a scalar of a whole step; `token_offset` counts within the response, or the prompt where `field` says so."""

    what: What
    field: str
    number: int
    row: TaskRow | None
    token_offset: int | None
    tolerance: Tolerance | None
    a: Side
    b: Side


@dataclass(slots=True)
class Tally:
    """How much of one thing was compared, how much of it differs, and the first that does."""

    values: int = 0
    differing: int = 0
    first: Difference | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """Something of one run that was not compared. `number` as in a difference."""

    reason: NotCompared
    number: int
    run_id: str
    update_id: str
    text: str


@dataclass(frozen=True, slots=True)
class DiffReport:
    """The answer. `updates` and `rows`: how many were held against each other; `left`: the first of what was not, and
    `left_counts` of how much there is of each kind; `undone`: updates that a later start of their learner rolled back,
    which are no part of either run."""

    run_a: str
    run_b: str
    updates: int
    rows: int
    first: Difference | None
    tallies: Mapping[What, Tally]
    left: tuple[Left, ...]
    left_counts: Mapping[NotCompared, int]
    undone: int

    @property
    def values(self) -> int:
        return sum(tally.values for tally in self.tallies.values())

    @property
    def verdict(self) -> DiffVerdict:
        if self.first is not None:
            return DiffVerdict.DIFFERENT
        return DiffVerdict.SAME if self.values and not self.left_counts else DiffVerdict.NOT_COMPARABLE


_MOST_LEFT = 100


@dataclass(slots=True)
class Findings:
    """A report in the making; bounded, whatever the runs' length."""

    tallies: dict[What, Tally] = field(default_factory=lambda: {what: Tally() for what in What})
    first: Difference | None = None
    left: list[Left] = field(default_factory=list)
    left_counts: Counter[NotCompared] = field(default_factory=Counter)
    updates: int = 0
    rows: int = 0
    undone: int = 0

    def compared(self, what: What, values: int, differing: int = 0, first: Difference | None = None) -> None:
        tally = self.tallies[what]
        tally.values += values
        tally.differing += differing
        if first is not None:
            tally.first = tally.first or first
            self.first = self.first or first

    def leave(self, left: Left) -> None:
        self.left_counts[left.reason] += 1
        if len(self.left) < _MOST_LEFT:
            self.left.append(left)

    def report(self, run_a: str, run_b: str) -> DiffReport:
        return DiffReport(
            run_a,
            run_b,
            self.updates,
            self.rows,
            self.first,
            self.tallies,
            tuple(self.left),
            self.left_counts,
            self.undone,
        )
