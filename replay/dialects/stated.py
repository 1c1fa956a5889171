"""What a bundle states of a policy's loss beside its name, as the kernels take it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rollbook.replay.bundle.convention import Behavior, Conventions
from rollbook.replay.bundle.model import Config, Sample
from rollbook.replay.dialects.additions import Additions, OffPolicy, Penalty, Uncertain
from rollbook.replay.dialects.corrections import corrected
from rollbook.replay.dialects.loss import Bounds, Policies
from rollbook.replay.dialects.microbatches import MicroBatches
from rollbook.replay.kernels.aggregate import Totals
from rollbook.replay.kernels.array import Array, device, namespace
from rollbook.replay.kernels.kl import PLAIN, KlRule
from rollbook.replay.kernels.surrogate import Gamma


@dataclass(frozen=True, slots=True)
class Stated:
    """The inputs of `policy_loss`, but for the rule."""

    policies: Policies
    bounds: Bounds
    totals: Totals
    additions: Additions


def stated_loss(
    config: Config,
    named: Conventions,
    tokens: Callable[[str], Array],
    mask: Array,
    batches: MicroBatches | None,
    kl: KlRule = PLAIN,
) -> Stated:
    """`tokens` gives a payload by its name: float [rows, tokens]; mask: bool, the same shape."""
    old = tokens("old_log_probs")
    weights, kept = None, mask
    if named.corrections:
        weights, kept = corrected(named.corrections, old, tokens("rollout_log_probs"), mask)
    return Stated(
        Policies(tokens("log_probs"), old, tokens("advantages"), kept, weights, batches),
        Bounds(
            low=config.eps_clip,
            high=config.eps_clip_high,
            dual=named.eps_clip_c,
            positive=named.tau_pos,
            negative=named.tau_neg,
            most=named.delta,
            gamma=Gamma() if named.vespo is None else Gamma(**named.vespo.model_dump()),
        ),
        Totals(**named.whole_batch.model_dump()),
        _additions(named, tokens, kl),
    )


def payloads_of(named: Conventions) -> tuple[str, ...]:
    """What the loss needs beside log-probs and advantages."""
    off_policy = named.off_policy_mask
    sampler = bool(named.corrections) or (off_policy is not None and off_policy.behavior is Behavior.ROLLOUT)
    wanted = {
        "rollout_log_probs": sampler,
        "ref_log_probs": named.kl_term is not None,
        "entropy": named.top_entropy_quantile is not None,
    }
    return tuple(name for name, is_needed in wanted.items() if is_needed)


def batches_of(
    samples: Sequence[Sample], order: Sequence[str], tokens: Sequence[float] | None, like: Array
) -> MicroBatches | None:
    """The micro-batches in the `order` in which `tokens` counts them, of those that have samples; None where none are
    recorded. Positions are arrays of the library of `like`."""
    xp: Any = namespace(like)
    rows: dict[str, list[int]] = {}
    for at, sample in enumerate(samples):
        if sample.micro_batch_id is not None:
            rows.setdefault(sample.micro_batch_id, []).append(at)
    if not rows:
        return None
    there = [(at, name) for at, name in enumerate(order) if name in rows]
    return MicroBatches(
        tuple(xp.asarray(rows[name], dtype=xp.int64, device=device(like)) for _, name in there),
        None if tokens is None else tuple(tokens[at] for at, _ in there),
    )


def _additions(named: Conventions, tokens: Callable[[str], Array], kl: KlRule) -> Additions:
    penalty, off_policy, uncertain = None, None, None
    if (term := named.kl_term) is not None:
        penalty = Penalty(tokens("ref_log_probs"), term.estimator, term.coef, term.by_ratio, kl)
    if (rule := named.off_policy_mask) is not None:
        off_policy = OffPolicy(tokens(f"{rule.behavior}_log_probs"), rule.threshold)
    if (share := named.top_entropy_quantile) is not None:
        uncertain = Uncertain(tokens("entropy"), share)
    return Additions(penalty, off_policy, uncertain)
