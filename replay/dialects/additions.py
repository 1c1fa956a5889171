"""What a run adds to a policy's loss beside its surrogate: a KL term, and tokens that have no part in it."""

from dataclasses import dataclass

from rollbook.replay.dialects.microbatches import MicroBatches
from rollbook.replay.kernels.array import Array, constant, namespace
from rollbook.replay.kernels.correction import Reach, gather
from rollbook.replay.kernels.entropy import highest
from rollbook.replay.kernels.kl import PLAIN, KlRule, approximate_kl


@dataclass(frozen=True, slots=True)
class Penalty:
    """A KL term inside the loss: `coef` times the estimator against the reference's log-probs, `by_ratio` times the
    ratio before."""

    ref_log_probs: Array
    estimator: str
    coef: float
    by_ratio: bool = False
    rule: KlRule = PLAIN

    def of(self, log_probs: Array, ratios: Array) -> Array:
        found = approximate_kl(log_probs, self.ref_log_probs, self.estimator, self.rule)
        return self.coef * (found * ratios if self.by_ratio else found)


@dataclass(frozen=True, slots=True)
class OffPolicy:
    """A token of a negative advantage is left out where its row's mean of behavior - log_probs is above `threshold`
    (DeepSeek-V3.2, arXiv:2512.02556, eq. 9)."""

    behavior: Array
    threshold: float

    def kept(self, log_probs: Array, advantages: Array, mask: Array) -> Array:
        distance = gather(self.behavior - constant(log_probs), mask, Reach.SEQ_MEAN)
        return (advantages >= 0) | (distance <= self.threshold)


@dataclass(frozen=True, slots=True)
class Uncertain:
    """The `share` of each micro-batch's tokens that have the highest entropy; the others are left out."""

    entropy: Array
    share: float

    def kept(self, mask: Array, batches: MicroBatches | None) -> Array:
        if batches is None:
            return highest(self.entropy, mask, self.share)
        xp = namespace(self.entropy, mask)
        found = [
            highest(xp.take(self.entropy, rows, axis=0), xp.take(mask, rows, axis=0), self.share)
            for rows in batches.rows
        ]
        order = xp.argsort(xp.concat(batches.rows))
        return xp.take(xp.concat(found), order, axis=0)


@dataclass(frozen=True, slots=True)
class Additions:
    """None of them: the surrogate alone."""

    penalty: Penalty | None = None
    off_policy: OffPolicy | None = None
    uncertain: Uncertain | None = None


NOTHING = Additions()
