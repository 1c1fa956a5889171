"""TRL's own code on random tensors: its scoring of a generation and its loss, under any choice of its options, as a
document of the form in which the goldens hold real runs.

The trainer is a real one; what it would generate, score and compute by its model is made up here.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rollbook.tests.producers.trl import tiny

torch: Any = tiny.torch
utils: Any = pytest.importorskip("trl.trainer.utils")

Floats = NDArray[np.float64]
_STEPS, _PER_BATCH, _GENERATIONS, _LONGEST = 4, 3, 4, 8
ROWS = _STEPS * _PER_BATCH
LOSSES = ("grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo", "vespo")
MODES = (None, "token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


@dataclass(frozen=True)
class Choice:
    """One combination of TRL's options. `kl`: by ratio, plain, or None without a KL term."""

    loss_type: str = "grpo"
    level: str = "token"
    scale: str = "group"
    mode: str | None = None
    delta: float | None = None
    kl: str | None = None
    quantile: float = 1.0
    threshold: float | None = None
    entropy_coef: float = 0.0

    @property
    def is_allowed(self) -> bool:
        """VESPO takes importance weights of tokens only; TRL refuses others."""
        return self.loss_type != "vespo" or self.mode is None or self.mode.startswith("token")


def choices() -> Iterator[Choice]:
    options = (
        LOSSES, ("token", "sequence"), ("group", "batch", "none"), MODES,
        (None, 1.3), (None, "plain", "by ratio"), (1.0, 0.4), (None, 0.05), (0.0, 0.01),
    )  # fmt: skip
    yield from filter(lambda one: one.is_allowed, (Choice(*values) for values in product(*options)))


@dataclass
class Source:
    """A trainer whose generations and forward passes are drawn from `random`."""

    trainer: Any
    random: np.random.Generator = field(default_factory=np.random.default_rng)
    forward: dict[str, Any] = field(default_factory=dict)
    rewards: Any = None

    @classmethod
    def of(cls, folder: Path) -> "Source":
        options = {"per_device_train_batch_size": _PER_BATCH, "reward_weights": [1.0, 0.5]}
        trainer = tiny.make(folder, tiny.Shape(options=options))
        trainer.ref_model = tiny.model()
        trainer.model.train()
        found = cls(trainer)
        trainer._generate = found._generate
        trainer._calculate_rewards = found._rewards
        trainer._get_per_token_logps_and_entropies = found._forward
        return found

    def document(self, choice: Choice, seed: int) -> Mapping[str, Any]:
        """One generation and what the loss made of each of its micro-batches."""
        self.random = np.random.default_rng(seed)
        trainer, params = self.trainer, self._params(choice)
        self._set(params)
        prompts = [{"prompt": "ab"} for _ in range(ROWS)]
        buffer = trainer._generate_and_score_completions(prompts)
        buffer["row"] = torch.arange(ROWS)
        batches = utils.split_tensor_dict(utils.shuffle_sequence_dict(buffer), _STEPS)
        micros = [self._micro_step(at, batch, params) for at, batch in enumerate(batches)]
        trainer._metrics["train"].clear()
        return {
            "id": f"random-{seed}",
            "config": params,
            "effective": {"world_size": 1, "use_vllm_path": params["use_vllm"]},
            "generations": [self._generation(buffer, params)],
            "micro_steps": micros,
        }

    def _params(self, choice: Choice) -> dict[str, Any]:
        clip: dict[str, float | None] = {"min": None, "max": float(self.random.uniform(1.1, 2.0))}
        if self.random.random() < 0.5:
            clip["min"] = float(self.random.uniform(0.3, 0.9))
        low, high = self.random.uniform(0.1, 0.3, 2)
        accumulation = int(self.random.choice([2, 4]))
        return {
            "loss_type": choice.loss_type,
            "importance_sampling_level": choice.level,
            "scale_rewards": choice.scale,
            "use_vllm": choice.mode is not None,
            "vllm_importance_sampling_correction": choice.mode is not None,
            "vllm_importance_sampling_mode": choice.mode,
            **{f"vllm_importance_sampling_clip_{name}": value for name, value in clip.items()},
            "delta": choice.delta,
            "beta": 0.0 if choice.kl is None else 0.04,
            "use_bias_correction_kl": choice.kl == "by ratio",
            "top_entropy_quantile": choice.quantile,
            "off_policy_mask_threshold": choice.threshold,
            "entropy_coef": choice.entropy_coef,
            "epsilon_low": float(low),
            "epsilon_high": float(high + 1.0 if choice.loss_type == "cispo" else high),
            "sapo_temperature_pos": 1.0,
            "sapo_temperature_neg": 1.05,
            "vespo_k_pos": 2.0,
            "vespo_lambda_pos": 3.0,
            "vespo_k_neg": 3.0,
            "vespo_lambda_neg": 2.0,
            "max_completion_length": _LONGEST,
            "num_generations": _GENERATIONS,
            "gradient_accumulation_steps": accumulation,
            "steps_per_generation": _STEPS,
            "mask_truncated_completions": bool(self.random.random() < 0.3),
            "multi_objective_aggregation": "sum_then_normalize",
            "use_adaptive_entropy": False,
        }

    def _set(self, params: Mapping[str, Any]) -> None:
        trainer = self.trainer
        own = {"num_iterations": 1, **params}
        own["_entropy_bonus_enabled"] = params["entropy_coef"] != 0
        own["current_gradient_accumulation_steps"] = params["gradient_accumulation_steps"]
        for name, value in own.items():
            if hasattr(trainer, name) or name.startswith(("_", "current")):
                setattr(trainer, name, value)
            if hasattr(trainer.args, name):
                object.__setattr__(trainer.args, name, value)

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        lengths = self.random.integers(1, _LONGEST + 1, len(prompts))
        written = [[int(token) for token in self.random.integers(1, 20, length)] for length in lengths]
        tools = [[int(one) for one in self.random.random(length) < 0.8] for length in lengths]
        tool_mask = tools if self.random.random() < 0.5 else None
        shape = (len(prompts), int(lengths.max()))
        self.forward = {"old": -np.abs(self.random.normal(0, 1.5, shape))}
        logprobs = None
        if self.trainer.use_vllm:
            sampler = self.forward["old"] + self.random.normal(0, 0.3, shape)
            if self.trainer.off_policy_mask_threshold is None:  # else a token without a number is not replayed
                sampler[self.random.random(shape) < 0.05] = np.nan
            logprobs = [row[:length].tolist() for row, length in zip(sampler, lengths, strict=True)]
        return [[2, 3]] * len(prompts), written, tool_mask, ["x"] * len(prompts), logprobs, {}, None, None

    def _rewards(self, *_: Any) -> Any:
        found = self.random.normal(self.random.choice([0.0, 3.0]), 1, (ROWS, 2)).round(2).astype(np.float32)
        found[self.random.random(ROWS) < 0.15] = np.nan
        found[self.random.random(ROWS) < 0.2, 1] = np.nan
        if self.random.random() < 0.3:
            found[:_GENERATIONS] = found[0]
        self.rewards = torch.tensor(found)
        return self.rewards

    def _forward(self, model: Any, _ids: Any, *_: Any, compute_entropy: bool = False, **__: Any) -> Any:
        if compute_entropy:
            return self.forward["current"], self.forward["entropies"], None
        old = self.forward["old"]
        if model is self.trainer.ref_model:
            return torch.tensor(old + self.random.normal(0, 0.4, old.shape), dtype=torch.float32), None, None
        return torch.tensor(old, dtype=torch.float32), None, None

    def _micro_step(self, at: int, batch: Mapping[str, Any], params: Mapping[str, Any]) -> Mapping[str, Any]:
        old = self.forward["old"][batch["row"].numpy()]
        new = old + self.random.normal(0, self.random.choice([0.01, 0.3]), old.shape)
        entropies = np.abs(self.random.normal(0, 1.5, old.shape))
        if self.random.random() < 0.5:
            entropies = entropies.round(1)  # equal ones, at the quantile too
        self.forward["current"] = torch.tensor(new, dtype=torch.float32, requires_grad=True)
        self.forward["entropies"] = torch.tensor(entropies, dtype=torch.float32, requires_grad=True)
        loss = self.trainer._compute_loss(self.trainer.model, batch)
        loss.backward()
        accumulation = params["gradient_accumulation_steps"]
        return {
            "micro_step": at,
            "global_step": at // accumulation,
            "generation_index": 0,
            "row_uid": batch["row"].tolist(),
            "current_gradient_accumulation_steps": accumulation,
            "per_token_logps": self.forward["current"].detach().tolist(),
            "entropies": self.forward["entropies"].detach().tolist(),
            "loss": float(loss.detach()),
            "grad_per_token_logps": _gradient(self.forward["current"]),
            "grad_entropies": _gradient(self.forward["entropies"]),
        }

    def _generation(self, buffer: Mapping[str, Any], params: Mapping[str, Any]) -> Mapping[str, Any]:
        names = (
            "completion_mask", "advantages", "old_per_token_logps", "ref_per_token_logps", "tool_mask",
            "sampling_per_token_logps", "importance_sampling_ratio",
        )  # fmt: skip
        return {
            **{name: buffer[name].tolist() if name in buffer else None for name in names},
            "row_uid": list(range(ROWS)),
            "group_index": [row // params["num_generations"] for row in range(ROWS)],
            "prompt_ids": buffer["prompt_ids"].tolist(),
            "rewards_per_func": self.rewards.tolist(),
            "reward_weights": self.trainer.reward_weights.tolist(),
            "num_items_in_batch": float(buffer["num_items_in_batch"]),
            "model_hash": "random",
        }


def _gradient(tensor: Any) -> list[Any]:
    found: list[Any] = (torch.zeros_like(tensor) if tensor.grad is None else tensor.grad).tolist()
    return found


def async_call(random: np.random.Generator, accumulation: int, world_size: int) -> Mapping[str, Any]:
    """TRL's asynchronous loss of one micro-batch of random tensors, in the form of the goldens' recorded calls."""
    module = pytest.importorskip("trl.experimental.async_grpo.async_grpo_trainer")
    lengths = random.integers(1, 7, random.integers(1, 5))
    segments = np.repeat(np.arange(len(lengths)), lengths)
    old = -np.abs(random.normal(0, 1.5, len(segments))).astype(np.float32)
    given = {
        "log_probs": old + random.normal(0, 0.3, len(segments)).astype(np.float32),
        "old_log_probs": old,
        "advantages": random.normal(0, 1, len(lengths)).astype(np.float32)[segments],
        "entropy": np.abs(random.normal(0, 1, len(segments))).astype(np.float32),
    }
    params = {
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "gradient_accumulation_steps": accumulation,
        "world_size": world_size,
        "global_n_tokens": float(len(segments) + (random.integers(0, 20) if world_size > 1 else 0)),
    }
    new = torch.tensor(given["log_probs"], requires_grad=True)
    loss = module.AsyncGRPOTrainer.compute_loss(
        _async_trainer(params),
        lambda **_: SimpleNamespace(log_probs=new[None], entropy=torch.tensor(given["entropy"])[None]),
        _async_inputs(given, segments, params["global_n_tokens"]),
    )
    loss.backward()
    return {
        "params": params,
        "inputs": {**{name: values.tolist() for name, values in given.items()}, "segment_id": segments.tolist()},
        "outputs": {"loss": float(loss.detach()), "grad_log_probs": _gradient(new)},
    }


def _async_trainer(params: Mapping[str, Any]) -> Any:
    """What the method reads of its trainer."""
    accelerator = SimpleNamespace(
        num_processes=params["world_size"], reduce=lambda values, **_: values, gather=lambda values: values
    )
    counts = dict.fromkeys(("forward_tokens", "trained_tokens", "seq_len_weighted", "samples", "forward_s"), 0.0)
    return SimpleNamespace(
        accelerator=accelerator,
        aux_loss_enabled=False,
        epsilon_low=params["epsilon_low"],
        epsilon_high=params["epsilon_high"],
        current_gradient_accumulation_steps=params["gradient_accumulation_steps"],
        _metrics={"train": defaultdict(list)},
        **{f"_step_{name}": value for name, value in counts.items()},
    )


def _async_inputs(given: Mapping[str, Any], segments: NDArray[np.int64], tokens: float) -> Mapping[str, Any]:
    """Packed in one row without a tree."""
    row = torch.arange(len(segments))[None]
    packed = {name: torch.tensor(given[name])[None] for name in ("old_log_probs", "advantages")}
    return {
        **packed,
        **dict.fromkeys(("input_ids", "position_ids", "shift_labels", "token_index"), row),
        **dict.fromkeys(("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k"), row),
        "attention_mask": torch.ones_like(row),
        "segment_id": torch.tensor(segments)[None],
        "tree_max_seqlens": torch.tensor([[len(segments)] * 2]),
        "global_n_tokens": torch.tensor([tokens]),
        "global_n_forward_tokens": torch.tensor([tokens]),
        "mean_seq_len": torch.tensor([1.0]),
    }
