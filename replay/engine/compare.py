"""Recomputed against recorded values: |actual - expected| <= atol + rtol * |expected|, or what a float32 trainer's
rounding may do where that is more; and where it first fails."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.model import Tolerance
from rollbook.replay.engine.result import FieldResult, Point
from rollbook.replay.kernels.array import Array, device, namespace
from rollbook.replay.stages.rounding import Floats
from rollbook.replay.stages.stage import DEFAULT_TOLERANCE, EXACT, Output, Unit

Ints = NDArray[np.int64]
Indices = NDArray[np.intp]
Values = NDArray[Any]
Rounding = Callable[[], Floats | None]
_BLOCK = 1 << 14


def compare(
    output: Output,
    expected: Values,
    recomputed: Array,
    tolerance: Tolerance,
    sample_ids: Sequence[str],
    ends: Ints,
    rounding: Rounding = lambda: None,
) -> FieldResult:
    """One output; both flat, of any float type. `ends` is the end of each sample in a flat array of tokens; `rounding`
    says what each value may be off, and is asked only when some do not agree without it.

    A recomputed value that is not finite never agrees: recorded ones always are, the reader sees to it.
    """
    actual: Values = np.asarray(recomputed).reshape(-1)
    if actual.shape != expected.shape:
        raise ValueError(f"{output.field}: {actual.size} recomputed values for {expected.size} recorded ones")
    if tolerance == EXACT:
        # JSON has more digits than the result's type: 0.1 is exactly the float32 that is nearest to it.
        expected, rounding = expected.astype(actual.dtype), lambda: None
    outside = _outside(actual, expected, tolerance)
    diverging = _beyond(outside, actual, expected, rounding)

    def point(at: int) -> Point:
        sample, offset = _place(output.unit, at, ends)
        sample_id = None if sample is None else sample_ids[sample]
        recorded, found = float(expected[at]), float(actual[at])
        return Point(sample_id, offset, recorded, found, abs(found - recorded))

    return FieldResult(
        field=output.field,
        unit=output.unit,
        tolerance=tolerance,
        values=expected.size,
        rounded_values=outside.size - diverging.size,
        diverging_values=diverging.size,
        diverging_samples=_count_samples(output.unit, diverging, ends),
        first=point(int(diverging[0])) if diverging.size else None,
        worst=point(_worst(diverging, actual, expected)) if diverging.size else None,
    )


def settled(expected: Values, recomputed: Array, rounding: Rounding) -> Array:
    """What the next stage computes from: the recorded values where the recomputed ones agree, else the recomputed.

    A difference that is none to a reader must not add up to one in a sum over many values. How close is equal is the
    format's default here, since a bundle may call equal what would change a loss.
    """
    actual: Values = np.asarray(recomputed).reshape(-1)
    differs = _beyond(_outside(actual, expected, DEFAULT_TOLERANCE), actual, expected, rounding)
    xp, where = namespace(recomputed), device(recomputed)
    recorded = xp.asarray(expected, dtype=recomputed.dtype, device=where)
    if not differs.size:
        return recorded
    agrees = np.ones(actual.size, np.bool_)
    agrees[differs] = False
    return xp.where(xp.asarray(agrees, device=where), recorded, recomputed)


def _outside(actual: Values, expected: Values, tolerance: Tolerance) -> Indices:
    """Where the values do not agree. In double, and block by block: a step has millions of values, and what is made of
    them on the way would take several times their memory."""
    found: list[Indices] = []
    for start in range(0, expected.size, _BLOCK):
        recorded = expected[start : start + _BLOCK].astype(np.float64)
        error = np.subtract(actual[start : start + _BLOCK], recorded, dtype=np.float64)
        np.abs(error, out=error)
        np.abs(recorded, out=recorded)
        recorded *= tolerance.rtol
        recorded += tolerance.atol
        close = error <= recorded
        if not close.all():
            found.append(np.flatnonzero(~close) + start)
    return np.concatenate(found) if found else np.zeros(0, np.intp)


def _beyond(outside: Indices, actual: Values, expected: Values, rounding: Rounding) -> Indices:
    """Those of them that a trainer's rounding does not explain."""
    if not outside.size or (possible := rounding()) is None:
        return outside
    error = np.abs(_double(actual, outside) - _double(expected, outside))
    return outside[~((error <= possible[outside]) & np.isfinite(error))]


def _worst(diverging: Indices, actual: Values, expected: Values) -> int:
    error = np.abs(_double(actual, diverging) - _double(expected, diverging))
    return int(diverging[np.argmax(np.nan_to_num(error, nan=np.inf))])


def _double(values: Values, at: Indices) -> Floats:
    return values[at].astype(np.float64)


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
