"""Calls of the loss of TRL's asynchronous trainer as the bundle of an optimizer step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollbook.replay.bundle.convention import Conventions, EntropyMean, WholeBatch
from rollbook.replay.bundle.model import Config
from rollbook.replay.bundle.writing.rows import Rows
from rollbook.replay.capture import Recorded
from rollbook.tests.replay.goldens.case import numbers
from rollbook.tests.replay.goldens.trlrun import named

Raw = Mapping[str, Any]


def async_step(raws: Sequence[Raw], number: int) -> Recorded:
    """Recorded calls of the asynchronous trainer's loss as micro-batches of one optimizer step, their completions as
    rows, each divided by its share of the tokens of all ranks. A golden call is the only one that was recorded of
    `gradient_accumulation_steps`."""
    params = raws[0]["params"]
    found = {
        name: np.concatenate([np.asarray(numbers(raw["inputs"][name]), dtype=np.float64) for raw in raws])
        for name in ("log_probs", "old_log_probs", "advantages", "entropy")
    }
    of_micro = [np.bincount(np.asarray(raw["inputs"]["segment_id"], dtype=np.int64)) for raw in raws]
    lengths = np.concatenate(of_micro)
    logs, advantages = found["log_probs"] - found["old_log_probs"], found["advantages"]
    ratio = np.exp(logs)
    clipped = (ratio < 1 - params["epsilon_low"]) & (advantages < 0)
    clipped |= (ratio > 1 + params["epsilon_high"]) & (advantages > 0)
    loss = float(sum(raw["outputs"]["loss"] for raw in raws))
    entropies = np.split(found["entropy"], np.cumsum([one.sum() for one in of_micro])[:-1])
    return Recorded(
        rollout_id=0,
        step_id=number,
        rows=Rows(
            sample_ids=[f"completion-{at}" for at in range(len(lengths))],
            group_index=None,
            response_lengths=lengths,
            total_lengths=lengths + 1,
            loss_mask=np.ones(len(advantages), np.int64),
            raw_rewards=np.zeros(len(lengths)),
            rewards=advantages[np.cumsum(lengths) - lengths],
            micro_batch_ids=[f"mb-{at:04d}" for at, one in enumerate(of_micro) for _ in one],
        ),
        config=Config(
            advantage_estimator="grpo",
            n_samples_per_prompt=1,
            grpo_std_normalization=True,
            kl_loss_type="k3",
            kl_coef=0.0,
            eps_clip=params["epsilon_low"],
            eps_clip_high=params["epsilon_high"],
            entropy_coef=0.0,
            conventions=Conventions(
                loss=named("async"),
                whole_batch=WholeBatch(ranks=len(raws) / params["gradient_accumulation_steps"]),
                entropy_mean=EntropyMean.MICRO_BATCH,
                micro_batch_tokens=tuple(
                    max(raw["params"]["global_n_tokens"] / params["world_size"], 1.0) for raw in raws
                ),
            ),
        ),
        tensors=found,
        loss={
            "loss": loss,
            "pg_loss": loss,
            "entropy_loss": float(np.mean([one.mean() for one in entropies])),
            "pg_clipfrac": float(clipped.mean()),
            "ppo_kl": float(-logs.mean()),
        },
    )
