"""SkyRL 0.4.0 (https://docs.skyrl.ai, "Algorithms"; recorded outputs of skyrl-0.4.0)."""

from rollbook.replay.dialects.rules import AdvantageRule, Level, LossRule, Spread, Surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Rows
from rollbook.replay.kernels.groups import Level as Over
from rollbook.replay.kernels.groups import Normalization, Singleton
from rollbook.replay.kernels.kl import KlRule
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.returns import Hole
from rollbook.replay.kernels.rounding import Rounding
from rollbook.replay.kernels.whiten import Whitening

FRAMEWORK, VERSION = "skyrl", "0.4.0"

WHITENING = Whitening(ddof=1, eps=1e-8, masking=Masking.MULTIPLY)
KL = KlRule(ratio_limit=20.0, value_limit=10.0, one_last=True, limited=frozenset({"k3"}))
IMPORTANCE_LIMIT = 20.0

GRPO = AdvantageRule(Normalization(singleton=Singleton.RAW, eps=1e-6, rounding=Rounding.EACH))
DR_GRPO = AdvantageRule(Normalization(singleton=Singleton.RAW, std=Over.NONE, rounding=Rounding.EACH))
RLOO = AdvantageRule(Normalization(singleton=Singleton.ZERO, std=Over.NONE, leave_one_out=True, rounding=Rounding.EACH))
REINFORCE_PLUS_PLUS = AdvantageRule(
    spread=Spread.RETURNS,
    hole=Hole.RESET,
    masking=Masking.MULTIPLY,
    whitening=WHITENING,
    returns_hidden=False,
)
GAE = AdvantageRule(spread=Spread.GAE, hole=Hole.TOKEN, whitening=WHITENING, hidden=False)

SEQ_MEAN = Aggregation(Mode.SEQ_MEAN_TOKEN_MEAN, rows=Rows.ALL, row_floor=1.0, masking=Masking.MULTIPLY)
SUM = Aggregation(Mode.TOKEN_SUM, masking=Masking.MULTIPLY)
"""A loss is a sum: what it is divided by lies in its advantages already."""

PPO = LossRule(Surrogate.PPO, SUM, ratio_limit=20.0)
DUAL_CLIP = LossRule(Surrogate.PPO, SUM, ratio_limit=20.0, dual=True)
CISPO = LossRule(Surrogate.CISPO, SUM, ratio_limit=20.0)
GSPO = LossRule(Surrogate.PPO, SUM, level=Level.SEQUENCE, sequence_limit=10.0)
SAPO = LossRule(Surrogate.SAPO, SUM, ratio_limit=20.0)

ADVANTAGES = {
    "grpo": GRPO,
    "grpo without std": DR_GRPO,
    "rloo": RLOO,
    "reinforce++": REINFORCE_PLUS_PLUS,
    "gae": GAE,
}
LOSSES = {"regular": PPO, "gspo": GSPO, "cispo": CISPO, "sapo": SAPO}
DUAL_LOSSES = {"dual_clip": DUAL_CLIP}
DUAL = 3.0
