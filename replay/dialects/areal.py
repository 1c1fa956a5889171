"""AReaL 1.0.4 (https://inclusionai.github.io/AReaL; recorded outputs of areal-1.0.4)."""

from dataclasses import replace

from rollbook.replay.dialects.rules import AdvantageRule, Level, LossRule, Spread, Surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode
from rollbook.replay.kernels.groups import Level as Over
from rollbook.replay.kernels.groups import Normalization, Singleton
from rollbook.replay.kernels.kl import KlRule
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.returns import Hole
from rollbook.replay.kernels.whiten import Whitening

FRAMEWORK, VERSION = "areal", "1.0.4"

WHITENING = Whitening(ddof=1, eps=1e-5, eps_outside=True, fewest=1, masking=Masking.MULTIPLY)
KL = KlRule(value_limit=10.0)

GROUP = Normalization(eps=1e-5, singleton=Singleton.ZERO, about_centre=True)
CENTRED = Normalization(std=Over.NONE, singleton=Singleton.ZERO)
GAE = AdvantageRule(spread=Spread.GAE, hole=Hole.SKIP, masking=Masking.MULTIPLY, hidden=False)

TOKEN_MEAN = Aggregation(Mode.TOKEN_MEAN, token_floor=1.0)
VALUE_MEAN = Aggregation(Mode.TOKEN_MEAN)
"""Of the loss of values: without tokens it is no number."""
PPO = LossRule(Surrogate.PPO, TOKEN_MEAN, hidden_ratios=True, dual=True)
GSPO = LossRule(
    Surrogate.PPO,
    TOKEN_MEAN,
    level=Level.SEQUENCE,
    through_tokens=False,
    row_masking=Masking.SELECT,
    mean_advantages=True,
    hidden_ratios=True,
    dual=True,
)
SAPO = LossRule(Surrogate.SAPO, TOKEN_MEAN)
SEQUENCE_SAPO = LossRule(
    Surrogate.SAPO,
    TOKEN_MEAN,
    level=Level.SEQUENCE,
    through_tokens=False,
    row_masking=Masking.SELECT,
    mean_advantages=True,
    hidden_ratios=True,
)

ADVANTAGES = {
    "group mean, group std": AdvantageRule(GROUP, hidden=False),
    "group mean, biased group std": AdvantageRule(replace(GROUP, ddof=0), hidden=False),
    "group mean": AdvantageRule(CENTRED, hidden=False),
    "group mean, batch std": AdvantageRule(replace(GROUP, std=Over.BATCH), hidden=False),
    "group mean without one": AdvantageRule(
        replace(CENTRED, leave_one_out=True, singleton=Singleton.FORMULA), hidden=False
    ),
    "batch mean, batch std": AdvantageRule(replace(GROUP, mean=Over.BATCH, std=Over.BATCH), hidden=False),
    "batch mean without one, batch std": AdvantageRule(
        replace(GROUP, mean=Over.BATCH, std=Over.BATCH, leave_one_out=True, singleton=Singleton.FORMULA), hidden=False
    ),
    "biased batch std": AdvantageRule(replace(GROUP, mean=Over.NONE, std=Over.BATCH, ddof=0), hidden=False),
    "group mean, group std, batch-normalized": AdvantageRule(GROUP, whitening=WHITENING),
    "group mean, batch-normalized": AdvantageRule(CENTRED, whitening=WHITENING),
    "gae": GAE,
}
LOSSES = {"ppo": PPO, "gspo": GSPO, "sapo": SAPO, "sapo of sequences": SEQUENCE_SAPO}
