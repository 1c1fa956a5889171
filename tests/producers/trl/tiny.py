"""A training of seconds: a random model of some thousand parameters, a tokenizer built here, prompts made up here."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rollbook.producers.trl import LedgerMixin, LedgerRun

trl: Any = pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")
torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
tokenizers: Any = pytest.importorskip("tokenizers")
datasets: Any = pytest.importorskip("datasets")

LETTERS = "abcdefghijklmnopqrstuvwxyz "
_GRPO_TRAINER: Any = trl.GRPOTrainer


class LedgerTrainer(LedgerMixin, _GRPO_TRAINER):  # type: ignore[misc]  # where TRL is not installed it is Any
    """What a user writes."""


def tokenizer() -> Any:
    vocabulary = {token: at for at, token in enumerate(["<pad>", "<eos>", *LETTERS])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def model() -> Any:
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=len(LETTERS) + 2,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config)


def vowels(completions: list[str], **_: Any) -> list[float]:
    return [sum(letter in "aeiou" for letter in text) / 4 for text in completions]


def shortness(completions: list[str], **_: Any) -> list[float | None]:
    return [None if len(text) > 20 else -len(text) / 16 for text in completions]


@dataclass(frozen=True)
class Shape:
    """Eight completions a buffer in two groups of four, two optimizer steps a pass, two passes."""

    loss: str = "dapo"
    scale: str = "group"
    iterations: int = 2
    accumulation: int = 2
    steps: int = 8
    options: dict[str, Any] = field(default_factory=dict)


def train(
    folder: Path, shape: Shape, ledger: LedgerRun | None = None, tune: Callable[[Any], None] | None = None
) -> Any:
    """A trainer that has trained."""
    trainer = make(folder, shape, ledger)
    if tune is not None:
        tune(trainer)
    trainer.train()
    return trainer


def make(folder: Path, shape: Shape, ledger: LedgerRun | None = None, **changed: Any) -> Any:
    """A trainer that has not trained yet; `changed` are other arguments of TRL's."""
    torch.set_num_threads(1)
    options = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": shape.accumulation,
        "steps_per_generation": 4,
        "num_generations": 4,
        "num_iterations": shape.iterations,
        "max_completion_length": 8,
        "max_steps": shape.steps,
        "learning_rate": 1e-2,
        "loss_type": shape.loss,
        "scale_rewards": shape.scale,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "seed": 3,
        "beta": 0.0,
    }
    prompts = datasets.Dataset.from_dict({"prompt": [f"{one}{two} " for one in "abcd" for two in "xyz"]})
    kind = _GRPO_TRAINER if ledger is None else LedgerTrainer
    given = {
        "model": model(),
        "processing_class": tokenizer(),
        "reward_funcs": [vowels, shortness],
        "args": trl.GRPOConfig(output_dir=str(folder), **{**options, **shape.options}),
        "train_dataset": prompts,
        **({} if ledger is None else {"ledger": ledger}),
    }
    return kind(**{**given, **changed})


def fingerprint(trainer: Any) -> str:
    """sha256 of the final weights, bit by bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(trainer.model.state_dict().items()):
        digest.update(name.encode() + tensor.detach().numpy().tobytes())
    return digest.hexdigest()
