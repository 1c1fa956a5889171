"""What replay has no contract for, by name: such a stage is unsupported and says so, it is never computed by guess."""

from collections import Counter
from collections.abc import Mapping

from rollbook.replay.bundle.model import Index
from rollbook.replay.kernels.kl import ESTIMATORS
from rollbook.replay.stages import conventional, criticloss
from rollbook.schemas.text import visible

KNOWN_ESTIMATORS: Mapping[str, str] = {
    "on_policy_distillation": "on-policy distillation",
    "opd": "on-policy distillation",
    "gae": "PPO with a critic",
    "ppo": "PPO with a critic",
    "gspo": "GSPO",
    "sapo": "SAPO",
    "cispo": "CISPO",
    "rloo": "RLOO",
    "remax": "ReMax",
    "reinforce_plus_plus": "REINFORCE++",
    "reinforce_plus_plus_baseline": "REINFORCE++ with a baseline",
}
"""Names that trainers give to `advantage_estimator`, and what they mean, so that a refusal says more than a word."""
SUPPORTED_ESTIMATORS = ("grpo",)


def any_topology(_: Index) -> str | None:
    """Nothing is refused."""
    return None


def estimator(index: Index) -> str | None:
    """An estimator without a kernel, where no convention is named."""
    if conventional.names_advantages(index.config):
        return conventional.unknown_advantages(index)
    name = index.config.advantage_estimator
    if name in SUPPORTED_ESTIMATORS:
        return None
    known = KNOWN_ESTIMATORS.get(name.lower().replace("-", "_"))
    meaning = f" ({known})" if known else ""
    return (
        f"advantage_estimator '{name}' is not supported{meaning}, only {', '.join(SUPPORTED_ESTIMATORS)}; "
        "format 1.1.0 names others in config.conventions.advantages"
    )


def context_parallel(index: Index) -> str | None:
    """Rows of which each rank has a part of the tokens."""
    cp = index.identity.rank.cp
    if cp == 1 or index.context_parallel is not None:
        return None
    return f"context-parallel shards (cp {cp}) are not part of format 1.0.0; record context_parallel, of format 1.1.0"


def flattened(index: Index) -> str | None:
    """Several rows of one agentic trajectory as samples of its group: which rows share a reward is not recorded."""
    size = index.config.n_samples_per_prompt
    members = Counter(sample.group_index for sample in index.samples)
    for group, count in members.items():
        if group is not None and count > size:
            return (
                f"flattened agentic samples (group {group} has {count} samples, n_samples_per_prompt is {size}): "
                "format 1.0.0 does not record which rows are of one trajectory"
            )
    return None


def estimator_of_whole_rows(index: Index) -> str | None:
    """What advantages and losses are refused for."""
    return estimator(index) or context_parallel(index)


def advantages(index: Index) -> str | None:
    """What advantages are refused for. A named convention needs rows that it has an answer for."""
    if refused := estimator_of_whole_rows(index):
        return refused
    return conventional.uncomputable_advantages(index) if conventional.names_advantages(index.config) else None


def loss(index: Index) -> str | None:
    """What policy losses are refused for."""
    if conventional.names_loss(index.config):
        return conventional.unknown_loss(index) or context_parallel(index) or conventional.uncomputable_loss(index)
    return estimator_of_whole_rows(index)


def value_loss(index: Index) -> str | None:
    """What critics' losses are refused for."""
    return criticloss.unnamed(index.config) or criticloss.unknown(index) or context_parallel(index)


def grouping(index: Index) -> str | None:
    """What rewards by group are refused for. A named convention says what a group of one gets, and any size is one."""
    if conventional.names_advantages(index.config):
        return conventional.unknown_advantages(index)
    if index.config.grpo_std_normalization and index.config.n_samples_per_prompt == 1:
        return "a group of one has no standard deviation"
    if index.unmeasured:
        return "samples that are not measured are of a named convention; name it in config.conventions.advantages"
    return estimator(index) or flattened(index)


def kl_estimator(index: Index) -> str | None:
    """What the distance to the reference policy is refused for."""
    config = index.config
    if config.kl_coef != 0 and config.kl_loss_type not in ESTIMATORS:
        return f"kl_loss_type '{visible(config.kl_loss_type)}' is not supported, only {', '.join(ESTIMATORS)}"
    return context_parallel(index)
