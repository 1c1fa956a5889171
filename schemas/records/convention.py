"""Under which formulas a trainer computed a step: named conventions of advantages and loss, and the numbers that a run
chooses beside them.

What a bundle of format 1.1.0 states is this, key by key; a test holds the two together.
"""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from rollbook.schemas.types import AboveZero, Finite, Flag, Id, NonNegative, Part, PartialShare, Share


class NamedConvention(Part):
    """A formula by the name that it has in the tables of replay."""

    framework: Id = Field(description="The framework that computes so.")
    version: Id = Field(description="Its version.")
    name: Id = Field(description="The convention's name there.")

    def __str__(self) -> str:
        return f"{self.framework} {self.version} {self.name}"


class WholeBatch(Part):
    """What a loss is divided by instead of what the rank's rows show."""

    tokens: AboveZero | None = Field(default=None, description="Tokens of the whole batch.")
    sequences: AboveZero | None = Field(default=None, description="Sequences of the whole batch.")
    length: AboveZero | None = Field(default=None, description="The constant length, in tokens.")
    ranks: AboveZero = Field(default=1.0, description="Ranks that gradients are averaged over afterwards.")


_WHAT_THE_ROWS_SHOW = WholeBatch.trusted(tokens=None, sequences=None, length=None, ranks=1.0)
"""The default; `WholeBatch()` would build validators whenever this is imported."""


class Reached(StrEnum):
    """What one ratio of trainer and sampler belongs to."""

    TOKEN = "token"
    SEQ_SUM = "seq_sum"
    SEQ_MEAN = "seq_mean"


class Outlier(StrEnum):
    """What becomes of a token whose ratio lies outside the bounds."""

    TRUNCATE = "truncate"
    ZERO = "zero"
    REJECT = "reject"


class Correction(Part):
    """Importance correction by old minus behavior log-probs."""

    reach: Reached = Field(default=Reached.TOKEN, description="What one ratio belongs to.")
    least: NonNegative | None = Field(default=None, description="Lower bound of the ratio, where there is one.")
    most: AboveZero | None = Field(default=None, description="Upper bound of the ratio, where there is one.")
    outside: Outlier = Field(default=Outlier.TRUNCATE, description="What becomes of a token outside the bounds.")
    limit: AboveZero | None = Field(default=None, description="Bound of the absolute log-ratio, nats.")

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ValueError(f"least: {self.least:g} is above most {self.most:g}, so that no ratio lies between them")
        return self


class NamedValueLoss(NamedConvention):
    """The convention of a critic's loss."""

    clip: AboveZero | None = Field(
        default=None, description="How far a value may move before the loss stops to follow."
    )
    whole_batch: WholeBatch = Field(
        default=_WHAT_THE_ROWS_SHOW, description="What it is divided by, as of the policy's loss."
    )


class KlEstimator(StrEnum):
    """Of d = current - reference log-probs: d, d^2 / 2, e^-d - 1 + d."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"


class KlTerm(Part):
    """A distance to the reference policy inside the loss, added to each token's; `kl_coef` of the config says nothing
    of it."""

    coef: Finite = Field(description="What the estimate is multiplied by.")
    estimator: KlEstimator = Field(default=KlEstimator.K3, description="Which estimate.")
    by_ratio: Flag = Field(default=False, description="Whether it is first multiplied by the ratio, before its clip.")


class EntropyMean(StrEnum):
    """Over what the entropy of the loss is a mean: as the policy's loss is put together; or the tokens of each
    micro-batch that count, and then the micro-batches."""

    LOSS = "loss"
    MICRO_BATCH = "micro_batch"


class Behavior(StrEnum):
    """Whose log-probs a policy is held against."""

    OLD = "old"
    ROLLOUT = "rollout"


class OffPolicyMask(Part):
    """Tokens with a negative advantage have no loss where their row's mean of behavior minus current log-probs is above
    a threshold."""

    threshold: Finite = Field(description="The threshold, nats.")
    behavior: Behavior = Field(default=Behavior.OLD, description="Whose log-probs.")


class Vespo(Part):
    """Exponents and decays of VESPO's weights, for advantages that are not negative and for negative ones."""

    k_pos: Finite = Field(default=2.0, description="Exponent where the advantage is not negative.")
    lambda_pos: Finite = Field(default=3.0, description="Decay where the advantage is not negative.")
    k_neg: Finite = Field(default=3.0, description="Exponent where it is negative.")
    lambda_neg: Finite = Field(default=2.0, description="Decay where it is negative.")


class Conventions(Part):
    """Formulas of advantages and loss, and their numbers. What is not named is as in bundles of format 1.0.0."""

    advantages: NamedConvention | None = Field(default=None, description="Of rewards, advantages and returns.")
    loss: NamedConvention | None = Field(default=None, description="Of the policy's loss.")
    gamma: Share = Field(default=1.0, description="Discount of estimates from values.")
    lam: Share = Field(default=1.0, description="Lambda of estimates from values.")
    eps_clip_c: AboveZero | None = Field(
        default=None, description="Bound of the ratio where the advantage is negative."
    )
    tau_pos: AboveZero = Field(default=1.0, description="SAPO's temperature for positive advantages.")
    tau_neg: AboveZero = Field(default=1.05, description="SAPO's temperature for negative advantages.")
    whole_batch: WholeBatch = Field(default=_WHAT_THE_ROWS_SHOW, description="What the loss is divided by.")
    corrections: tuple[Correction, ...] = Field(
        default=(), max_length=8, description="Importance corrections, applied in turn."
    )
    value_loss: NamedValueLoss | None = Field(default=None, description="Of the critic's loss.")
    kl_term: KlTerm | None = Field(default=None, description="A distance to the reference policy in the loss.")
    delta: AboveZero | None = Field(default=None, description="What the ratio that is not clipped is held below.")
    entropy_mean: EntropyMean | None = Field(default=None, description="Over what the entropy of the loss is a mean.")
    top_entropy_quantile: PartialShare | None = Field(
        default=None, description="Share of a micro-batch's tokens, of the highest entropy, that have a policy loss."
    )
    off_policy_mask: OffPolicyMask | None = Field(default=None, description="Which rows have drifted out of the loss.")
    vespo: Vespo | None = Field(default=None, description="Numbers of VESPO's weights.")
    micro_batch_tokens: tuple[AboveZero, ...] = Field(
        default=(),
        max_length=2**16,
        description="What each micro-batch's sum is divided by, in order; empty: its own tokens.",
    )
