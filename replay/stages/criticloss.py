"""The loss of a critic under the convention that a bundle of format 1.1.0 names; format 1.0.0 has no such stage."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rollbook.replay.bundle.convention import NamedValueLoss
from rollbook.replay.bundle.model import Config, Index
from rollbook.replay.dialects import areal, openrlhf, skyrl, verl
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Rows, Totals, aggregate
from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.masked import hide
from rollbook.replay.kernels.reduce import sample_means
from rollbook.replay.kernels.value_loss import Distance, value_loss
from rollbook.replay.stages.batch import Chain
from rollbook.replay.stages.blocks import blocks
from rollbook.replay.stages.stage import Results
from rollbook.schemas.text import visible


@dataclass(frozen=True, slots=True)
class ValueRule:
    """How a framework reduces the losses of tokens, and what it holds a value against its return by. `between`: a value
    is held between bounds, not its distance from the old one, which rounds otherwise."""

    aggregation: Aggregation
    distance: Distance = Distance.SQUARED
    between: bool = False


VALUE_LOSSES: Mapping[tuple[str, str, str], ValueRule] = {
    **{
        (verl.FRAMEWORK, verl.VERSION, f"value, {mode}"): ValueRule(verl.aggregation(mode), between=True)
        for mode in Mode
    },
    (skyrl.FRAMEWORK, skyrl.VERSION, "value"): ValueRule(skyrl.SEQ_MEAN),
    (openrlhf.FRAMEWORK, openrlhf.VERSION, "value, token mean"): ValueRule(openrlhf.TOKEN_MEAN),
    (openrlhf.FRAMEWORK, openrlhf.VERSION, "value, sequence mean"): ValueRule(openrlhf.SEQ_MEAN),
    (areal.FRAMEWORK, areal.VERSION, "value"): ValueRule(areal.VALUE_MEAN),
    (areal.FRAMEWORK, areal.VERSION, "value, huber"): ValueRule(areal.VALUE_MEAN, Distance.HUBER),
}


def unnamed(config: Config) -> str | None:
    """Why a config has no such stage."""
    if _named(config) is not None:
        return None
    return "not part of format 1.0.0, and in 1.1.0 only where config.conventions.value_loss names its convention"


def unknown(index: Index) -> str | None:
    """A named convention that is not known."""
    named = _named(index.config)
    if named is None or _key(named) in VALUE_LOSSES:
        return None
    return f"conventions.value_loss '{visible(str(named))}' is not known; docs/kernels.md lists those that are"


def is_clipped(config: Config) -> bool:
    """Whether the loss looks at the values of the rollout."""
    named = _named(config)
    return named is not None and named.clip is not None


def value_terms(chain: Chain) -> Results:
    """The scalars of the loss, and each sample's masked mean of them. In the payloads' float32, as trainers compute:
    whether a token counts as clipped depends on its last digit; summed in double."""
    batch = chain.batch
    named = _named(batch.config)
    if named is None:
        raise ValueError("the bundle names no value loss")
    rule, xp = VALUE_LOSSES[_key(named)], namespace(batch.lengths)
    means, counts = [], []
    for samples, tokens in blocks(batch.lengths):
        values, returns = chain.tokens("new_values")[tokens], chain.tokens("returns")[tokens]
        old = values if named.clip is None else chain.tokens("values")[tokens]
        found = value_loss(values, old, returns, clip=named.clip, distance=rule.distance, between=rule.between)
        mask, lengths = batch.mask[tokens], batch.lengths[samples]
        both = xp.stack([found.losses, xp.astype(found.clipped, found.losses.dtype)])
        means.append(sample_means(both, mask, lengths))
        active = sample_means(xp.astype(mask, xp.float32), xp.ones_like(mask), lengths)
        counts.append(active * xp.astype(lengths, xp.float64))
    mean, count = xp.concat(means, axis=1), xp.round(xp.concat(counts))
    losses, clipped = mean[0, :], mean[1, :]
    totals = Totals(**named.whole_batch.model_dump())
    longest = max(int(xp.max(batch.lengths)), 1)
    scalars = {
        "value_loss": of_rows(losses * count, count, rule.aggregation, totals, longest),
        "value_clipfrac": xp.sum(clipped * count) / xp.clip(xp.sum(count), 1.0, None),
    }
    terms = {"sample_value_loss": losses, "sample_value_clipfrac": clipped}
    return {name: xp.astype(value, xp.float32) for name, value in {**scalars, **terms}.items()}


def of_rows(sums: Array, counts: Array, rule: Aggregation, totals: Totals, longest: int) -> Array:
    """`aggregate` of tokens of which each row's sum and count are known, float64 [rows]: as rows of one token, with
    the divisors that their tokens gave. `longest`: the tokens of the longest row."""
    xp = namespace(sums, counts)
    used = counts > 0
    if rule.mode is Mode.TOKEN_MEAN and totals.tokens is None:
        totals = replace(totals, tokens=max(float(xp.sum(counts)), rule.token_floor) + rule.token_eps)
    if rule.mode is Mode.SEQ_MEAN_TOKEN_MEAN:
        sums = sums / (xp.clip(counts, rule.row_floor, None) + rule.row_eps)
        rule = replace(rule, mode=Mode.SEQ_MEAN_TOKEN_SUM)
    if rule.mode is Mode.SEQ_MEAN_TOKEN_SUM_NORM and totals.length is None:
        totals = replace(totals, length=float(longest))
    if rule.rows is Rows.NONEMPTY:
        sums = hide(sums, used, rule.row_masking)
    kept = used if rule.rows is Rows.NONEMPTY else xp.ones_like(used)
    return aggregate(sums[:, None], kept[:, None], rule, totals)


def _named(config: Config) -> NamedValueLoss | None:
    return None if config.conventions is None else config.conventions.value_loss


def _key(named: NamedValueLoss) -> tuple[str, str, str]:
    return named.framework, named.version, named.name
