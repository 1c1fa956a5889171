"""The initial policy: a supervised warm-up on sloppy demonstrations, the demo's stand-in for a pre-trained model."""

import random

import torch

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.adam import Adam
from rollbook.infra.demo.learning.model import TinyTransformer, TokenSequence, batch_log_probs, new_model
from rollbook.infra.demo.learning.task import sloppy_demonstration, train_prompt

# Rows that no rollout reaches, so that the policy is not trained by GRPO on what it imitated.
_FIRST_ROW = 1_000_000


def initial_policy(config: DemoConfig) -> TinyTransformer:
    """The policy of version 0; its weights follow from the configuration alone."""
    model = new_model(config)
    rng = random.Random(f"warmup:{config.seed}")
    optimizer = Adam(model.parameters(), config.warmup_learning_rate, (0.9, 0.999))
    for step in range(config.warmup_steps):
        first = _FIRST_ROW + step * config.warmup_batch
        prompts = [train_prompt(config, row) for row in range(first, first + config.warmup_batch)]
        batch = [TokenSequence(p.ids, sloppy_demonstration(p, config.sloppiness, rng)) for p in prompts]
        loss = -torch.cat([log_probs for log_probs, _ in batch_log_probs(model, batch)]).mean()
        optimizer.zero_grad()
        optimizer.learning_rate = config.warmup_learning_rate * (1 - step / config.warmup_steps)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model
