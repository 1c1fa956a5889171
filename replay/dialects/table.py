"""Every convention that is known, in ONE table: search, tests and documentation read it from here."""

from collections.abc import Mapping

from rollbook.replay.dialects import areal, bundleformat, openrlhf, skyrl, slime, trl, verl
from rollbook.replay.dialects.convention import AdvantageConvention, LossConvention
from rollbook.replay.kernels.kl import PLAIN

_MODULES = (areal, bundleformat, openrlhf, skyrl, slime, trl, verl)

ADVANTAGES: tuple[AdvantageConvention, ...] = tuple(
    AdvantageConvention(module.FRAMEWORK, module.VERSION, name, rule)
    for module in _MODULES
    for name, rule in module.ADVANTAGES.items()
)

BEYOND: Mapping[tuple[str, str], str] = {
    (module.FRAMEWORK, name): reason for module in _MODULES for name, reason in getattr(module, "BEYOND", {}).items()
}
"""Framework and name of what is known not to be computable, and why."""


def _losses() -> tuple[LossConvention, ...]:
    found = [
        LossConvention(
            module.FRAMEWORK,
            module.VERSION,
            name,
            rule,
            dual=verl.DUAL if module is verl and rule.dual else None,
            kl=getattr(module, "KL", PLAIN),
        )
        for module in _MODULES
        for name, rule in module.LOSSES.items()
    ]
    dual = [
        LossConvention(skyrl.FRAMEWORK, skyrl.VERSION, name, rule, dual=skyrl.DUAL, kl=skyrl.KL)
        for name, rule in skyrl.DUAL_LOSSES.items()
    ]
    return (*found, *dual)


LOSSES: tuple[LossConvention, ...] = _losses()
