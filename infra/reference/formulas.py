"""What each stage computes, in words and formulas, with where they come from: the text of the reference pages."""

from collections.abc import Mapping
from dataclasses import dataclass

from rollbook.replay.bundle.model import StageId
from rollbook.replay.kernels.kl import LOW_VAR_CLAMP
from rollbook.replay.kernels.rewards import STD_EPSILON


@dataclass(frozen=True, slots=True)
class Formula:
    """`lines` are plain text, one equation each; `sources` say where the formula is from."""

    about: str
    lines: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    rounding: str = ""


_PPO = "PPO: Schulman et al. 2017, arXiv:1707.06347, equation 7"
_DAPO = "bounds apart below and above: DAPO, Yu et al. 2025, arXiv:2503.14476, section 3.1"
_GRPO = "GRPO: Shao et al. 2024, arXiv:2402.03300, section 4.1"

FORMULAS: Mapping[StageId, Formula] = {
    StageId.SAMPLE: Formula(
        "Holds the rows together: a mask has one entry a response token. It compares the bundle with itself, so that "
        "it alone is no verification.",
        ("response_length = length(loss_mask)",),
    ),
    StageId.REWARD_RAW: Formula(
        "The rewards that the trainer says it started from are those of the samples.",
        ("raw_rewards[i] = raw_reward of sample i",),
    ),
    StageId.REWARD_POST_PROCESS: Formula(
        "Each reward relative to its semantic group, found by `group_index` and never by its place in a batch. A group "
        "has exactly `n_samples_per_prompt` members; a constant one gives zeros.",
        (
            "reward = r - mean(group)",
            "with grpo_std_normalization:",
            f"reward = (r - mean(group)) / (std(group, ddof 1) + {STD_EPSILON:g})",
        ),
        (_GRPO, "without the standard deviation: Dr. GRPO, Liu et al. 2025, arXiv:2503.20783, section 3.2"),
        "4 float32 steps of the group's largest reward, at most 2e-4 of its standard deviation",
    ),
    StageId.ADVANTAGE_KL: Formula(
        "The distance of each token to the reference policy, not scaled: `kl_coef` never multiplies it, and where it "
        "is 0 the distance is 0.",
        (
            "d = old - ref",
            "k1 = d",
            "k2 = d^2 / 2",
            "k3 = e^-d - 1 + d",
            f"low_var_kl = k3 held within +-{LOW_VAR_CLAMP:g}",
        ),
        ("J. Schulman, Approximating KL divergence, 2020 (k1, k2, k3)",),
    ),
    StageId.ADVANTAGE_ESTIMATE: Formula(
        "With estimator grpo each token's advantage, and its return where one is recorded, is its sample's reward.",
        ("advantage[t] = reward of the token's sample", "return[t] = advantage[t]"),
        (_GRPO,),
    ),
    StageId.LOSS_POLICY: Formula(
        "The clipped loss. Every metric is a sum over samples of the sample's masked mean; it is not divided by the "
        "number of samples. A ratio's advantage is the recomputed one where the chain has it. A convention named in "
        "`config.conventions` puts its own surrogate, reduction and additions (KL term, masks by entropy or by "
        "distance to the sampler, mean entropy) in place of these: docs/kernels.md.",
        (
            "x = old - new",
            "r = e^-x",
            "pg[t] = max(-r A, -clamp(r, 1 - eps_clip, 1 + eps_clip_high) A)",
            "clipped[t] = second > first",
            "metric = sum over samples of sum(value * mask) / max(sum(mask), 1)",
            "loss = pg_loss - entropy_coef * entropy_loss",
        ),
        (_PPO, _DAPO),
        "scalars: 2 float32 steps of the sum of the absolute terms; clipped fractions: the tokens whose ratio lies "
        "within 8 float32 steps of a bound",
    ),
    StageId.LOSS_VALUE: Formula(
        "The critic's loss, in format 1.1.0 under the convention that the bundle names in "
        "`config.conventions.value_loss`: framework, version and name say distance and reduction. Without it the stage "
        "may be named and is never a divergence.",
        (
            "V = new_values, W = values, R = returns",
            "d(x) = x^2 / 2, or Huber's with delta 10",
            "l[t] = max(d(V - R), d(W + clamp(V - W, -clip, clip) - R)); without clip d(V - R)",
            "clipped[t] = second > first",
            "value_loss = reduction of l over the tokens that count",
            "value_clipfrac = share of the tokens that count that are clipped",
        ),
        (_PPO, "clipped values: Engstrom et al. 2020, arXiv:2005.12729, section 3", "reductions: docs/kernels.md"),
    ),
}
