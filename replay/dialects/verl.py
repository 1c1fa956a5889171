"""verl 0.9.1 (https://verl.readthedocs.io, "Algorithms"; recorded outputs of verl-0.9.1)."""

from rollbook.replay.dialects.rules import AdvantageRule, Level, LossRule, Spread, Surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode
from rollbook.replay.kernels.groups import Level as Over
from rollbook.replay.kernels.groups import Normalization, Singleton
from rollbook.replay.kernels.kl import KlRule
from rollbook.replay.kernels.masked import Masking
from rollbook.replay.kernels.returns import Hole
from rollbook.replay.kernels.rounding import Rounding
from rollbook.replay.kernels.whiten import Whitening

FRAMEWORK, VERSION = "verl", "0.9.1"

WHITENING = Whitening(ddof=1, eps=1e-8)
KL = KlRule(ratio_limit=20.0, value_limit=10.0, one_last=True, limited=frozenset({"k3", "low_var_kl"}))

GRPO = AdvantageRule(Normalization(singleton=Singleton.RAW, eps=1e-6, rounding=Rounding.EACH))
DR_GRPO = AdvantageRule(Normalization(singleton=Singleton.RAW, std=Over.NONE, rounding=Rounding.EACH))
GRPO_VECTORIZED = AdvantageRule(Normalization(singleton=Singleton.RAW, eps=1e-6, rounding=Rounding.ADDED))
RLOO = AdvantageRule(
    Normalization(singleton=Singleton.RAW, std=Over.NONE, leave_one_out=True, rounding=Rounding.SCALED)
)
RLOO_VECTORIZED = AdvantageRule(
    Normalization(singleton=Singleton.ZERO, std=Over.NONE, leave_one_out=True, rounding=Rounding.ADDED)
)
REINFORCE_PLUS_PLUS = AdvantageRule(
    spread=Spread.RETURNS, hole=Hole.SKIP, masking=Masking.MULTIPLY, whitening=WHITENING
)
REINFORCE_PLUS_PLUS_BASELINE = AdvantageRule(
    Normalization(singleton=Singleton.RAW, std=Over.NONE, rounding=Rounding.EACH), whitening=WHITENING
)
GAE = AdvantageRule(spread=Spread.GAE, hole=Hole.SKIP, masking=Masking.MULTIPLY, whitening=WHITENING, hidden=False)


def aggregation(mode: Mode) -> Aggregation:
    """The reduction `loss_agg_mode` names."""
    return Aggregation(mode, row_eps=1e-8, masking=_masking(mode))


def _masking(mode: Mode) -> Masking:
    return Masking.SELECT if mode in (Mode.TOKEN_MEAN, Mode.TOKEN_SUM) else Masking.MULTIPLY


def ppo(mode: Mode) -> LossRule:
    return LossRule(Surrogate.PPO, aggregation(mode), ratio_limit=20.0, dual=True)


def gspo(mode: Mode) -> LossRule:
    return LossRule(Surrogate.PPO, aggregation(mode), level=Level.SEQUENCE, sequence_limit=10.0)


def sapo(_: Mode) -> LossRule:
    return LossRule(Surrogate.SAPO, aggregation(Mode.SEQ_MEAN_TOKEN_MEAN), ratio_limit=20.0)


def cispo(mode: Mode) -> LossRule:
    return LossRule(Surrogate.CISPO, aggregation(mode), ratio_limit=20.0)


def reinforce(mode: Mode) -> LossRule:
    return LossRule(Surrogate.REINFORCE, aggregation(mode))


IMPORTANCE_LIMIT = 20.0
"""Of the log-ratios between sampler and trainer."""

ADVANTAGES = {
    "grpo": GRPO,
    "grpo without std": DR_GRPO,
    "grpo_vectorized": GRPO_VECTORIZED,
    "rloo": RLOO,
    "rloo_vectorized": RLOO_VECTORIZED,
    "reinforce_plus_plus": REINFORCE_PLUS_PLUS,
    "reinforce_plus_plus_baseline": REINFORCE_PLUS_PLUS_BASELINE,
    "gae": GAE,
}
LOSSES = {
    **{
        f"{name}, {mode}": make(mode)
        for mode in Mode
        for name, make in (("vanilla", ppo), ("gspo", gspo), ("cispo", cispo), ("reinforce", reinforce))
    },
    "sapo": sapo(Mode.TOKEN_MEAN),
}
DUAL = 3.0
"""Always on in the vanilla loss."""
