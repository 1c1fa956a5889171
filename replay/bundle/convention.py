"""What format 1.1.0 adds of conventions: those under which the trainer computed advantages and loss, and the rest of
the cohort that rewards were normalised in.

A convention is named (docs/kernels.md lists those that are known), and beside it stand the numbers that a run chooses.
A bundle without them is of format 1.0.0, whose conventions are fixed.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationInfo,
    model_serializer,
    model_validator,
)

T = TypeVar("T")
FROM_FILE: Final = {"of": "file"}
"""The validation context of what is read from a file: there a key is absent or used, while code may say None."""


def _not_null(value: object, info: ValidationInfo) -> object:
    if value is None and info.context == FROM_FILE:
        raise ValueError("it must not be null: leave the key out")
    return value


# Of a field that was added later: absent where it is not used, never null, so that there is one way to write it.
Added = Annotated[T | None, BeforeValidator(_not_null)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Positive = Annotated[float, Field(gt=0)]


class Part(BaseModel):
    """Strict, like every part of a bundle's metadata."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class NamedConvention(Part):
    framework: Label
    version: Label
    name: Label

    def __str__(self) -> str:
        return f"{self.framework} {self.version} {self.name}"


class WholeBatch(Part):
    """What a loss is divided by instead of what the bundle shows: tokens and sequences of the whole batch, the constant
    length, the ranks that gradients are averaged over afterwards."""

    tokens: Positive | None = None
    sequences: Positive | None = None
    length: Positive | None = None
    ranks: Positive = 1.0


class Reached(StrEnum):
    """What one ratio of trainer and sampler belongs to."""

    TOKEN = "token"
    SEQ_SUM = "seq_sum"
    SEQ_MEAN = "seq_mean"


class Outlier(StrEnum):
    """What becomes of a token whose ratio lies outside the bounds: its weight is truncated, or zero; or it has no
    weight and is rejected, taken out of the loss mask."""

    TRUNCATE = "truncate"
    ZERO = "zero"
    REJECT = "reject"


class Correction(Part):
    """Importance correction by old_log_probs - rollout_log_probs (a payload), its log-ratio held within +-`limit`."""

    reach: Annotated[Reached, Field(strict=False)] = Reached.TOKEN
    least: Annotated[float, Field(ge=0)] | None = None
    most: Positive | None = None
    outside: Annotated[Outlier, Field(strict=False)] = Outlier.TRUNCATE
    limit: Positive | None = None

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ValueError(f"least {self.least:g} is above most {self.most:g}, so that no ratio lies between them")
        return self


class RewardOnly(Part):
    """A member of a group that the step did not consume: it counts in the group's mean and deviation, nowhere else."""

    sample_id: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    group_index: Annotated[int, Field(ge=0, lt=2**62)]
    raw_reward: float


class Unmeasured(Part):
    """A sample whose own reward no mean and no deviation knows: it has what the sample or member `like` has (rows of
    one conversation), or where nothing scored it a reward and an advantage of 0."""

    sample_id: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    like: Added[Annotated[str, StringConstraints(min_length=1, max_length=1024)]] = None

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        return {key: value for key, value in content.items() if value is not None}


class NamedValueLoss(NamedConvention):
    """The convention of a critic's loss. `clip`: how far a value may move from that of the rollout before the loss
    stops to follow, absent where it is not clipped; `whole_batch`: as of the policy's loss."""

    clip: Positive | None = None
    whole_batch: WholeBatch = Field(default_factory=WholeBatch)


class ValueLoss(Part):
    """What a trainer computed of the critic's loss. The clipped share is absent where it was not recorded."""

    value_loss: float
    value_clipfrac: float | None = None


class KlEstimator(StrEnum):
    """Of d = log_probs - ref_log_probs: d, d^2 / 2, e^-d - 1 + d."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"


class KlTerm(Part):
    """A distance to the reference policy (payload `ref_log_probs`) inside the loss: `coef` times the estimate is added
    to each token's loss, whatever weights and masks did to that; `by_ratio`: the estimate is first multiplied by the
    probability ratio, as the loss sees it before it is clipped. `config.kl_coef` says nothing of it."""

    coef: float
    estimator: Annotated[KlEstimator, Field(strict=False)] = KlEstimator.K3
    by_ratio: bool = False


class EntropyMean(StrEnum):
    """Over what `entropy_loss` is a mean; its coefficient is `config.entropy_coef`."""

    LOSS = "loss"
    """As the policy's loss is put together."""
    MICRO_BATCH = "micro_batch"
    """The tokens of each micro-batch that count (and whose entropy is among the highest, where only those count); then
    the mean of the micro-batches."""


class Behavior(StrEnum):
    """Whose log-probs a policy is held against."""

    OLD = "old"
    ROLLOUT = "rollout"


class OffPolicyMask(Part):
    """The loss of a token with a negative advantage is zero where its sample's mean of `behavior` - log_probs is above
    `threshold` (nats). The token counts in every divisor."""

    threshold: float
    behavior: Annotated[Behavior, Field(strict=False)] = Behavior.OLD


class Vespo(Part):
    """Exponents and decays of VESPO's weights, for advantages that are not negative and for negative ones."""

    k_pos: float = 2.0
    lambda_pos: float = 3.0
    k_neg: float = 3.0
    lambda_neg: float = 2.0


class Conventions(Part):
    """`delta`: two-sided clip, what the ratio that is not clipped is held below. `top_entropy_quantile`: the share of a
    micro-batch's tokens, those of the highest entropy, that have a policy loss. `micro_batch_tokens`: what each
    micro-batch's sum is divided by, in the order of `identity.micro_batch_ids`, where that is not its own tokens."""

    ADDED: ClassVar = frozenset(
        {
            "value_loss",
            "kl_term",
            "delta",
            "entropy_mean",
            "top_entropy_quantile",
            "off_policy_mask",
            "vespo",
            "micro_batch_tokens",
        }
    )

    advantages: NamedConvention | None = None
    loss: NamedConvention | None = None
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    lam: Annotated[float, Field(ge=0, le=1)] = 1.0
    eps_clip_c: Positive | None = None
    tau_pos: Positive = 1.0
    tau_neg: Positive = 1.05
    whole_batch: WholeBatch = Field(default_factory=WholeBatch)
    corrections: Annotated[tuple[Correction, ...], Field(strict=False, max_length=8)] = ()
    value_loss: NamedValueLoss | None = None
    kl_term: Added[KlTerm] = None
    delta: Added[Positive] = None
    entropy_mean: Added[Annotated[EntropyMean, Field(strict=False)]] = None
    top_entropy_quantile: Added[Annotated[float, Field(gt=0, lt=1)]] = None
    off_policy_mask: Added[OffPolicyMask] = None
    vespo: Added[Vespo] = None
    micro_batch_tokens: Added[Annotated[tuple[Positive, ...], Field(strict=False, min_length=1, max_length=2**16)]] = (
        None
    )

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A bundle that does not use what was added later has the bytes that it had before there was any."""
        content: dict[str, Any] = handler(self)
        return {key: value for key, value in content.items() if key not in self.ADDED or value is not None}
