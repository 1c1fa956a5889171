"""OpenRLHF 0.11.2 (https://openrlhf.readthedocs.io; recorded outputs of openrlhf-0.11.2)."""

from dataclasses import replace

from rollbook.replay.dialects.rules import AdvantageRule, Level, LossRule, Spread, Surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Rows
from rollbook.replay.kernels.groups import Level as Over
from rollbook.replay.kernels.groups import Normalization, Singleton
from rollbook.replay.kernels.kl import KlRule
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.returns import Hole
from rollbook.replay.kernels.rounding import Rounding
from rollbook.replay.kernels.whiten import Whitening

FRAMEWORK, VERSION = "openrlhf", "0.11.2"

WHITENING = Whitening(ddof=0, eps=0.0, least_variance=1e-8, fewest=0, masking=Masking.MULTIPLY)
CENTRING = Whitening(scale=False, fewest=0, masking=Masking.MULTIPLY)
KL = KlRule(ratio_limit=20.0, value_limit=10.0)

GROUP_NORM = Normalization(eps=1e-9, singleton=Singleton.FORMULA, rounding=Rounding.ROWS)
CENTRED = Normalization(std=Over.NONE, rounding=Rounding.ROWS)
BATCH_CENTRED = Normalization(mean=Over.BATCH, std=Over.NONE, rounding=Rounding.ROWS)
RLOO = Normalization(std=Over.NONE, leave_one_out=True, singleton=Singleton.NAN, rounding=Rounding.ROWS)

RETURNS = AdvantageRule(spread=Spread.RETURNS, hole=Hole.TOKEN, hidden=False)
GAE = AdvantageRule(spread=Spread.GAE, hole=Hole.TOKEN, hidden=False)

TOKEN_MEAN = Aggregation(Mode.TOKEN_MEAN, masking=Masking.MULTIPLY)
SEQ_MEAN = Aggregation(
    Mode.SEQ_MEAN_TOKEN_MEAN,
    rows=Rows.NONEMPTY,
    row_floor=1.0,
    masking=Masking.MULTIPLY,
    row_masking=Masking.MULTIPLY,
)

PPO = LossRule(Surrogate.PPO, TOKEN_MEAN, ratio_limit=20.0, dual=True)
GSPO = LossRule(Surrogate.PPO, SEQ_MEAN, level=Level.SEQUENCE, through_tokens=False, dual=True)

ADVANTAGES = {
    "reinforce": replace(RETURNS, whitening=WHITENING),
    "reinforce, centred": replace(RETURNS, whitening=CENTRING),
    "reinforce_baseline": AdvantageRule(CENTRED, whitening=WHITENING),
    "reinforce_baseline, centred": AdvantageRule(CENTRED, whitening=CENTRING),
    "rloo": AdvantageRule(RLOO),
    "group_norm": AdvantageRule(GROUP_NORM),
    "dr_grpo": AdvantageRule(CENTRED),
    "flash_reinforce": AdvantageRule(BATCH_CENTRED),
    "gae": replace(GAE, whitening=WHITENING),
}
LOSSES = {
    "ppo, token mean": PPO,
    "ppo, sequence mean": replace(PPO, aggregation=SEQ_MEAN),
    "gspo": GSPO,
}
