"""The importance corrections that a bundle lists, as weights of tokens and a loss mask."""

from collections.abc import Iterable

from rollbook.replay.bundle.convention import Correction, Outlier
from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.correction import Outside, Reach, Weighting, importance_weights, is_within, log_weights


def corrected(
    corrections: Iterable[Correction], train: Array, sampler: Array, mask: Array
) -> tuple[Array | None, Array]:
    """(weights, loss mask) after every correction in turn; no weights where none truncates or zeroes.

    train, sampler: float [rows, tokens] log-probs; mask: bool [rows, tokens], by which rows are gathered throughout.
    """
    xp = namespace(train, sampler, mask)
    weights, kept = None, mask
    for rule in corrections:
        logs = log_weights(train, sampler, mask, Reach(rule.reach), limit=rule.limit)
        if rule.outside is Outlier.REJECT:
            kept = kept & is_within(xp.exp(logs), rule.least, rule.most)
            continue
        weighting = Weighting(least=rule.least, most=rule.most, outside=Outside(rule.outside))
        found = importance_weights(logs, weighting)
        weights = found if weights is None else weights * found
    return weights, kept
