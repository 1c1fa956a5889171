"""A training loop in torch, as small as one can be that has all of it: dropout, in-place updates, several steps."""

from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Tensor

from rollbook.replay.capture import Config, Recorded, Rows

LENGTHS = [2, 3, 1, 4]
MASK = torch.tensor([1, 1, 1, 0, 1, 1, 1, 1, 1, 0])
GROUPS = [0, 0, 1, 1]
RAW_REWARDS = torch.tensor([1.0, 0.0, 0.25, 0.75])
CONFIG = Config(
    advantage_estimator="grpo",
    n_samples_per_prompt=2,
    grpo_std_normalization=False,
    kl_loss_type="k1",
    kl_coef=0.1,
    eps_clip=0.2,
    eps_clip_high=0.28,
    entropy_coef=0.01,
)
Hook = Callable[[int, int, Callable[[], Recorded]], object]


def train(hook: Hook, updates: int = 3, steps: int = 2) -> list[Tensor]:
    """The weights afterwards. The hook is called at each step with its coordinates and a maker of its record; buffers
    are used again by the next step, as trainers do."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    buffer = torch.zeros(len(MASK))
    weights = advantages()
    for rollout_id in range(updates):
        inputs, tokens = torch.randn(len(MASK), 4), torch.randint(0, 6, (len(MASK),))
        with torch.no_grad():
            old = chosen(model(inputs), tokens)[0]
        reference = old + 0.1 * torch.randn(len(MASK))
        for step_id in range(steps):
            log_probs, entropy = chosen(model(inputs), tokens)
            buffer.copy_(log_probs.detach())
            terms = row_terms(old, log_probs, weights, entropy)
            optimizer.zero_grad()
            (terms["pg_loss"] - CONFIG.entropy_coef * terms["entropy_loss"]).sum().backward()  # type: ignore[no-untyped-call]
            results = {name: term.sum() for name, term in terms.items()}
            results["loss"] = results["pg_loss"] - CONFIG.entropy_coef * results["entropy_loss"]
            tensors = {
                "old_log_probs": old,
                "log_probs": buffer,
                "ref_log_probs": reference,
                "entropy": entropy,
                "kl": old - reference,
                "advantages": weights,
            }
            coordinates = (rollout_id, step_id)
            hook(*coordinates, lambda at=coordinates, of=tensors, loss=results, by=terms: recorded(at, of, loss, by))  # type: ignore[misc]
            optimizer.step()
            buffer.fill_(float("nan"))
    return [parameter.detach().clone() for parameter in model.parameters()]


def centred_rewards() -> Tensor:
    pairs = RAW_REWARDS.reshape(2, 2)
    return (pairs - pairs.mean(dim=1, keepdim=True)).reshape(-1)


def advantages() -> Tensor:
    return centred_rewards().repeat_interleave(torch.tensor(LENGTHS))


def by_row(values: Tensor) -> list[Tensor]:
    ends = list(accumulate(LENGTHS))
    return [values[end - length : end] for end, length in zip(ends, LENGTHS, strict=True)]


def chosen(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probs of the tokens, and the entropy."""
    found = torch.log_softmax(logits, dim=-1)
    return found.gather(1, tokens[:, None]).squeeze(1), -(found.exp() * found).sum(-1)


def row_terms(old: Tensor, new: Tensor, weights: Tensor, entropy: Tensor) -> dict[str, Tensor]:
    """Each row's masked means, by the format's formulas."""
    distance = old - new
    ratio = torch.exp(-distance)
    plain = -ratio * weights
    clipped = -torch.clamp(ratio, 1 - CONFIG.eps_clip, 1 + CONFIG.eps_clip_high) * weights
    values = {
        "pg_loss": torch.maximum(plain, clipped),
        "entropy_loss": entropy,
        "pg_clipfrac": (clipped > plain).float(),
        "ppo_kl": distance,
    }
    masks = by_row(MASK)
    return {
        name: torch.stack(
            [(part * mask).sum() / mask.sum().clamp(min=1) for part, mask in zip(by_row(value), masks, strict=True)]
        )
        for name, value in values.items()
    }


def recorded(
    at: tuple[int, int | None],
    tensors: dict[str, Tensor],
    loss: dict[str, Tensor] | None,
    terms: dict[str, Tensor],
    labels: list[str] | None = None,
) -> Recorded:
    rewards = centred_rewards()
    rows = Rows(
        sample_ids=[f"s-{number}" for number in range(len(LENGTHS))],
        group_index=GROUPS,
        response_lengths=LENGTHS,
        total_lengths=[length + 4 for length in LENGTHS],
        loss_mask=MASK,
        raw_rewards=RAW_REWARDS,
        rewards=rewards,
        micro_batch_ids=["mb-0000", "mb-0000", "mb-0001", "mb-0001"],
        labels=labels,
    )
    return Recorded(at[0], at[1], rows, CONFIG, tensors, loss=loss, terms=terms)
