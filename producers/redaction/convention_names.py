"""Names of conventions that everybody may know: those of replay's tables, by framework and version.

Redaction leaves them as they are, since a formula is found by its name. Producers may not import replay, so the names
stand here once more; a test says which of them are missing.
"""

from collections.abc import Mapping

from rollbook.schemas.records.convention import NamedConvention

_VERL_LOSSES = ("vanilla", "gspo", "cispo", "reinforce", "value")
_VERL_MEANS = ("token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")

PUBLIC: Mapping[tuple[str, str], frozenset[str]] = {
    ("areal", "1.0.4"): frozenset(
        {
            "batch mean without one, batch std",
            "batch mean, batch std",
            "biased batch std",
            "gae",
            "group mean",
            "group mean without one",
            "group mean, batch std",
            "group mean, batch-normalized",
            "group mean, biased group std",
            "group mean, group std",
            "group mean, group std, batch-normalized",
            "gspo",
            "ppo",
            "sapo",
            "sapo of sequences",
            "value",
            "value, huber",
        }
    ),
    ("bundle-format", "1.0.0"): frozenset({"grpo", "grpo without std", "ppo, sum of sample means"}),
    ("openrlhf", "0.11.2"): frozenset(
        {
            "dr_grpo",
            "flash_reinforce",
            "gae",
            "group_norm",
            "gspo",
            "ppo, sequence mean",
            "ppo, token mean",
            "reinforce",
            "reinforce, centred",
            "reinforce_baseline",
            "reinforce_baseline, centred",
            "rloo",
            "value, sequence mean",
            "value, token mean",
        }
    ),
    ("skyrl", "0.4.0"): frozenset(
        {
            "cispo",
            "dual_clip",
            "gae",
            "grpo",
            "grpo without std",
            "gspo",
            "regular",
            "reinforce++",
            "rloo",
            "sapo",
            "value",
        }
    ),
    ("slime", "0.3.1"): frozenset(
        {
            "cispo",
            "cispo, per token",
            "grpo",
            "grpo without std",
            "grpo without std, whole batch",
            "grpo, whole batch",
            "gspo",
            "gspo, per token",
            "ppo",
            "ppo, normalized",
            "ppo, per token",
            "reinforce_plus_plus",
            "reinforce_plus_plus, normalized",
            "reinforce_plus_plus_baseline, normalized",
        }
    ),
    ("trl", "1.16.0"): frozenset(
        {
            "async",
            "bnpo",
            "bnpo of sequences",
            "cispo",
            "cispo of sequences",
            "dapo",
            "dapo of sequences",
            "dr_grpo",
            "dr_grpo of sequences",
            "grpo",
            "grpo of sequences",
            "luspo",
            "luspo of tokens",
            "sapo",
            "sapo of sequences",
            "scale_rewards batch",
            "scale_rewards group",
            "scale_rewards none",
            "vespo",
            "vespo of sequences",
        }
    ),
    ("verl", "0.9.1"): frozenset(
        {
            "gae",
            "grpo",
            "grpo without std",
            "grpo_vectorized",
            "reinforce_plus_plus",
            "reinforce_plus_plus_baseline",
            "rloo",
            "rloo_vectorized",
            "sapo",
            *(f"{loss}, {mean}" for loss in _VERL_LOSSES for mean in _VERL_MEANS),
        }
    ),
}


def is_public(named: NamedConvention) -> bool:
    """Whether replay knows a convention by these names, so that they tell nothing of who uses it."""
    return named.name in PUBLIC.get((named.framework, named.version), ())
