"""What format 1.1.0 adds of conventions: those under which the trainer computed advantages and loss, and the rest of
the cohort that rewards were normalised in.

A convention is named (docs/kernels.md lists those that are known), and beside it stand the numbers that a run chooses.
A bundle without them is of format 1.0.0, whose conventions are fixed.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

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


class NamedValueLoss(NamedConvention):
    """The convention of a critic's loss. `clip`: how far a value may move from that of the rollout before the loss
    stops to follow, absent where it is not clipped; `whole_batch`: as of the policy's loss."""

    clip: Positive | None = None
    whole_batch: WholeBatch = Field(default_factory=WholeBatch)


class ValueLoss(Part):
    """What a trainer computed of the critic's loss. The clipped share is absent where it was not recorded."""

    value_loss: float
    value_clipfrac: float | None = None


class Conventions(Part):
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

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A bundle that names no value loss has the bytes that it had before there was one."""
        content: dict[str, Any] = handler(self)
        return {key: value for key, value in content.items() if key != "value_loss" or value is not None}
