"""The stages of replay, in ONE table: what each needs, what was recorded of it, and the kernel that recomputes it.

The order of the table is the order of the chain. Reader, engine, reports and documentation all read it from here; a
new stage, payload or output is a line in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rollbook.replay.batch import Chain
from rollbook.replay.bundle.model import Capability, Config, Expected, Index, Sample, StageId, Tolerance
from rollbook.replay.kernels.advantages import grpo_advantages
from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.kl import ESTIMATORS, token_kl
from rollbook.replay.kernels.policy_loss import clip_doubt, policy_loss
from rollbook.replay.kernels.rewards import group_rewards
from rollbook.replay.rounding import Floats, group_rounding, sum_rounding

Results = Mapping[str, Array]
Roundings = Mapping[str, Floats]

DEFAULT_TOLERANCE = Tolerance(atol=1e-6, rtol=1e-5)
EXACT = Tolerance(atol=0.0, rtol=0.0)


class Unit(StrEnum):
    """What one value of an array belongs to."""

    TOKEN = "token"
    SAMPLE = "sample"
    SCALAR = "scalar"


@dataclass(frozen=True, slots=True)
class Output:
    """A recorded result and the recomputed one it is compared with. Exactly one of the four sources is set."""

    field: str
    unit: Unit
    result: str
    payload: str | None = None
    term: str | None = None
    expected: Callable[[Expected], tuple[float, ...] | float | None] | None = None
    index: Callable[[Sample], float] | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """One line of the table. `payloads` names the tensors it needs under a config; `refuses` says why a config or
    topology is outside what the kernel computes, or None; `rounding` says of results how far a float32 trainer's may be
    off; a structural stage checks the bundle against itself, which verifies nothing that the trainer computed."""

    id: StageId
    version: str
    capability: Capability
    payloads: Callable[[Config], tuple[str, ...]]
    outputs: tuple[Output, ...]
    kernel: Callable[[Chain], Results]
    refuses: Callable[[Index], str | None]
    rounding: Callable[[Chain, Results], Roundings] = lambda *_: {}
    tolerance: Tolerance = DEFAULT_TOLERANCE
    structural: bool = False
    grouped: bool = False


def _nothing(_: Config) -> tuple[str, ...]:
    return ()


def _supported(_: Index) -> None:
    return None


def _shards(index: Index) -> str | None:
    cp = index.identity.rank.cp
    return None if cp == 1 else f"context-parallel shards (cp {cp}) are not part of format 1.0.0"


def _estimator(index: Index) -> str | None:
    name = index.config.advantage_estimator
    return None if name == "grpo" else f"advantage_estimator '{name}' is not supported, only grpo"


def _grouping(index: Index) -> str | None:
    if index.config.grpo_std_normalization and index.config.n_samples_per_prompt == 1:
        return "a group of one has no standard deviation"
    return _estimator(index)


def _kl_estimator(index: Index) -> str | None:
    config = index.config
    if config.kl_coef != 0 and config.kl_loss_type not in ESTIMATORS:
        return f"kl_loss_type '{config.kl_loss_type}' is not supported, only {', '.join(ESTIMATORS)}"
    return _shards(index)


def _estimator_of_whole_rows(index: Index) -> str | None:
    return _estimator(index) or _shards(index)


def _sample(chain: Chain) -> Results:
    xp = namespace(chain.batch.lengths)
    return {"mask_lengths": xp.asarray([len(sample.loss_mask) for sample in chain.batch.samples], dtype=xp.int64)}


def _reward_raw(chain: Chain) -> Results:
    return {"raw_rewards": chain.batch.raw_rewards}


def _reward_post_process(chain: Chain) -> Results:
    config = chain.batch.config
    rewards = group_rewards(
        chain.batch.raw_rewards,
        chain.batch.group_index,
        config.n_samples_per_prompt,
        divide_by_std=config.grpo_std_normalization,
    )
    return {"rewards": rewards}


def _reward_rounding(chain: Chain, _: Results) -> Roundings:
    divide = chain.batch.config.grpo_std_normalization
    found = group_rounding(chain.batch.raw_rewards, chain.batch.group_index, divide_by_std=divide)
    return {"rewards": found.allowed}


def _advantage_kl(chain: Chain) -> Results:
    config = chain.batch.config
    old = chain.tokens("old_log_probs")
    if config.kl_coef == 0:
        return {"kl": namespace(old).zeros_like(old)}
    return {"kl": token_kl(old, chain.tokens("ref_log_probs"), config.kl_loss_type)}


def _advantage_estimate(chain: Chain) -> Results:
    return {"advantages": grpo_advantages(chain.rewards, chain.batch.lengths)}


def _loss_policy(chain: Chain) -> Results:
    config = chain.batch.config
    found = policy_loss(
        chain.tokens("old_log_probs"),
        chain.tokens("log_probs"),
        chain.tokens("advantages"),
        chain.tokens("entropy"),
        chain.batch.mask,
        chain.batch.lengths,
        eps_clip=config.eps_clip,
        eps_clip_high=config.eps_clip_high,
        entropy_coef=config.entropy_coef,
    )
    return {
        "sample_pg_loss": found.terms.pg_loss,
        "sample_entropy_loss": found.terms.entropy_loss,
        "sample_pg_clipfrac": found.terms.pg_clipfrac,
        "sample_ppo_kl": found.terms.ppo_kl,
        "loss": found.loss,
        "pg_loss": found.pg_loss,
        "entropy_loss": found.entropy_loss,
        "pg_clipfrac": found.pg_clipfrac,
        "ppo_kl": found.ppo_kl,
    }


def _loss_rounding(chain: Chain, results: Results) -> Roundings:
    """Of the scalars: in a batch of whole groups the terms cancel, and with them the digits of a float32 sum. Of the
    share that is clipped: whole tokens, where an exponential's last digit decides."""
    batch = chain.batch
    config = batch.config
    names = ("pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")
    terms = {name: results[f"sample_{name}"] for name in names}
    doubt = clip_doubt(
        chain.tokens("old_log_probs"),
        chain.tokens("log_probs"),
        batch.mask,
        batch.lengths,
        eps_clip=config.eps_clip,
        eps_clip_high=config.eps_clip_high,
    )
    clipped = np.asarray(doubt).astype(np.float64)
    sums = {name: sum_rounding(terms[name]) for name in names}
    return {
        **sums,
        "loss": sum_rounding(terms["pg_loss"], config.entropy_coef * terms["entropy_loss"]),
        "pg_clipfrac": sums["pg_clipfrac"] + clipped.sum(),
        "sample_pg_clipfrac": clipped,
    }


def _no_kernel(_: Chain) -> Results:
    return {}


def _kl_payloads(config: Config) -> tuple[str, ...]:
    return ("old_log_probs",) if config.kl_coef == 0 else ("old_log_probs", "ref_log_probs")


def _loss_payloads(_: Config) -> tuple[str, ...]:
    return ("old_log_probs", "log_probs", "entropy", "advantages")


def _payload(name: str, *, result: str | None = None, optional: bool = False) -> Output:
    return Output(name, Unit.TOKEN, result or name, payload=name, optional=optional)


def _term(name: str) -> Output:
    return Output(f"sample_{name}", Unit.SAMPLE, f"sample_{name}", term=name, optional=True)


def _scalar(name: str) -> Output:
    return Output(name, Unit.SCALAR, name, expected=lambda found: getattr(found.loss_policy, name, None))


STAGES: Mapping[StageId, Stage] = {
    stage.id: stage
    for stage in (
        Stage(
            StageId.SAMPLE, "v1", Capability.RECOMPUTE, _nothing,
            (Output("response_length", Unit.SAMPLE, "mask_lengths", index=lambda sample: sample.response_length),),
            _sample, _supported, tolerance=EXACT, structural=True,
        ),
        Stage(
            StageId.REWARD_RAW, "v1", Capability.RECOMPUTE, _nothing,
            (Output("raw_rewards", Unit.SAMPLE, "raw_rewards",
                    expected=lambda found: found.reward_raw.raw_rewards if found.reward_raw else None),),
            _reward_raw, _supported,
        ),
        Stage(
            StageId.REWARD_POST_PROCESS, "v1", Capability.RECOMPUTE, _nothing,
            (Output("rewards", Unit.SAMPLE, "rewards",
                    expected=lambda found: found.reward_post_process.rewards if found.reward_post_process else None),
             Output("reward", Unit.SAMPLE, "rewards", index=lambda sample: sample.reward)),
            _reward_post_process, _grouping, _reward_rounding, grouped=True,
        ),
        Stage(
            StageId.ADVANTAGE_KL, "v1", Capability.RECOMPUTE, _kl_payloads,
            (_payload("kl"),),
            _advantage_kl, _kl_estimator,
        ),
        Stage(
            StageId.ADVANTAGE_ESTIMATE, "v1", Capability.RECOMPUTE, _nothing,
            (_payload("advantages"), _payload("returns", result="advantages", optional=True)),
            _advantage_estimate, _estimator_of_whole_rows,
        ),
        Stage(
            StageId.LOSS_POLICY, "v1", Capability.RECOMPUTE, _loss_payloads,
            (_term("pg_loss"), _term("entropy_loss"), _term("pg_clipfrac"), _term("ppo_kl"),
             _scalar("loss"), _scalar("pg_loss"), _scalar("entropy_loss"), _scalar("pg_clipfrac"), _scalar("ppo_kl")),
            _loss_policy, _estimator_of_whole_rows, _loss_rounding,
        ),
        Stage(
            StageId.LOSS_VALUE, "v1", Capability.UNSUPPORTED, _nothing, (), _no_kernel,
            lambda _: "not part of format 1.0.0",
        ),
    )
}  # fmt: skip

ROLLOUT_LEVEL = frozenset(StageId) - {StageId.LOSS_POLICY, StageId.LOSS_VALUE}


TOKEN_PAYLOADS = (
    "old_log_probs",
    "log_probs",
    "ref_log_probs",
    "entropy",
    *(output.payload for stage in STAGES.values() for output in stage.outputs if output.payload),
)
EXACT_FIELD_NAMES = frozenset(
    {f"{stage.id}.{output.field}" for stage in STAGES.values() for output in stage.outputs}
    | {output.field for stage in STAGES.values() for output in stage.outputs}
    | set(TOKEN_PAYLOADS)
    | set(Sample.model_fields)
)
