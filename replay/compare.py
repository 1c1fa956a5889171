"""Recomputed against recorded values: |actual - expected| <= atol + rtol * |expected|, and where it first fails."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.model import Tolerance
from rollbook.replay.kernels.array import Array
from rollbook.replay.result import FieldResult, Point
from rollbook.replay.stages import Output, Unit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def compare(
    output: Output,
    expected: Floats,
    recomputed: Array,
    tolerance: Tolerance,
    sample_ids: Sequence[str],
    ends: Ints,
) -> FieldResult:
    """One output. `ends` is the end of each sample in a flat array of tokens.

    A recomputed value that is not finite never agrees: recorded ones always are, the reader sees to it.
    """
    actual = np.asarray(recomputed).astype(np.float64).reshape(-1)
    if actual.shape != expected.shape:
        raise ValueError(f"{output.field}: {actual.size} recomputed values for {expected.size} recorded ones")
    error = np.abs(actual - expected)
    diverging = np.flatnonzero(~(error <= tolerance.atol + tolerance.rtol * np.abs(expected)))

    def point(at: int) -> Point:
        sample, offset = _place(output.unit, at, ends)
        sample_id = None if sample is None else sample_ids[sample]
        return Point(sample_id, offset, float(expected[at]), float(actual[at]), float(error[at]))

    if not diverging.size:
        return FieldResult(output.field, output.unit, tolerance, expected.size, 0, 0, None, None)
    return FieldResult(
        field=output.field,
        unit=output.unit,
        tolerance=tolerance,
        values=expected.size,
        diverging_values=diverging.size,
        diverging_samples=_count_samples(output.unit, diverging, ends),
        first=point(int(diverging[0])),
        worst=point(int(diverging[np.argmax(np.nan_to_num(error[diverging], nan=np.inf))])),
    )


def _place(unit: Unit, at: int, ends: Ints) -> tuple[int | None, int | None]:
    match unit:
        case Unit.SCALAR:
            return None, None
        case Unit.SAMPLE:
            return at, None
        case Unit.TOKEN:
            sample = int(np.searchsorted(ends, at, side="right"))
            return sample, at - (int(ends[sample - 1]) if sample else 0)


def _count_samples(unit: Unit, diverging: Ints, ends: Ints) -> int:
    match unit:
        case Unit.SCALAR:
            return 0
        case Unit.SAMPLE:
            return int(diverging.size)
        case Unit.TOKEN:
            return int(np.unique(np.searchsorted(ends, diverging, side="right")).size)
