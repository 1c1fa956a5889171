"""The stages of replay, in ONE table: what each needs, what was recorded of it, and the kernel that recomputes it.

The order of the table is the order of the chain. Reader, engine, reports and the reference pages all read it from
here; a new stage, payload or output is a line in it. The pages' formulas are in formulas.py.
"""

from collections.abc import Mapping

from rollbook.replay.bundle.model import Capability, Config, Sample, StageId
from rollbook.replay.stages import conventional, criticloss, recompute, topologies
from rollbook.replay.stages.stage import EXACT, Input, Origin, Output, Scope, Stage, Unit


def _index(*names: str) -> tuple[Input, ...]:
    return tuple(Input(name, Origin.INDEX) for name in names)


def _config(*names: str) -> tuple[Input, ...]:
    return tuple(Input(name, Origin.CONFIG) for name in names)


def _tensors(*names: str) -> tuple[Input, ...]:
    return tuple(Input(name, Origin.PAYLOAD) for name in names)


def _with_kl(config: Config) -> bool:
    return config.kl_coef != 0


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
            StageId.SAMPLE, "v1", Capability.RECOMPUTE,
            _index("loss_mask"),
            (Output("response_length", Unit.SAMPLE, "mask_lengths", index=lambda sample: sample.response_length),),
            recompute.mask_lengths, topologies.any_topology, tolerance=EXACT, structural=True,
        ),
        Stage(
            StageId.REWARD_RAW, "v1", Capability.RECOMPUTE,
            _index("raw_reward"),
            (Output("raw_rewards", Unit.SAMPLE, "raw_rewards",
                    expected=lambda found: found.reward_raw.raw_rewards if found.reward_raw else None),),
            recompute.raw_rewards, topologies.any_topology,
            recorded_only="what a remote reward service answered can be shown, not computed again",
        ),
        Stage(
            StageId.REWARD_POST_PROCESS, "v1", Capability.RECOMPUTE,
            (*_index("raw_reward", "group_index"), *_config("n_samples_per_prompt", "grpo_std_normalization")),
            (Output("rewards", Unit.SAMPLE, "rewards",
                    expected=lambda found: found.reward_post_process.rewards if found.reward_post_process else None),
             Output("reward", Unit.SAMPLE, "rewards", index=lambda sample: sample.reward)),
            recompute.grouped_rewards, topologies.grouping, recompute.reward_rounding, scope=Scope.GROUP,
            recorded_only="a rank that has a part of a group only cannot normalise it again",
        ),
        Stage(
            StageId.ADVANTAGE_KL, "v1", Capability.RECOMPUTE,
            (*_tensors("old_log_probs"),
             Input("ref_log_probs", Origin.PAYLOAD, _with_kl, "kl_coef is not 0"),
             *_config("kl_coef", "kl_loss_type")),
            (_payload("kl"),),
            recompute.distance, topologies.kl_estimator,
        ),
        Stage(
            StageId.ADVANTAGE_ESTIMATE, "v1", Capability.RECOMPUTE,
            (Input("rewards", Origin.CHAIN), *_index("response_length"), *_config("advantage_estimator"),
             Input("values", Origin.PAYLOAD, conventional.needs_values, "a named convention estimates from values")),
            (_payload("advantages"), _payload("returns", optional=True)),
            recompute.advantages, topologies.advantages,
        ),
        Stage(
            StageId.LOSS_POLICY, "v1", Capability.RECOMPUTE,
            (*_tensors("old_log_probs", "log_probs", "entropy", "advantages"),
             Input("advantages", Origin.CHAIN), *_index("loss_mask", "response_length"),
             *_config("eps_clip", "eps_clip_high", "entropy_coef"),
             Input("rollout_log_probs", Origin.PAYLOAD, conventional.needs_sampler,
                   "corrections or a mask by the sampler are named"),
             Input("ref_log_probs", Origin.PAYLOAD, conventional.needs_reference, "a KL term of the loss is named",
                   borrowed=True)),
            (_term("pg_loss"), _term("entropy_loss"), _term("pg_clipfrac"), _term("ppo_kl"),
             _scalar("loss"), _scalar("pg_loss"), _scalar("entropy_loss"), _scalar("pg_clipfrac"), _scalar("ppo_kl")),
            recompute.policy_terms, topologies.loss, recompute.loss_rounding, scope=Scope.COHORT,
        ),
        Stage(
            StageId.LOSS_VALUE, "v1", Capability.RECOMPUTE,
            (*_tensors("new_values"),
             Input("values", Origin.PAYLOAD, criticloss.is_clipped, "the value loss is clipped"),
             Input("returns", Origin.PAYLOAD), Input("returns", Origin.CHAIN),
             *_index("loss_mask", "response_length"), *_config("conventions.value_loss")),
            (_term("value_loss"), _term("value_clipfrac"),
             Output("value_loss", Unit.SCALAR, "value_loss",
                    expected=lambda found: found.loss_value.value_loss if found.loss_value else None),
             Output("value_clipfrac", Unit.SCALAR, "value_clipfrac", optional=True,
                    expected=lambda found: found.loss_value.value_clipfrac if found.loss_value else None)),
            criticloss.value_terms, topologies.value_loss, scope=Scope.COHORT,
            unknown=criticloss.unnamed,
        ),
    )
}  # fmt: skip

ROLLOUT_LEVEL = frozenset(StageId) - {StageId.LOSS_POLICY, StageId.LOSS_VALUE}


TOKEN_PAYLOADS = (
    "old_log_probs",
    "log_probs",
    "ref_log_probs",
    "entropy",
    "values",
    "new_values",
    "rollout_log_probs",
    *(output.payload for stage in STAGES.values() for output in stage.outputs if output.payload),
)
EXACT_FIELD_NAMES = frozenset(
    {f"{stage.id}.{output.field}" for stage in STAGES.values() for output in stage.outputs}
    | {output.field for stage in STAGES.values() for output in stage.outputs}
    | set(TOKEN_PAYLOADS)
    | set(Sample.model_fields)
)
