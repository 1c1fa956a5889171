"""Every constant of the demo's training run, in one frozen record. Found by experiment; says what each is tuned for."""

from dataclasses import dataclass

from rollbook.schemas.errors import BadInput

EVAL_MARGIN = 0.15
"""The evaluation's mean reward must rise by at least this much (absolute) within a run."""

KL_LOSS_TYPE = "low_var_kl"


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """A run is a pure function of this record, up to the order in which processes happen to meet."""

    seed: int = 0

    # Task: prompts of distinct digits, to be sorted.
    min_digits: int = 4
    max_digits: int = 6
    eval_prompts: int = 16

    # Model.
    width: int = 48
    layers: int = 2
    heads: int = 4

    # Supervised warm-up on sloppy demonstrations: the initial policy knows the task, but is wrong as often as they are.
    warmup_steps: int = 250
    warmup_batch: int = 64
    warmup_learning_rate: float = 5e-3
    sloppiness: float = 0.5

    # Rollout.
    samples_per_prompt: int = 4
    max_response_tokens: int = 9

    # Asynchrony, in policy versions and not in seconds, so that a slow machine sees the same lags: wave w feeds update
    # w, and the episode at position i of a wave takes as long as latencies[i] activations. With max_lag 2 a third of an
    # update is fresh, the rest tolerated, and the last of each wave end stale. The drift limit refuses about one in
    # twenty of those that are not stale.
    latencies: tuple[int, ...] = (0,) * 9 + (1,) * 9 + (2,) * 6 + (3,) * 3
    groups_per_update: int = 24
    max_lag: int = 2
    max_mean_abs_log_ratio: float = 0.2

    # More than max_lag, so that what ends stale is refused by name before it goes offline.
    horizon: int = 3

    # GRPO. Twice this learning rate, with trajectories this late, no longer learns.
    updates: int = 12
    steps_per_update: int = 2
    checkpoint_every: int = 3
    micro_batches_per_step: int = 2
    learning_rate: float = 1e-3
    adam_betas: tuple[float, float] = (0.9, 0.95)
    eps_clip: float = 0.2
    eps_clip_high: float = 0.28
    entropy_coef: float = 1e-3
    kl_coef: float = 0.1
    """Not zero, so that the distance to the reference policy is recorded and replayed; the loss has no KL term."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise BadInput(f"width {self.width} is not a multiple of heads {self.heads}: choose one that is")
        if self.max_response_tokens <= self.max_digits:
            raise BadInput(f"max_response_tokens {self.max_response_tokens} leaves no room for the end token: raise it")
        if not 1 <= self.min_digits <= self.max_digits <= 10:
            raise BadInput("min_digits and max_digits must lie in 1..10, in this order: a prompt holds distinct digits")
