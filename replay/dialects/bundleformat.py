"""The bundle format 1.0.0 itself: what replay recomputes (docs/BUNDLES.md)."""

from rollbook.replay.dialects.rules import AdvantageRule, LossRule, Surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Rows
from rollbook.replay.kernels.groups import Level as Over
from rollbook.replay.kernels.groups import Normalization

FRAMEWORK, VERSION = "bundle-format", "1.0.0"

ADVANTAGES = {
    "grpo": AdvantageRule(Normalization(eps=1e-6), hidden=False),
    "grpo without std": AdvantageRule(Normalization(std=Over.NONE), hidden=False),
}
SUM_OF_MEANS = Aggregation(Mode.SEQ_MEAN_TOKEN_MEAN, rows=Rows.ONE, row_floor=1.0)
LOSSES = {"ppo, sum of sample means": LossRule(Surrogate.PPO, SUM_OF_MEANS, SUM_OF_MEANS)}
