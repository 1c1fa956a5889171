"""TRL's names for what it computes, as the conventions that replay knows under them. Pure."""

from collections import Counter
from collections.abc import Iterator

from rollbook.producers.trl.facts import Choices, Conditions, SamplerCorrection, StepFacts
from rollbook.schemas.records.convention import (
    Behavior,
    Conventions,
    Correction,
    EntropyMean,
    KlTerm,
    NamedConvention,
    OffPolicyMask,
    Outlier,
    Reached,
    Vespo,
    WholeBatch,
)

FRAMEWORK, VERSION = "trl", "1.16.0"
_SERIES = "1.16."
"""Releases that compute as VERSION does; another is named as what it is, which replay then says it does not know."""
TOKEN_LOSSES = frozenset({"dapo", "cispo", "vespo"})
"""Losses that are divided by the tokens of the whole generation."""
ASYNC = "async"
"""TRL's name of its asynchronous trainer, and replay's of that one's loss and advantages."""
MICRO_BATCH_LOSSES = frozenset({"bnpo", ASYNC})
"""Losses that are divided by the tokens of each micro-batch."""
_REACH = {"token": Reached.TOKEN, "sequence": Reached.SEQ_SUM}
_OUTSIDE = {"truncate": Outlier.TRUNCATE, "mask": Outlier.ZERO}


def conventions_of(step: StepFacts) -> Conventions:
    """Under which TRL computed a step, in one process."""
    conditions, choices = step.conditions, step.conditions.choices
    positive, negative = conditions.temperatures
    threshold = choices.off_policy_mask_threshold
    return Conventions(
        advantages=_named(
            conditions, "+".join([advantages_name(conditions.aggregation, conditions.scale), *_unknown(step)])
        ),
        loss=_named(conditions, "+".join([loss_name(conditions.loss, conditions.level), *_beyond(step)])),
        tau_pos=positive,
        tau_neg=negative,
        whole_batch=_whole_batch(step),
        corrections=() if choices.correction is None else (_correction(choices.correction),),
        kl_term=KlTerm(coef=conditions.beta, by_ratio=choices.use_bias_correction_kl) if conditions.beta else None,
        delta=choices.delta,
        entropy_mean=EntropyMean.MICRO_BATCH if choices.has_entropy_bonus else None,
        top_entropy_quantile=choices.top_entropy_quantile if choices.top_entropy_quantile < 1 else None,
        off_policy_mask=None
        if threshold is None
        else OffPolicyMask(threshold=threshold, behavior=Behavior.ROLLOUT if choices.has_sampler else Behavior.OLD),
        vespo=_vespo(choices) if conditions.loss == "vespo" else None,
    )


def advantages_name(aggregation: str, scale: str) -> str:
    """The convention of advantages."""
    return f"scale_rewards {scale}" if aggregation == "sum_then_normalize" else aggregation


def loss_name(loss_type: str, level: str) -> str:
    """The convention of a `loss_type` under an `importance_sampling_level`."""
    if loss_type == "luspo":
        return "luspo" if level == "sequence" else "luspo of tokens"
    return loss_type if level == "token" else f"{loss_type} of sequences"


def _unknown(step: StepFacts) -> Iterator[str]:
    """The asynchronous trainer normalises conversations: where a group has more or fewer rows than conversations, it
    does not tell which rows are of one."""
    if step.conditions.aggregation != ASYNC:
        return
    sizes = Counter(row.identity.group_id for row in step.generation.rows)
    if any(sizes[row.identity.group_id] != step.conditions.n_generations for row in step.rows):
        yield "unknown_conversations"


def _beyond(step: StepFacts) -> Iterator[str]:
    """What no convention computes of the loss. TRL's off-policy mask has no distance where the sampler left a gap; a
    recording has there the trainer's number before the step, which is one."""
    if not step.conditions.is_plain:
        yield "aux_loss"
    choices = step.conditions.choices
    if choices.off_policy_mask_threshold is not None and choices.has_sampler and any(row.has_gaps for row in step.rows):
        yield "gaps_in_off_policy_mask"


def _named(conditions: Conditions, name: str) -> NamedConvention:
    version = VERSION if conditions.version.startswith(_SERIES) else conditions.version
    return NamedConvention(framework=FRAMEWORK, version=version, name=name)


def _whole_batch(step: StepFacts) -> WholeBatch:
    kind = step.conditions.loss
    if kind in TOKEN_LOSSES:
        return WholeBatch(tokens=step.batch_tokens * step.ranks, ranks=float(step.ranks))
    return WholeBatch(length=float(step.conditions.max_completion_length) if kind == "dr_grpo" else None)


def _correction(given: SamplerCorrection) -> Correction:
    reach, _, outside = given.mode.partition("_")
    return Correction(reach=_REACH[reach], least=given.least, most=given.most, outside=_OUTSIDE[outside])


def _vespo(choices: Choices) -> Vespo:
    k_pos, lambda_pos, k_neg, lambda_neg = choices.vespo
    return Vespo(k_pos=k_pos, lambda_pos=lambda_pos, k_neg=k_neg, lambda_neg=lambda_neg)
