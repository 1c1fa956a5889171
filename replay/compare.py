"""Recomputed against recorded values: |actual - expected| <= atol + rtol * |expected|, or what a float32 trainer's
rounding may do where that is more; and where it first fails."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.model import Tolerance
from rollbook.replay.kernels.array import Array, device, namespace
from rollbook.replay.result import FieldResult, Point
from rollbook.replay.rounding import Floats
from rollbook.replay.stage import DEFAULT_TOLERANCE, EXACT, Output, Unit

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rounding = Callable[[], Floats | None]


def compare(
    output: Output,
    expected: Floats,
    recomputed: Array,
    tolerance: Tolerance,
    sample_ids: Sequence[str],
    ends: Ints,
    rounding: Rounding = lambda: None,
) -> FieldResult:
    """One output. `ends` is the end of each sample in a flat array of tokens; `rounding` says what each value may be
    off, and is asked only when some do not agree without it.

    A recomputed value that is not finite never agrees: recorded ones always are, the reader sees to it.
    """
    values = np.asarray(recomputed).reshape(-1)
    actual = values.astype(np.float64)
    if actual.shape != expected.shape:
        raise ValueError(f"{output.field}: {actual.size} recomputed values for {expected.size} recorded ones")
    if tolerance == EXACT:
        # JSON has more digits than the result's type: 0.1 is exactly the float32 that is nearest to it.
        expected, rounding = expected.astype(values.dtype).astype(np.float64), lambda: None
    outside = ~_within(actual, expected, tolerance)
    diverging = np.flatnonzero(outside & ~_within(actual, expected, tolerance, rounding))
    rounded = int(outside.sum()) - diverging.size
    error = np.abs(actual - expected)

    def point(at: int) -> Point:
        sample, offset = _place(output.unit, at, ends)
        sample_id = None if sample is None else sample_ids[sample]
        return Point(sample_id, offset, float(expected[at]), float(actual[at]), float(error[at]))

    worst = int(diverging[np.argmax(np.nan_to_num(error[diverging], nan=np.inf))]) if diverging.size else None
    return FieldResult(
        field=output.field,
        unit=output.unit,
        tolerance=tolerance,
        values=expected.size,
        rounded_values=rounded,
        diverging_values=diverging.size,
        diverging_samples=_count_samples(output.unit, diverging, ends),
        first=point(int(diverging[0])) if diverging.size else None,
        worst=None if worst is None else point(worst),
    )


def settled(expected: Floats, recomputed: Array, rounding: Rounding) -> Array:
    """What the next stage computes from: the recorded values where the recomputed ones agree, else the recomputed.

    A difference that is none to a reader must not add up to one in a sum over many values. How close is equal is the
    format's default here, since a bundle may call equal what would change a loss.
    """
    actual = np.asarray(recomputed).reshape(-1).astype(np.float64)
    agrees = _within(actual, expected, DEFAULT_TOLERANCE, rounding)
    xp, where = namespace(recomputed), device(recomputed)
    recorded = xp.asarray(expected, dtype=recomputed.dtype, device=where)
    return xp.where(xp.asarray(agrees, device=where), recorded, recomputed)


def _within(actual: Floats, expected: Floats, tolerance: Tolerance, rounding: Rounding = lambda: None) -> Bools:
    error = np.abs(actual - expected)
    close: Bools = error <= tolerance.atol + tolerance.rtol * np.abs(expected)
    if not close.all() and (possible := rounding()) is not None:
        close |= (error <= possible) & np.isfinite(error)
    return close


def _place(unit: Unit, at: int, ends: Ints) -> tuple[int | None, int | None]:
    match unit:
        case Unit.SCALAR:
            return None, None
        case Unit.SAMPLE:
            return at, None
        case Unit.TOKEN:
            sample = int(np.searchsorted(ends, at, side="right"))
            return sample, at - (int(ends[sample - 1]) if sample else 0)


def _count_samples(unit: Unit, diverging: NDArray[np.intp], ends: Ints) -> int:
    match unit:
        case Unit.SCALAR:
            return 0
        case Unit.SAMPLE:
            return int(diverging.size)
        case Unit.TOKEN:
            return int(np.unique(np.searchsorted(ends, diverging, side="right")).size)
