"""Per-token estimators of the distance to the reference policy (J. Schulman, "Approximating KL divergence", 2020)."""

from collections.abc import Callable
from dataclasses import dataclass

from rollbook.replay.kernels.array import Array, constant, namespace

LOW_VAR_CLAMP = 10.0


def k1(difference: Array) -> Array:
    """d."""
    return difference


def k2(difference: Array) -> Array:
    """d^2 / 2."""
    return difference * difference / 2


def k3(difference: Array) -> Array:
    """e^-d - 1 + d."""
    xp = namespace(difference)
    return xp.exp(-difference) - 1 + difference


def low_var_kl(difference: Array) -> Array:
    """k3, clamped to +-10."""
    xp = namespace(difference)
    return xp.clip(k3(difference), -LOW_VAR_CLAMP, LOW_VAR_CLAMP)


ESTIMATORS: dict[str, Callable[[Array], Array]] = {"k1": k1, "k2": k2, "k3": k3, "low_var_kl": low_var_kl}


def token_kl(old_log_probs: Array, ref_log_probs: Array, estimator: str) -> Array:
    """The estimator of d = old - ref, per token, unscaled: the coefficient belongs to whoever uses it.

    old_log_probs, ref_log_probs: float32 [tokens]; returns float32 [tokens]. Raises KeyError for another name.
    """
    return ESTIMATORS[estimator](old_log_probs - ref_log_probs)


@dataclass(frozen=True, slots=True)
class KlRule:
    """What a library does to an estimator: the log-ratio of k3 held within +-`ratio_limit` before, the estimate of
    those in `limited` within +-`value_limit` after. `one_last`: k3 is (e^-d + d) - 1, in float32 another number."""

    ratio_limit: float | None = None
    value_limit: float | None = None
    one_last: bool = False
    limited: frozenset[str] = frozenset({"k1", "k2", "k3", "low_var_kl", "abs"})


PLAIN = KlRule()


def absolute(difference: Array) -> Array:
    """|d|."""
    return namespace(difference).abs(difference)


def approximate_kl(log_probs: Array, ref_log_probs: Array, estimator: str, rule: KlRule = PLAIN) -> Array:
    """The estimator of d = log_probs - ref_log_probs under a library's rule, per token.

    `low_var_kl` is k3 here: whether it is clamped is the rule's. An estimator with a trailing + has its own value and
    the gradient of k2, which is the gradient of the KL itself (Tang and Munos 2025, arXiv:2506.09477). Raises KeyError
    for another name.
    """
    if estimator.endswith("+"):
        value = constant(approximate_kl(log_probs, ref_log_probs, estimator[:-1], rule))
        gradient = k2(log_probs - ref_log_probs)
        return gradient - constant(gradient) + value
    xp = namespace(log_probs, ref_log_probs)
    difference = log_probs - ref_log_probs
    if rule.ratio_limit is not None and estimator in ("k3", "low_var_kl"):
        difference = xp.clip(difference, -rule.ratio_limit, rule.ratio_limit)
    formula = _FORMULAS[estimator]
    found = xp.exp(-difference) + difference - 1 if rule.one_last and formula is k3 else formula(difference)
    if rule.value_limit is not None and estimator in rule.limited:
        found = xp.clip(found, -rule.value_limit, rule.value_limit)
    return found


_FORMULAS: dict[str, Callable[[Array], Array]] = {"k1": k1, "k2": k2, "k3": k3, "low_var_kl": k3, "abs": absolute}
