"""Per-token estimators of the distance to the reference policy (J. Schulman, "Approximating KL divergence", 2020)."""

from collections.abc import Callable

from rollbook.replay.kernels.array import Array, namespace

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
