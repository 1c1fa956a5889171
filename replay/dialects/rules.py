"""What a convention consists of: one frozen record for advantages, one for a policy's loss."""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.replay.kernels.aggregate import Aggregation, Mode
from rollbook.replay.kernels.groups import Normalization
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.returns import Hole
from rollbook.replay.kernels.whiten import Whitening


class Spread(StrEnum):
    """How a row's reward comes to its tokens."""

    REPEAT = "repeat"
    RETURNS = "returns"
    GAE = "gae"


class Level(StrEnum):
    """What a probability ratio belongs to."""

    TOKEN = "token"
    SEQUENCE = "sequence"


class Surrogate(StrEnum):
    """The loss per token."""

    PPO = "ppo"
    CISPO = "cispo"
    SAPO = "sapo"
    VESPO = "vespo"
    REINFORCE = "reinforce"


class Cap(StrEnum):
    """What CISPO's bounds are: around 1, or the largest ratio itself."""

    BAND = "band"
    ABSOLUTE = "absolute"


class Grouping(StrEnum):
    """Which rows make up a group."""

    INDEX = "index"
    """Those of one prompt."""
    EVEN_OR_BATCH = "even-or-batch"
    """Those of one prompt where all prompts have equally many; else all rows are one group."""


@dataclass(frozen=True, slots=True)
class AdvantageRule:
    """Rewards are normalised, spread over tokens, whitened, hidden where masked; each step where it is set.

    `masking`: how a hole's own values are kept out of what is carried over it; `returns_hidden`: of returns per token;
    `chunk`: returns are taken so many tokens at a time.
    """

    normalization: Normalization | None = None
    spread: Spread = Spread.REPEAT
    hole: Hole = Hole.TOKEN
    masking: Masking = Masking.SELECT
    whitening: Whitening | None = None
    hidden: bool = True
    returns_hidden: bool = True
    chunk: int | None = None
    grouping: Grouping = Grouping.INDEX

    @property
    def needs_values(self) -> bool:
        return self.spread is Spread.GAE


_TOKEN_MEAN = Aggregation(Mode.TOKEN_MEAN, token_eps=1e-8)


@dataclass(frozen=True, slots=True)
class LossRule:
    """A policy's loss; `metrics`: how clipped fraction and KL to the old policy are reduced.

    `ratio_limit`: a token's log-ratio is held within it; `sequence_limit`: a row's is held below it; `row_floor`,
    `row_eps`, `row_masking`: how a row's mean log-ratio is taken; `through_tokens`: a row's ratio passes each token's
    gradient; `mean_advantages`: a row's advantage is the mean of its tokens', zero where masked; `hidden_ratios`: the
    ratio of a masked token is zero; `dual`: the bound for negative advantages is there, where a run sets it;
    `by_micro_batch`: each micro-batch is reduced by itself, and the loss is the mean of these.
    """

    surrogate: Surrogate
    aggregation: Aggregation
    metrics: Aggregation = _TOKEN_MEAN
    level: Level = Level.TOKEN
    ratio_limit: float | None = None
    sequence_limit: float | None = None
    through_tokens: bool = True
    row_floor: float = 1.0
    row_eps: float = 0.0
    row_masking: Masking = Masking.MULTIPLY
    mean_advantages: bool = False
    hidden_ratios: bool = False
    dual: bool = False
    cap: Cap = Cap.BAND
    by_micro_batch: bool = False
