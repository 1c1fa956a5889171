"""What float32 cannot tell: how far a trainer's own rounding may put a recorded result from the exact one.

Kernels compute in double where float32 cancels; trainers mostly do not. Two results cancel: a reward minus the mean of
a group whose rewards lie far from zero and close together, and a sum of per-sample terms of both signs. Held against
atol and rtol alone, what such a trainer recorded would diverge though nothing is wrong: of groups of 8 with a mean of
100 standard deviations, six in ten. So these outputs agree also where they are off by no more than `allowed`. It is the
larger of the two bounds, never their sum: where float32 resolves the values, the format's test is untouched. (The third
of the kind is the share of clipped tokens: a whole token where a ratio lies within the last digits of a bound.)

Measured with torch's float32 mean and std over groups of 2 to 1,024 at means of 0 to 1e5 standard deviations: at most
3.2 steps of the largest reward. The recorded vectors of RL libraries stay below 1.2e-4.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.kernels.array import Array
from rollbook.replay.kernels.rewards import STD_EPSILON

Floats = NDArray[np.float64]

_STEP = 2.0**-24
"""Relative rounding of one float32 operation."""
_GROUP_STEPS = 4
_SUM_STEPS = 2
_LARGEST_SHARE_OF_STD = 2e-4
"""Beyond it the rounding matters to the training itself. A constant group, whose std is 0, is allowed nothing."""


@dataclass(frozen=True, slots=True)
class GroupRounding:
    """How far normalised rewards may be off, float64 [samples]: `possible` by rounding, `allowed` as agreement."""

    possible: Floats
    allowed: Floats


def group_rounding(raw_rewards: Array, group_index: Array, *, divide_by_std: bool) -> GroupRounding:
    """Of rewards normalised by group in float32. raw_rewards, group_index: [samples], groups of any size."""
    raw: Any = np.asarray(raw_rewards).astype(np.float64)
    _, group = np.unique(np.asarray(group_index), return_inverse=True)
    count = np.bincount(group)
    largest = np.zeros(count.size)
    np.maximum.at(largest, group, np.abs(raw))
    centred = raw - (np.bincount(group, raw) / count)[group]
    std = np.sqrt(np.bincount(group, centred * centred) / np.maximum(count - 1, 1))
    possible = _GROUP_STEPS * _STEP * largest
    allowed = np.minimum(possible, _LARGEST_SHARE_OF_STD * std)
    unit = std + STD_EPSILON if divide_by_std else np.ones_like(std)
    return GroupRounding(possible=(possible / unit)[group], allowed=(allowed / unit)[group])


def sum_rounding(*terms: Array) -> Floats:
    """Of a sum of float32 terms in any order of additions: float64 [1]. `terms`: arrays [samples] that are added up."""
    return np.asarray([_SUM_STEPS * _STEP * sum(float(np.abs(np.asarray(term)).sum()) for term in terms)])
