"""TRL 1.16.0 (https://huggingface.co/docs/trl, "GRPO Trainer"; `_compute_loss` of `trainer/grpo_trainer.py`,
`compute_loss` of `experimental/async_grpo/async_grpo_trainer.py`; recorded training runs of trl-1.16.0)."""

from dataclasses import replace

from rollbook.replay.dialects.rules import AdvantageRule, Cap, Level, LossRule, Surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Rows
from rollbook.replay.kernels.groups import Level as Over
from rollbook.replay.kernels.groups import Normalization, Singleton
from rollbook.replay.kernels.kl import KlRule
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.rounding import Rounding

FRAMEWORK, VERSION = "trl", "1.16.0"

KL = KlRule(one_last=True)

_GROUP = Normalization(eps=1e-4, singleton=Singleton.ZERO, rounding=Rounding.SQUARES)
GRPO = AdvantageRule(_GROUP, hidden=False)
CENTRED = AdvantageRule(replace(_GROUP, std=Over.NONE), hidden=False)
BATCH_SCALED = AdvantageRule(replace(_GROUP, std=Over.BATCH), hidden=False)
ASYNC_GRPO = AdvantageRule(Normalization(eps=1e-8, ddof=0), hidden=False)

SEQ_MEAN = Aggregation(Mode.SEQ_MEAN_TOKEN_MEAN, rows=Rows.ALL, row_floor=1.0, masking=Masking.MULTIPLY)
SEQ_SUM = Aggregation(Mode.SEQ_MEAN_TOKEN_SUM, rows=Rows.ALL, masking=Masking.MULTIPLY)
TOKEN_MEAN = Aggregation(Mode.TOKEN_MEAN, token_floor=1.0, masking=Masking.MULTIPLY)
LENGTH_MEAN = Aggregation(Mode.SEQ_MEAN_TOKEN_SUM_NORM, rows=Rows.ALL, masking=Masking.MULTIPLY)

GRPO_LOSS = LossRule(Surrogate.PPO, SEQ_MEAN, by_micro_batch=True)
BNPO_LOSS = LossRule(Surrogate.PPO, TOKEN_MEAN, by_micro_batch=True)
DAPO_LOSS = LossRule(Surrogate.PPO, TOKEN_MEAN)
DR_GRPO_LOSS = LossRule(Surrogate.PPO, LENGTH_MEAN, by_micro_batch=True)
CISPO_LOSS = LossRule(Surrogate.CISPO, TOKEN_MEAN, cap=Cap.ABSOLUTE)
SAPO_LOSS = LossRule(Surrogate.SAPO, SEQ_MEAN, by_micro_batch=True)
LUSPO_LOSS = LossRule(Surrogate.PPO, SEQ_SUM, by_micro_batch=True)
VESPO_LOSS = LossRule(Surrogate.VESPO, TOKEN_MEAN)
ASYNC_LOSS = LossRule(Surrogate.PPO, TOKEN_MEAN, by_micro_batch=True)

ADVANTAGES = {
    "scale_rewards group": GRPO,
    "scale_rewards none": CENTRED,
    "scale_rewards batch": BATCH_SCALED,
    "async": ASYNC_GRPO,
}
_OF_TOKENS = {
    "grpo": GRPO_LOSS,
    "bnpo": BNPO_LOSS,
    "dapo": DAPO_LOSS,
    "dr_grpo": DR_GRPO_LOSS,
    "cispo": CISPO_LOSS,
    "sapo": SAPO_LOSS,
    "vespo": VESPO_LOSS,
}


def of_sequences(rule: LossRule) -> LossRule:
    """The rule under `importance_sampling_level="sequence"`."""
    return replace(rule, level=Level.SEQUENCE, through_tokens=False)


LOSSES = {
    **_OF_TOKENS,
    **{f"{name} of sequences": of_sequences(rule) for name, rule in _OF_TOKENS.items()},
    "luspo": of_sequences(LUSPO_LOSS),
    "luspo of tokens": LUSPO_LOSS,
    "async": ASYNC_LOSS,
}

BEYOND = {
    "normalize_then_sum": "each reward function's rewards of the whole generation are normalised by themselves, and a "
    "bundle has their sum",
    "aux_loss": "the load-balancing loss of a mixture of experts is made of the router's logits, which no bundle has",
    "gaps_in_off_policy_mask": "a token that the sampler gave no number has no distance in TRL's off-policy mask, and "
    "in a bundle it has one",
    "unknown_conversations": "TRL's asynchronous trainer normalises conversations, and does not tell which rows are of "
    "one",
}
"""What TRL computes and no convention does, by the name of the convention or behind a + in it, and why."""
