"""What the page shows of each comparison, reduced while it is made: no more than a picture can show is kept."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.model import StageId
from rollbook.replay.engine.engine import Compared
from rollbook.replay.engine.result import FieldResult
from rollbook.replay.stages.stage import Unit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MAX_ROWS = 160
MAX_COLUMNS = 160
_BINS = 60


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the map: its worst value. `token` is None for a value of a whole sample."""

    sample_id: str
    token: int | None
    expected: float
    actual: float
    error: float


Cells = tuple[tuple[Cell | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts between `edges`; one edge more than counts."""

    edges: Floats
    expected: Ints
    actual: Ints


@dataclass(frozen=True, slots=True)
class Picture:
    """One field. `cells` are rows of samples by columns of tokens, None where no token lies; empty for a scalar, whose
    values are `single`. A row stands for `samples_per_row` samples, a column for `tokens_per_column` tokens; `first` is
    the row and column in which the first diverging value lies, which need not be the worst there."""

    rank: int
    stage: StageId
    result: FieldResult
    cells: Cells
    samples_per_row: int
    tokens_per_column: int
    values: Histogram | None
    errors: Floats
    exact: int
    first: tuple[int, int] | None = None
    single: Cell | None = None

    @property
    def differs(self) -> bool:
        """Whether there is any error to draw."""
        return self.exact < self.result.values


@dataclass(slots=True)
class Gallery:
    """The pictures of one replay, in the order of the chain."""

    pictures: list[Picture] = field(default_factory=list)

    def watch(self, compared: Compared) -> None:
        """Take a comparison's picture."""
        self.pictures.append(picture_of(compared))


def picture_of(compared: Compared) -> Picture:
    """The picture of one comparison."""
    error = np.abs(compared.actual - compared.expected)
    error = np.where(np.isfinite(error), error, np.inf)
    cells: Cells = ()
    per_row, per_column, single = 1, 1, None
    if compared.result.unit is Unit.SCALAR:
        single = Cell("", None, float(compared.expected[0]), float(compared.actual[0]), float(error[0]))
    elif error.size:
        cells, per_row, per_column = _map(compared, error)
    finite = error[np.isfinite(error) & (error > 0)]
    return Picture(
        rank=compared.rank,
        stage=compared.stage,
        result=compared.result,
        cells=cells,
        samples_per_row=per_row,
        tokens_per_column=per_column,
        values=_histogram(compared.expected, compared.actual) if error.size > 1 else None,
        errors=_sample(np.log10(finite)),
        exact=int((error == 0).sum()),
        first=_first(compared, per_row, per_column),
        single=single,
    )


def _first(compared: Compared, per_row: int, per_column: int) -> tuple[int, int] | None:
    first = compared.result.first
    if first is None or first.sample_id is None:
        return None
    return compared.sample_ids.index(first.sample_id) // per_row, (first.token_offset or 0) // per_column


def _map(compared: Compared, error: Floats) -> tuple[Cells, int, int]:
    of_tokens = compared.result.unit is Unit.TOKEN
    ends = compared.ends if of_tokens else np.arange(1, error.size + 1)
    lengths = np.diff(ends, prepend=0)
    starts = ends - lengths
    per_row = -(-lengths.size // MAX_ROWS)
    per_column = max(1, -(-int(lengths.max(initial=1)) // MAX_COLUMNS))
    sample = np.repeat(np.arange(lengths.size), lengths)
    offset = np.arange(error.size) - starts[sample]
    columns = int(lengths.max(initial=1) - 1) // per_column + 1
    rows = (lengths.size - 1) // per_row + 1
    bins = (sample // per_row) * columns + offset // per_column
    # The worst of each cell: written in the order of the error, the largest comes last.
    worst = np.full(rows * columns, -1, np.int64)
    order = np.argsort(error, kind="stable")
    worst[bins[order]] = order

    def cell(at: int) -> Cell | None:
        if at < 0:
            return None
        token = int(offset[at]) if of_tokens else None
        name = compared.sample_ids[int(sample[at])]
        return Cell(name, token, float(compared.expected[at]), float(compared.actual[at]), float(error[at]))

    return tuple(tuple(map(cell, row)) for row in worst.reshape(rows, columns).tolist()), per_row, per_column


def _histogram(expected: Floats, actual: Floats) -> Histogram:
    finite = actual[np.isfinite(actual)]
    low, high = (float(bound(np.concatenate([[bound(expected)], finite]))) for bound in (np.min, np.max))
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    return Histogram(edges, np.histogram(expected, edges)[0], np.histogram(finite, edges)[0])


def _sample(logs: Floats) -> Floats:
    """Counts of errors by size: 10^-12 to 10^4 in steps of a fifth of a decade."""
    return np.histogram(np.clip(logs, -12, 3.99), np.linspace(-12, 4, 81))[0].astype(np.float64)
