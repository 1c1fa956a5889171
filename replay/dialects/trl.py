"""TRL 1.16.0 (https://huggingface.co/docs/trl, "GRPO Trainer"; recorded training runs of trl-1.16.0)."""

from rollbook.replay.dialects.rules import AdvantageRule, Cap, Level, LossRule, Surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Rows
from rollbook.replay.kernels.groups import Level as Over
from rollbook.replay.kernels.groups import Normalization
from rollbook.replay.kernels.kl import KlRule
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.rounding import Rounding

FRAMEWORK, VERSION = "trl", "1.16.0"

KL = KlRule(one_last=True)

GRPO = AdvantageRule(Normalization(eps=1e-4, rounding=Rounding.SQUARES), hidden=False)
CENTRED = AdvantageRule(Normalization(std=Over.NONE, rounding=Rounding.SQUARES), hidden=False)
BATCH_SCALED = AdvantageRule(Normalization(std=Over.BATCH, eps=1e-4, rounding=Rounding.SQUARES), hidden=False)
ASYNC_GRPO = AdvantageRule(Normalization(eps=1e-8, ddof=0), hidden=False)

SEQ_MEAN = Aggregation(Mode.SEQ_MEAN_TOKEN_MEAN, rows=Rows.ALL, row_floor=1.0, masking=Masking.MULTIPLY)
SEQ_SUM = Aggregation(Mode.SEQ_MEAN_TOKEN_SUM, rows=Rows.ALL, masking=Masking.MULTIPLY)
TOKEN_MEAN = Aggregation(Mode.TOKEN_MEAN, token_floor=1.0, masking=Masking.MULTIPLY)
LENGTH_MEAN = Aggregation(Mode.SEQ_MEAN_TOKEN_SUM_NORM, rows=Rows.ALL, masking=Masking.MULTIPLY)

GRPO_LOSS = LossRule(Surrogate.PPO, SEQ_MEAN)
BNPO_LOSS = LossRule(Surrogate.PPO, TOKEN_MEAN)
DAPO_LOSS = LossRule(Surrogate.PPO, TOKEN_MEAN)
DR_GRPO_LOSS = LossRule(Surrogate.PPO, LENGTH_MEAN)
CISPO_LOSS = LossRule(Surrogate.CISPO, TOKEN_MEAN, cap=Cap.ABSOLUTE)
SAPO_LOSS = LossRule(Surrogate.SAPO, SEQ_MEAN)
GSPO_LOSS = LossRule(Surrogate.PPO, SEQ_MEAN, level=Level.SEQUENCE, through_tokens=False)
LUSPO_LOSS = LossRule(Surrogate.PPO, SEQ_SUM, level=Level.SEQUENCE, through_tokens=False)

ADVANTAGES = {
    "scale_rewards group": GRPO,
    "scale_rewards none": CENTRED,
    "scale_rewards batch": BATCH_SCALED,
    "async": ASYNC_GRPO,
}
LOSSES = {
    "grpo": GRPO_LOSS,
    "bnpo": BNPO_LOSS,
    "dapo": DAPO_LOSS,
    "dr_grpo": DR_GRPO_LOSS,
    "cispo": CISPO_LOSS,
    "sapo": SAPO_LOSS,
    "grpo of sequences": GSPO_LOSS,
    "luspo": LUSPO_LOSS,
}
