"""A convention: which framework and version computes what under which name."""

from dataclasses import dataclass

from rollbook.replay.dialects.rules import AdvantageRule, LossRule
from rollbook.replay.kernels.kl import PLAIN, KlRule


@dataclass(frozen=True, slots=True)
class AdvantageConvention:
    framework: str
    version: str
    name: str
    rule: AdvantageRule


@dataclass(frozen=True, slots=True)
class LossConvention:
    """`dual`: the second bound for negative advantages, where the framework has it on without being asked; `kl`: how
    it bounds a KL term in the loss."""

    framework: str
    version: str
    name: str
    rule: LossRule
    dual: float | None = None
    kl: KlRule = PLAIN
