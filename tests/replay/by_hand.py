"""A bundle as a trainer's own code writes it: the worked example of the format, for any rank."""

from pathlib import Path
from typing import Any

import torch

from rollbook.replay.bundle.model import Config, Index, Producer
from rollbook.replay.bundle.writing.bundle_writer import BundleWriter
from rollbook.replay.bundle.writing.rows import Rows, index_of

PRODUCER = Producer(commit="c0ffee", dirty_patch_digest="", torch_version="2.13.0")
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
TENSORS = {
    "old_log_probs": torch.tensor([-1.0, -2.0, -0.5, -1.5, -3.0]),
    "log_probs": torch.tensor([-0.6, -2.3, -0.5, -1.8, -2.9]),
    "ref_log_probs": torch.tensor([-1.2, -1.9, -0.8, -1.5, -2.0]),
    "entropy": torch.tensor([0.5, 1.0, 0.2, 0.8, 1.1]),
    "kl": torch.tensor([0.2, -0.1, 0.3, 0.0, -1.0]),
    "advantages": torch.tensor([0.5, 0.5, -0.5, -0.5, -0.5]),
}
LOSS = {"loss": 0.00708806, "pg_loss": 0.02108806, "entropy_loss": 1.4, "pg_clipfrac": 0.5, "ppo_kl": -0.1}


def rows(**changed: Any) -> Rows:
    columns: dict[str, Any] = {
        "sample_ids": ["s-0", "s-1"],
        "group_index": [0, 0],
        "response_lengths": [2, 3],
        "total_lengths": [6, 7],
        "loss_mask": torch.tensor([1, 1, 1, 0, 1]),
        "raw_rewards": torch.tensor([1.0, 0.0]),
        "rewards": torch.tensor([0.5, -0.5]),
    }
    return Rows(**{**columns, **changed})


def index(bundle_id: str = "step-7-0", **changed: Any) -> Index:
    given: dict[str, Any] = {"rollout_id": 7, "step_id": 0, **changed}
    return index_of(bundle_id, given.pop("rows", rows()), given.pop("config", CONFIG), **given)


def writer(path: Path, **changed: Any) -> BundleWriter:
    """A writer that was given everything; `index`, `rank`, `attempt` and the like may be others."""
    given: dict[str, Any] = {"index": index(path.name), "producer": PRODUCER, **changed}
    made = BundleWriter(path, **given)
    step = given["index"].identity.actor_step_id is not None
    for name, tensor in TENSORS.items():
        made.payload(name, tensor)
    made.expect(raw_rewards=torch.tensor([1.0, 0.0]), rewards=[0.5, -0.5], loss=LOSS if step else None)
    return made
