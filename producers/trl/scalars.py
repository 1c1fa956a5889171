"""The scalars of a step beside TRL's loss. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rollbook.producers.trl.conventions import MICRO_BATCH_LOSSES, TOKEN_LOSSES
from rollbook.producers.trl.facts import Conditions, StepFacts

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scalars:
    """`loss` is TRL's own number. The others TRL does not keep: they are computed here, from the arrays of its forward
    pass, as its loss is put together (entropy) or as a mean over tokens."""

    loss: float
    pg_loss: float
    entropy_loss: float
    pg_clipfrac: float
    ppo_kl: float

    def named(self) -> Mapping[str, float]:
        return {
            "loss": self.loss,
            "pg_loss": self.pg_loss,
            "entropy_loss": self.entropy_loss,
            "pg_clipfrac": self.pg_clipfrac,
            "ppo_kl": self.ppo_kl,
        }


def scalars_of(step: StepFacts) -> Scalars:
    mask = np.concatenate(step.loss_masks)
    tokens = max(int(mask.sum()), 1)
    ratio_logs = (step.log_probs.astype(np.float64) - step.old_log_probs) * mask
    clipped = _clipped(step, np.exp(_levelled(step, ratio_logs))) & mask
    entropy = entropy_of(step)
    return Scalars(
        loss=step.loss,
        pg_loss=step.loss + step.entropy_coef * entropy,
        entropy_loss=entropy,
        pg_clipfrac=float(clipped.sum() / tokens),
        ppo_kl=float(-ratio_logs.sum() / tokens),
    )


def _levelled(step: StepFacts, ratio_logs: Floats) -> Floats:
    """Log-ratios as the surrogate sees them: of tokens, or of a sequence the mean of its tokens'."""
    if step.conditions.level == "token":
        return ratio_logs
    rows = zip(_split(step, ratio_logs), step.loss_masks, strict=True)
    return np.concatenate([np.full(len(row), _mean(row[mask])) for row, mask in rows])


def _clipped(step: StepFacts, ratio: Floats) -> npt.NDArray[np.bool_]:
    conditions, advantages = step.conditions, step.advantages
    if conditions.loss == "cispo":
        return ratio > conditions.epsilon_high
    if conditions.loss in ("sapo", "vespo"):
        return np.zeros(len(ratio), np.bool_)
    low = (ratio < 1 - conditions.epsilon_low) & (advantages < 0)
    return low | ((ratio > 1 + conditions.epsilon_high) & (advantages > 0))


def entropy_of(step: StepFacts) -> float:
    """The entropies as TRL's loss of this step puts its tokens together, or where it has a bonus as that does."""
    conditions, found, at = step.conditions, 0.0, 0
    values = _split(step, step.entropies.astype(np.float64))
    rows = [row[mask] for row, mask in zip(values, step.loss_masks, strict=True)]
    for micro in step.micro_steps:
        of_micro, at = rows[at : at + len(micro.rows)], at + len(micro.rows)
        if conditions.choices.has_entropy_bonus:
            found += _mean(_highest(np.concatenate(of_micro), conditions.choices.top_entropy_quantile))
        else:
            found += _aggregated(of_micro, conditions)
    if conditions.loss in TOKEN_LOSSES and not conditions.choices.has_entropy_bonus:
        return found / step.batch_tokens
    return found / step.micro_steps[0].accumulated


def _aggregated(rows: Sequence[Floats], conditions: Conditions) -> float:
    """Values of one micro-batch's tokens, without those that do not count."""
    total = float(sum(row.sum() for row in rows))
    if conditions.loss in ("grpo", "sapo"):
        return float(np.mean([_mean(row) for row in rows]))
    if conditions.loss == "luspo":
        return total / len(rows)
    if conditions.loss in MICRO_BATCH_LOSSES:
        return total / max(sum(len(row) for row in rows), 1)
    if conditions.loss == "dr_grpo":
        return total / (len(rows) * conditions.max_completion_length)
    return total


def _highest(values: Floats, share: float) -> Floats:
    """The share of them that is highest, as TRL chooses tokens in one process."""
    if share >= 1 or not len(values):
        return values
    single = np.sort(values.astype(np.float32))
    return values[values >= _quantile(single, 1 - share)]


def _quantile(ordered: npt.NDArray[np.float32], at: float) -> float:
    """As torch.quantile puts it, digit by digit: numpy's is another where a token lies at the very edge."""
    place = np.float64(np.float32(at)) * (len(ordered) - 1)
    below, above = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    weight, step = np.float32(place - np.floor(place)), np.float64(np.float32(above - below))
    if weight < 0.5:
        return float(np.float32(below + np.float64(weight) * step))
    return float(np.float32(above - np.float64(np.float32(1) - weight) * step))


def _mean(values: Floats) -> float:
    return float(values.sum() / max(len(values), 1))


def _split(step: StepFacts, values: Floats) -> list[Floats]:
    return np.split(values, np.cumsum([len(mask) for mask in step.loss_masks])[:-1])
