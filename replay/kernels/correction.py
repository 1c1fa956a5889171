"""What is done about a sampler whose probabilities are not the trainer's: weights and rejection.

Truncated importance sampling (Ionides 2008; for sequences and tokens of language models: Yao et al. 2025, "Your
efficient RL framework secretly brings you off-policy RL training"); dropping tokens outside a band instead of
truncating them (IcePop, Ling team 2025); rejection of tokens or rows by an estimate of the KL (Liu and Li 2025, "When
speed kills stability"). Weights multiply losses; rejection takes tokens out of the loss mask, not of the action mask.
"""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.masked import Masking, count, hide


class Reach(StrEnum):
    """What one weight or one verdict belongs to, and how the tokens of a row come together in it."""

    TOKEN = "token"
    SEQ_SUM = "seq_sum"
    SEQ_MEAN = "seq_mean"
    SEQ_MAX = "seq_max"


class Outside(StrEnum):
    """What becomes of a weight outside its bounds."""

    TRUNCATE = "truncate"
    ZERO = "zero"


@dataclass(frozen=True, slots=True)
class Weighting:
    """Bounds of an importance weight; None: no bound. `limit` holds the log-ratio first."""

    reach: Reach = Reach.TOKEN
    least: float | None = None
    most: float | None = None
    outside: Outside = Outside.TRUNCATE
    limit: float | None = None


def log_weights(
    train: Array,
    sampler: Array,
    mask: Array,
    reach: Reach,
    *,
    limit: float | None = None,
    masking: Masking = Masking.SELECT,
) -> Array:
    """log(train / sampler) of each token, or of its row: [rows, tokens]."""
    xp = namespace(train, sampler, mask)
    found = gather(train - sampler, mask, reach, masking)
    return found if limit is None else xp.clip(found, -limit, limit)


def importance_weights(log_ratios: Array, rule: Weighting) -> Array:
    """exp of `log_ratios` (as `log_weights` gives them), within the rule's bounds: [rows, tokens]."""
    xp = namespace(log_ratios)
    found = xp.exp(log_ratios)
    if rule.outside is Outside.ZERO:
        return xp.where(is_within(found, rule.least, rule.most), found, xp.zeros_like(found))
    return found if rule.least is None and rule.most is None else xp.clip(found, rule.least, rule.most)


def is_within(values: Array, least: float | None, most: float | None) -> Array:
    """Where least <= value <= most: bool."""
    xp = namespace(values)
    inside = xp.ones_like(values, dtype=xp.bool)
    if least is not None:
        inside = inside & (values >= least)
    return inside if most is None else inside & (values <= most)


def gather(values: Array, mask: Array, reach: Reach, masking: Masking = Masking.SELECT, *, floor: float = 1.0) -> Array:
    """Token values, or for each token its row's sum, mean or largest: [rows, tokens]. An empty row has 0, and as its
    mean NaN where `floor`, the least count that a mean divides by, is 0."""
    xp = namespace(values, mask)
    if reach is Reach.TOKEN:
        return values
    if reach is Reach.SEQ_MAX:
        lowest = xp.full_like(values, -xp.inf)
        row = xp.max(xp.where(mask, values, lowest), axis=1, keepdims=True)
        row = xp.where(xp.any(mask, axis=1, keepdims=True), row, xp.zeros_like(row))
    else:
        row = xp.sum(hide(values, mask, masking), axis=1, keepdims=True)
        if reach is Reach.SEQ_MEAN:
            row = row / xp.clip(count(mask, values, axis=1, keepdims=True), floor, None)
    return xp.broadcast_to(row, values.shape)
