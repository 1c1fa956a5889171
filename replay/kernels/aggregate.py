"""How a loss per token becomes one number.

token-mean: DAPO (Yu et al. 2025, arXiv:2503.14476, eq. 8). seq-mean-token-mean: GRPO (Shao et al. 2024,
arXiv:2402.03300, eq. 3). seq-mean-token-sum and, over a constant length, seq-mean-token-sum-norm: Dr. GRPO (Liu et al.
2025, arXiv:2503.20783, section 3.2).
"""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.masked import Masking, count, hide


class Mode(StrEnum):
    """The reductions by the names under which most libraries know them."""

    TOKEN_MEAN = "token-mean"
    TOKEN_SUM = "token-sum"
    SEQ_MEAN_TOKEN_MEAN = "seq-mean-token-mean"
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"
    SEQ_MEAN_TOKEN_SUM_NORM = "seq-mean-token-sum-norm"


class Rows(StrEnum):
    """Which rows a mean over sequences counts."""

    ALL = "all"
    NONEMPTY = "nonempty"
    ONE = "one"
    """None of them: the sum of the rows, which the trainer scales later."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """`rows`: what a mean over sequences divides by; `row_eps`: added to a row's count of tokens; `row_floor`: the
    least count of tokens of a row, `token_floor` and `token_eps`: of a batch; `masking`: what hides a row's masked
    tokens; `row_masking`: what hides rows without tokens."""

    mode: Mode
    rows: Rows = Rows.NONEMPTY
    row_eps: float = 0.0
    row_floor: float = 0.0
    token_floor: float = 0.0
    token_eps: float = 0.0
    masking: Masking = Masking.SELECT
    row_masking: Masking = Masking.SELECT


@dataclass(frozen=True, slots=True)
class Totals:
    """What a trainer divides by instead of what one micro-batch shows: tokens and sequences of the whole batch, the
    constant length, and the number of ranks that the gradients are averaged over afterwards."""

    tokens: float | None = None
    sequences: float | None = None
    length: float | None = None
    ranks: float = 1.0


def aggregate(losses: Array, mask: Array, rule: Aggregation, totals: Totals = Totals()) -> Array:
    """losses: float [rows, tokens]; mask: bool [rows, tokens]; returns a float scalar."""
    xp = namespace(losses, mask)
    if rule.mode in (Mode.TOKEN_MEAN, Mode.TOKEN_SUM):
        whole = xp.sum(hide(losses, mask, rule.masking)) * totals.ranks
        return whole if rule.mode is Mode.TOKEN_SUM else whole / _tokens(losses, mask, rule, totals)
    lengths = count(mask, losses, axis=1)
    sums = xp.sum(hide(losses, mask, rule.masking), axis=1)
    if rule.mode is Mode.SEQ_MEAN_TOKEN_MEAN:
        sums = sums / (xp.clip(lengths, rule.row_floor, None) + rule.row_eps)
    used = lengths > 0
    if rule.rows is Rows.NONEMPTY:
        sums = hide(sums, used, rule.row_masking)
    found = xp.sum(sums) * totals.ranks / _sequences(sums, used, rule, totals)
    if rule.mode is Mode.SEQ_MEAN_TOKEN_SUM_NORM:
        return found / (totals.length if totals.length is not None else float(losses.shape[1]))
    return found


def _tokens(losses: Array, mask: Array, rule: Aggregation, totals: Totals) -> Array | float:
    if totals.tokens is not None:
        return totals.tokens
    xp = namespace(losses, mask)
    return xp.clip(count(mask, losses), rule.token_floor, None) + rule.token_eps


def _sequences(sums: Array, used: Array, rule: Aggregation, totals: Totals) -> Array | float:
    if totals.sequences is not None:
        return totals.sequences
    if rule.rows is Rows.ONE:
        return 1.0
    return count(used, sums) if rule.rows is Rows.NONEMPTY else float(sums.shape[0])
