"""slime 0.3.1 (https://thudm.github.io/slime, its training arguments; recorded outputs of slime-0.3.1)."""

from dataclasses import replace

from rollbook.replay.dialects.rules import AdvantageRule, Grouping, Level, LossRule, Spread, Surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Rows
from rollbook.replay.kernels.groups import Level as Over
from rollbook.replay.kernels.groups import Normalization, Singleton
from rollbook.replay.kernels.kl import KlRule
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.returns import Hole
from rollbook.replay.kernels.rounding import Rounding
from rollbook.replay.kernels.whiten import Whitening

FRAMEWORK, VERSION = "slime", "0.3.1"

WHITENING = Whitening(ddof=1, eps=1e-8, one_pass=True, fewest=1, masking=Masking.MULTIPLY)
CHUNK = 128
"""Tokens of which slime takes the returns at once (`chunked_discounted_returns`)."""
KL = KlRule(value_limit=10.0, limited=frozenset({"low_var_kl"}))

REWARDS = Normalization(eps=1e-6, singleton=Singleton.FORMULA, rounding=Rounding.CENTRED)
CENTRED_REWARDS = Normalization(std=Over.NONE, rounding=Rounding.CENTRED)
REPEAT = AdvantageRule(hidden=False)
RETURNS = AdvantageRule(spread=Spread.RETURNS, hole=Hole.TOKEN, chunk=CHUNK, hidden=False)
GAE = AdvantageRule(spread=Spread.GAE, hole=Hole.TOKEN, chunk=CHUNK, hidden=False)

SUM_OF_MEANS = Aggregation(Mode.SEQ_MEAN_TOKEN_MEAN, rows=Rows.ONE, row_floor=1.0, masking=Masking.MULTIPLY)
"""Not divided by the number of rows: the trainer scales it later."""
SUM = Aggregation(Mode.TOKEN_SUM, masking=Masking.MULTIPLY)

PPO = LossRule(Surrogate.PPO, SUM_OF_MEANS, SUM_OF_MEANS, dual=True)
GSPO = LossRule(Surrogate.PPO, SUM_OF_MEANS, SUM_OF_MEANS, level=Level.SEQUENCE, through_tokens=False, dual=True)
CISPO = LossRule(Surrogate.CISPO, SUM_OF_MEANS, SUM_OF_MEANS)

ADVANTAGES = {
    "grpo": replace(REPEAT, normalization=REWARDS, grouping=Grouping.EVEN_OR_BATCH),
    "grpo without std": replace(REPEAT, normalization=CENTRED_REWARDS, grouping=Grouping.EVEN_OR_BATCH),
    "grpo, whole batch": replace(REPEAT, normalization=replace(REWARDS, mean=Over.BATCH, std=Over.BATCH)),
    "grpo without std, whole batch": replace(REPEAT, normalization=replace(CENTRED_REWARDS, mean=Over.BATCH)),
    "reinforce_plus_plus": RETURNS,
    "reinforce_plus_plus, normalized": replace(RETURNS, whitening=WHITENING),
    "reinforce_plus_plus_baseline, normalized": replace(
        REPEAT, normalization=CENTRED_REWARDS, whitening=WHITENING, grouping=Grouping.EVEN_OR_BATCH
    ),
    "ppo": GAE,
    "ppo, normalized": replace(GAE, whitening=WHITENING),
}
_PER_TOKEN = {
    name: replace(rule, aggregation=SUM, metrics=SUM) for name, rule in (("ppo", PPO), ("gspo", GSPO), ("cispo", CISPO))
}
LOSSES = {
    "ppo": PPO,
    "gspo": GSPO,
    "cispo": CISPO,
    **{f"{name}, per token": rule for name, rule in _PER_TOKEN.items()},
}
