"""slime 0.3.1 (https://thudm.github.io/slime, its training arguments; recorded outputs of slime-0.3.1)."""

from rollbook.replay.dialects.rules import AdvantageRule, Level, LossRule, Spread, Surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Rows
from rollbook.replay.kernels.groups import Level as Over
from rollbook.replay.kernels.groups import Normalization, Singleton
from rollbook.replay.kernels.kl import KlRule
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.returns import Hole
from rollbook.replay.kernels.whiten import Whitening

FRAMEWORK, VERSION = "slime", "0.3.1"

WHITENING = Whitening(ddof=1, eps=1e-8, one_pass=True, few=True)
KL = KlRule(value_limit=10.0, limited=frozenset({"low_var_kl"}))

REWARDS = Normalization(eps=1e-6, singleton=Singleton.FORMULA)
CENTRED_REWARDS = Normalization(std=Over.NONE)
REPEAT = AdvantageRule(hidden=False)
RETURNS = AdvantageRule(spread=Spread.RETURNS, hole=Hole.TOKEN, hidden=False)
GAE = AdvantageRule(spread=Spread.GAE, hole=Hole.TOKEN, hidden=False)

SUM_OF_MEANS = Aggregation(Mode.SEQ_MEAN_TOKEN_MEAN, rows=Rows.ONE, row_floor=1.0, masking=Masking.MULTIPLY)
"""Not divided by the number of rows: the trainer scales it later."""
SUM = Aggregation(Mode.TOKEN_SUM, masking=Masking.MULTIPLY)

PPO = LossRule(Surrogate.PPO, SUM_OF_MEANS, dual=True)
GSPO = LossRule(Surrogate.PPO, SUM_OF_MEANS, level=Level.SEQUENCE, through_tokens=False, dual=True)
CISPO = LossRule(Surrogate.CISPO, SUM_OF_MEANS)
