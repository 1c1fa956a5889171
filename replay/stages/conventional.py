"""Stages under the conventions that a bundle of format 1.1.0 names, instead of those that format 1.0.0 fixes."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rollbook.replay.bundle.convention import Conventions, EntropyMean, NamedConvention, Reached, WholeBatch
from rollbook.replay.bundle.model import Config, Index, StageId
from rollbook.replay.dialects import bundleformat
from rollbook.replay.dialects.cells import too_uneven
from rollbook.replay.dialects.convention import AdvantageConvention, LossConvention
from rollbook.replay.dialects.estimate import Rewarded, estimate, groups_of, placed_at_end
from rollbook.replay.dialects.loss import PolicyLoss, mean_entropy, policy_loss, reduced
from rollbook.replay.dialects.rules import AdvantageRule, Surrogate
from rollbook.replay.dialects.stated import batches_of, payloads_of, stated_loss
from rollbook.replay.dialects.table import ADVANTAGES, BEYOND, LOSSES
from rollbook.replay.kernels.aggregate import aggregate
from rollbook.replay.kernels.array import Array, device, namespace
from rollbook.replay.kernels.groups import Level, Normalization, normalize
from rollbook.replay.kernels.masked import count, hide
from rollbook.replay.stages.batch import Batch, Chain
from rollbook.replay.stages.rounding import Floats
from rollbook.replay.stages.stage import Results
from rollbook.schemas.text import visible

_ADVANTAGES: Mapping[tuple[str, str, str], AdvantageConvention] = {
    (one.framework, one.version, one.name): one for one in ADVANTAGES
}
_LOSSES: Mapping[tuple[str, str, str], LossConvention] = {(one.framework, one.version, one.name): one for one in LOSSES}


_LOSS_OF_FORMAT = NamedConvention(
    framework=bundleformat.FRAMEWORK, version=bundleformat.VERSION, name=next(iter(bundleformat.LOSSES))
)


def conventions_of(config: Config) -> Conventions:
    """Those of a bundle, all absent in format 1.0.0."""
    return config.conventions or Conventions()


def names_advantages(config: Config) -> bool:
    return conventions_of(config).advantages is not None


def names_loss(config: Config) -> bool:
    """Also where only what changes a loss is stated: it is then of the loss of format 1.0.0, which is not what it is
    without that."""
    named = conventions_of(config)
    stated = (named.corrections, named.kl_term, named.delta, named.entropy_mean, named.top_entropy_quantile)
    more = (named.off_policy_mask, named.vespo, named.micro_batch_tokens)
    return named.loss is not None or named.whole_batch != WholeBatch() or any((*stated, *more))


def needs_values(config: Config) -> bool:
    """Whether advantages are estimated from values."""
    named = conventions_of(config).advantages
    found = None if named is None else _ADVANTAGES.get(_key(named))
    return found is not None and found.rule.needs_values


def needs_sampler(config: Config) -> bool:
    """Whether the loss is corrected or masked by the sampler's log-probs."""
    return "rollout_log_probs" in payloads_of(conventions_of(config))


def needs_reference(config: Config) -> bool:
    """Whether the loss has a distance to the reference policy in it."""
    return "ref_log_probs" in payloads_of(conventions_of(config))


def unknown_advantages(index: Index) -> str | None:
    """A named convention of advantages that is not known."""
    named = conventions_of(index.config).advantages
    return None if named is None or _key(named) in _ADVANTAGES else _unknown("advantages", named)


def uncomputable_advantages(index: Index) -> str | None:
    """Rows for which the named convention of advantages has no answer, or which would be mostly padding."""
    if (whitening := _rule(index.config).whitening) is not None:
        tokens = sum(sample.loss_mask.count(1) for sample in index.samples)
        if tokens < whitening.least_tokens:
            return f"whitening needs {whitening.least_tokens} tokens that count, the bundle has {tokens}"
    return too_uneven([sample.response_length for sample in index.samples])


def unknown_loss(index: Index) -> str | None:
    """A named convention of losses that is not known."""
    named = conventions_of(index.config).loss
    return None if named is None or _key(named) in _LOSSES else _unknown("loss", named)


def uncomputable_loss(index: Index) -> str | None:
    """What is stated of a loss and cannot be computed of this rank's samples."""
    named = conventions_of(index.config)
    if named.top_entropy_quantile is not None and index.identity.rank.dp > 1:
        return "top_entropy_quantile is of the micro-batches of all ranks together, the bundle has those of one"
    if (said := named.micro_batch_tokens) is not None and len(said) != len(index.identity.micro_batch_ids):
        return f"micro_batch_tokens has {len(said)} entries for {len(index.identity.micro_batch_ids)} micro-batches"
    if _LOSSES[_key(named.loss or _LOSS_OF_FORMAT)].rule.surrogate is Surrogate.VESPO:
        for rule in named.corrections:
            if rule.reach is not Reached.TOKEN or (rule.least or 0) > 1 or (rule.most or 1) < 1:
                return (
                    "VESPO takes weights of tokens whose bounds hold 1: the padding that it multiplies is not recorded"
                )
    return too_uneven([sample.response_length for sample in index.samples])


def of_whole_batch(config: Config, stage: StageId) -> bool:
    """Whether a stage sees all samples at once, so that a part of them cannot be recomputed."""
    if stage is StageId.LOSS_POLICY:
        return conventions_of(config).top_entropy_quantile is not None
    if stage not in (StageId.REWARD_POST_PROCESS, StageId.ADVANTAGE_ESTIMATE) or not names_advantages(config):
        return False
    rule = _rule(config)
    normalization = rule.normalization
    return rule.whitening is not None or (
        normalization is not None and Level.BATCH in (normalization.mean, normalization.std)
    )


def group_normalization(config: Config) -> Normalization | None:
    """The named rule by which rewards are measured against their own group alone; None where it is another."""
    rule = _rule(config).normalization
    measured = rule is not None and rule.mean is Level.GROUP and rule.std in (Level.GROUP, Level.NONE)
    return rule if measured else None


def normalizes(config: Config) -> bool:
    """Whether the named convention normalises rewards at all."""
    return _rule(config).normalization is not None


def groups(config: Config, group_index: Array) -> Array:
    """The groups that the named convention sees."""
    return groups_of(group_index, _rule(config))


def rewards(chain: Chain) -> Results:
    """Rewards of their group, as the convention normalises them."""
    batch, rule = chain.batch, _rule(chain.batch.config)
    xp = namespace(batch.raw_rewards)
    if rule.normalization is None:
        return {"rewards": batch.raw_rewards}
    raw, members = batch.with_cohort()
    raw, measure = xp.astype(raw, xp.float64), batch.measure
    if measure is None:
        found = normalize(raw, groups_of(members, rule), rule.normalization)[: batch.raw_rewards.shape[0]]
    else:
        found = xp.zeros_like(raw)
        counted = raw[measure.counts]
        if counted.shape[0]:
            found[measure.counts] = normalize(counted, groups_of(members[measure.counts], rule), rule.normalization)
        none = measure.like < 0
        found = xp.take(found, xp.where(none, xp.zeros_like(measure.like), measure.like), axis=0)
        found = xp.where(none, xp.zeros_like(found), found)
    return {"rewards": xp.astype(found, batch.raw_rewards.dtype)}


def advantages(chain: Chain) -> Results:
    """Advantages and returns of the normalised rewards."""
    batch, named = chain.batch, conventions_of(chain.batch.config)
    rows = _Rows(batch)
    xp = rows.xp
    values = batch.tensors.get("values")
    given = Rewarded(
        placed_at_end(xp.astype(chain.rewards, xp.float64), rows.mask),
        rows.mask,
        values=None if values is None else rows.matrix(values),
        gamma=named.gamma,
        lam=named.lam,
    )
    estimated, returns = estimate(given, replace(_rule(batch.config), normalization=None))
    return {"advantages": rows.flat(estimated), "returns": rows.flat(returns)}


def policy_terms(chain: Chain) -> Results:
    """The scalars of the loss, and each sample's masked mean of them; `absolute_*`: what the scalars would be of the
    absolute values of their tokens, which is what a float32 sum of them is rounded by."""
    config, named = chain.batch.config, conventions_of(chain.batch.config)
    convention = _LOSSES[_key(named.loss or _LOSS_OF_FORMAT)]
    rows = _Rows(chain.batch)
    xp = rows.xp
    batches = batches_of(chain.batch.samples, chain.batch.micro_batch_ids, named.micro_batch_tokens, rows.mask)

    def tokens(name: str) -> Array:
        return rows.matrix(chain.tokens(name))

    given = stated_loss(config, named, tokens, rows.mask, batches, convention.kl)
    bounds = given.bounds if given.bounds.dual is not None else replace(given.bounds, dual=convention.dual)
    found = policy_loss(given.policies, convention.rule, bounds, given.totals, given.additions)
    entropy, kept = tokens("entropy"), given.policies.mask
    by_loss = partial(reduced, given=given.policies, rule=convention.rule, totals=given.totals)
    of_entropy = by_loss
    if named.entropy_mean is EntropyMean.MICRO_BATCH:
        of_entropy = partial(mean_entropy, given=given.policies, uncertain=found.uncertain)
    of_metric = partial(aggregate, mask=kept, rule=convention.rule.metrics)
    values = _tokens(found, entropy)
    entropy_loss = of_entropy(entropy)
    scalars = {
        "loss": found.loss - config.entropy_coef * entropy_loss,
        "pg_loss": found.loss,
        "entropy_loss": entropy_loss,
        "pg_clipfrac": of_metric(values["pg_clipfrac"]),
        "ppo_kl": of_metric(values["ppo_kl"]),
    }
    by = {"pg_loss": by_loss, "entropy_loss": of_entropy, "pg_clipfrac": of_metric, "ppo_kl": of_metric}
    absolute = {f"absolute_{name}": by[name](xp.abs(value)) for name, value in values.items()}
    rows_count = xp.clip(count(kept, entropy, axis=1), 1.0, None)
    means = {f"sample_{name}": xp.sum(hide(value, kept), axis=1) / rows_count for name, value in values.items()}
    return {name: xp.astype(value, xp.float32) for name, value in {**scalars, **absolute, **means}.items()}


def clip_share(chain: Chain, shares: Floats) -> float:
    """What a share of each sample's tokens [samples] is of the batch, as the convention counts clipped tokens."""
    named, rows = conventions_of(chain.batch.config), _Rows(chain.batch)
    xp = rows.xp
    spread = xp.asarray(shares, device=device(rows.mask))[:, None] * xp.astype(rows.mask, xp.float64)
    return float(aggregate(spread, rows.mask, _LOSSES[_key(named.loss or _LOSS_OF_FORMAT)].rule.metrics))


def _tokens(found: PolicyLoss, entropy: Array) -> dict[str, Array]:
    xp = namespace(entropy)
    return {
        "pg_loss": found.losses,
        "entropy_loss": entropy,
        "pg_clipfrac": xp.astype(found.clipped, xp.float64),
        "ppo_kl": -found.log_ratios,
    }


class _Rows:
    """Flat tokens as a matrix [samples, longest], float64, and back."""

    def __init__(self, batch: Batch) -> None:
        self.xp: Any = namespace(batch.lengths)
        longest = max(int(self.xp.max(batch.lengths)), 1)
        places = self.xp.arange(longest, dtype=batch.lengths.dtype, device=device(batch.lengths))
        self.there = places[None, :] < batch.lengths[:, None]
        self.mask = self.there & False
        self.mask[self.there] = batch.mask

    def matrix(self, flat: Array) -> Array:
        found = self.xp.zeros(self.there.shape, dtype=self.xp.float64, device=device(flat))
        found[self.there] = self.xp.astype(flat, self.xp.float64)
        return found

    def flat(self, matrix: Array) -> Array:
        return self.xp.astype(matrix[self.there], self.xp.float32)


def _rule(config: Config) -> AdvantageRule:
    return _ADVANTAGES[_key(_required(conventions_of(config).advantages))].rule


def _required(named: NamedConvention | None) -> NamedConvention:
    if named is None:
        raise ValueError("the bundle names no convention")
    return named


def _key(named: NamedConvention) -> tuple[str, str, str]:
    return named.framework, named.version, named.name


def _unknown(what: str, named: NamedConvention) -> str:
    parts = (BEYOND.get((named.framework, part)) for part in named.name.split("+"))
    why = "; ".join(filter(None, parts)) or "docs/kernels.md says how to add it"
    return f"conventions.{what} '{visible(str(named))}' is not known; {why}"
