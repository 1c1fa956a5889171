"""Where a diverging stage points: the compared value that differs, or the one input that would explain it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rollbook.replay.bundle.model import StageId
from rollbook.replay.engine.blame import (
    LossShift,
    LossTokens,
    Normalizer,
    blame_log_prob,
    blame_raw_reward,
    group_relative,
)
from rollbook.replay.engine.result import FieldResult, Point, most_specific
from rollbook.replay.engine.run import Floats, Run
from rollbook.replay.kernels.groups import Level, normalize
from rollbook.replay.stages.conventional import group_normalization, groups, names_advantages, names_loss, normalizes
from rollbook.replay.stages.rounding import group_rounding
from rollbook.replay.stages.stage import Output, Unit
from rollbook.replay.stages.table import STAGES
from rollbook.schemas.text import visible

_SCALARS_ONLY = (
    "the bundle records scalars only for this stage, which do not tell the sample: record each row's terms "
    "(row_terms pg_loss, entropy_loss, pg_clipfrac, ppo_kl) and materialize again"
)
_ROUNDED = (
    "float32 rounding of its group's mean can explain it, though not excuse it: the trainer's advantages are off by as "
    "much; normalise in float64"
)
_TERMS_AGREE = "every sample's own terms agree: the scalar is wrong"
_NAMED_TERMS_AGREE = (
    "every sample's own terms, masked means, agree: the scalar is wrong, or what the named convention divides by "
    "(its reduction, conventions.whole_batch)"
)
_COHORT = "groups have members that were not consumed, or are not measured: no single raw reward is looked for"
_NOT_BY_GROUP = "its convention does not measure a group by itself: which raw reward is wrong cannot be told"
_NAMED_LOSS = "which token it is cannot be told: the loss of a named convention is not inverted"
_NAMED_VALUE = "which token it is cannot be told: new_values, values or returns of this sample"
_VALUE_TERMS_AGREE = (
    "every sample's own terms agree: the scalar is wrong, or what it was divided by (the convention's reduction, "
    "whole_batch)"
)
_VALUE_SCALARS_ONLY = (
    "the bundle records scalars only for this stage, which do not tell the sample: record each row's terms "
    "(value_loss, value_clipfrac)"
)
_FLOAT32_RESOLUTION = 1e-6
_MAX_NAMED = 5


def find_culprit(run: Run, stage: StageId, fields: tuple[FieldResult, ...]) -> tuple[Point | None, str]:
    """The value to show for a diverging stage, and what is known beyond it."""
    field = most_specific(fields)
    assert field.first is not None
    config = run.bundle.index.config
    if stage is StageId.REWARD_POST_PROCESS:
        if run.bundle.index.cohort or run.bundle.index.unmeasured:
            return field.first, _COHORT
        if names_advantages(config):
            return _of_named_rewards(run, stage, field, field.first)
        return _of_rewards(run, stage, field, field.first)
    if stage is StageId.LOSS_POLICY:
        traced = _is_traced(run, field)
        if names_loss(config):
            return field.first, _of_named_loss(field, traced=traced)
        return _of_loss(run, field, field.first, traced=traced)
    if stage is StageId.LOSS_VALUE:
        return field.first, _of_value_loss(field, traced=_is_traced(run, field))
    return field.first, ""


def _is_traced(run: Run, field: FieldResult) -> bool:
    """Whether each sample's own share of a scalar is recorded, so that they can be told to agree."""
    names = ("pg_loss", "entropy_loss") if field.field == "loss" else (field.field,)
    return all(name in run.bundle.terms for name in names)


def _of_value_loss(field: FieldResult, *, traced: bool) -> str:
    """What is known of a critic's loss: a square does not tell which of its token's three values is wrong."""
    if field.unit is not Unit.SCALAR:
        return _NAMED_VALUE
    return _VALUE_TERMS_AGREE if traced else _VALUE_SCALARS_ONLY


def _of_named_rewards(run: Run, stage: StageId, field: FieldResult, first: Point) -> tuple[Point, str]:
    """Of rewards under a named convention, where it measures a group by itself."""
    config = run.bundle.index.config
    rule = group_normalization(config)
    if rule is None:
        # Rewards that are not normalised are the raw ones: the first that differs is the wrong one.
        return first, _NOT_BY_GROUP if normalizes(config) else ""
    by_std = rule.std is not Level.NONE

    def scale(members: int) -> float:
        return members / (members - 1) if rule.leave_one_out and members > 1 else 1.0

    def rewards(raw: Floats) -> Floats:
        return np.asarray(normalize(raw, np.zeros(raw.size, np.int64), rule), dtype=np.float64)

    members = np.asarray(groups(config, run.batch.group_index)).tolist()
    return _of_raw_reward(run, stage, field, first, members, Normalizer(rewards, by_std, scale))


def _of_named_loss(field: FieldResult, *, traced: bool) -> str:
    """What is known of a loss under a named convention, whose formulas are not inverted."""
    if field.unit is not Unit.SCALAR:
        return _NAMED_LOSS
    return _NAMED_TERMS_AGREE if traced else f"{_NAMED_LOSS}; {_SCALARS_ONLY}"


def _of_rewards(run: Run, stage: StageId, field: FieldResult, first: Point) -> tuple[Point, str]:
    members = [sample.group_index or 0 for sample in run.batch.samples]
    divide = run.bundle.index.config.grpo_std_normalization
    at = run.sample_ids.index(first.sample_id or "")
    if (
        first.abs_error
        <= group_rounding(run.batch.raw_rewards, run.batch.group_index, divide_by_std=divide).possible[at]
    ):
        return first, _ROUNDED
    return _of_raw_reward(run, stage, field, first, members, group_relative(divide_by_std=divide))


def _of_raw_reward(
    run: Run, stage: StageId, field: FieldResult, first: Point, members: Sequence[int], normalizer: Normalizer
) -> tuple[Point, str]:
    recorded = run.recorded(_output(stage, field.field))
    assert recorded is not None
    raw = np.asarray([sample.raw_reward for sample in run.batch.samples], dtype=np.float64)
    blamed = blame_raw_reward(raw, recorded.astype(np.float64), members, normalizer)
    if blamed is None:
        return first, ""
    actual, expected = float(np.asarray(run.chain.recomputed["rewards"])[blamed]), float(recorded[blamed])
    point = Point(run.sample_ids[blamed], None, expected, actual, abs(actual - expected))
    return point, f"another raw reward of {visible(point.sample_id)} alone would explain its group"


def _of_loss(run: Run, field: FieldResult, first: Point, *, traced: bool) -> tuple[Point, str]:
    if field.unit is Unit.SCALAR and traced:
        return first, _TERMS_AGREE
    within = None if field.unit is Unit.SCALAR else run.sample_ids.index(first.sample_id or "")
    prefix = "" if within is None else "sample_"
    shift, resolution = _shift(run, prefix, within or 0)
    fault = blame_log_prob(_active_tokens(run, within), shift, resolution)
    samples = np.unique(np.searchsorted(run.ends, fault.ids, side="right"))
    if samples.size != 1:
        names = ", ".join(visible(run.sample_ids[sample]) for sample in samples[:_MAX_NAMED])
        could = f"a log-prob of any of {samples.size} samples could explain it ({names}); " if names else ""
        return first, f"{could}{_SCALARS_ONLY}" if within is None else ""
    sample = int(samples[0])
    start = int(run.ends[sample - 1]) if sample else 0
    offset = int(fault.ids[0]) - start if fault.ids.size == 1 else None
    token = "one token" if offset is None else f"token {offset}"
    named = visible(run.sample_ids[sample])
    amount = f" by {fault.off_by[0]:.6g}" if fault.ids.size == 1 else ""
    known = f"log_probs or old_log_probs of {named}, {token}, off{amount} would alone explain it"
    return replace(first, sample_id=run.sample_ids[sample], token_offset=offset), known


def _shift(run: Run, prefix: str, at: int) -> tuple[LossShift, float]:
    """Recorded minus recomputed, of the whole step or of one sample's own terms."""
    moved: dict[str, float] = {}
    scale = 1.0
    for name in ("pg_loss", "pg_clipfrac", "ppo_kl"):
        output = _output(StageId.LOSS_POLICY, f"{prefix}{name}")
        recorded = run.recorded(output)
        actual = float(np.asarray(run.chain.recomputed[output.result]).reshape(-1)[at])
        moved[name] = 0.0 if recorded is None else float(recorded[at]) - actual
        scale = max(scale, abs(actual) if np.isfinite(actual) else 1.0)
    return LossShift(**moved), _FLOAT32_RESOLUTION * scale


def _active_tokens(run: Run, within: int | None) -> LossTokens:
    config = run.bundle.index.config
    mask = np.asarray(run.batch.mask)
    lengths = np.diff(run.ends, prepend=0)
    counts = np.asarray([sum(sample.loss_mask) for sample in run.batch.samples], dtype=np.float64)
    if within is not None:
        mask = mask & (np.repeat(np.arange(lengths.size), lengths) == within)
    arrays = _float64(run.chain.tokens, ("old_log_probs", "log_probs", "advantages"))
    return LossTokens(
        log_ratio=(arrays["old_log_probs"] - arrays["log_probs"])[mask],
        advantages=arrays["advantages"][mask],
        active=np.repeat(counts, lengths)[mask],
        ids=np.flatnonzero(mask),
        eps_clip=config.eps_clip,
        eps_clip_high=config.eps_clip_high,
    )


def _float64(tokens: Any, names: Sequence[str]) -> Mapping[str, Floats]:
    return {name: np.asarray(tokens(name)).astype(np.float64) for name in names}


def _output(stage: StageId, field: str) -> Output:
    return next(output for output in STAGES[stage].outputs if output.field == field)
