"""GRPO with TRL on a CPU, its lifecycle in the ledger: `python examples/trl_grpo.py` takes about a minute.

A random model of four million parameters learns to prefer vowels; nothing is downloaded but the broker's files at
the first run. With ROLLBOOK_BOOTSTRAP_SERVERS it uses that cluster and the processor that runs there; else it starts a
broker and a processor of its own.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import SERVERS_VARIABLE, Settings
from rollbook.infra.topics.topics import create_topics
from rollbook.producers import new_id
from rollbook.producers.trl import LedgerMixin, LedgerRun

LETTERS = "abcdefghijklmnopqrstuvwxyz "


class Trainer(LedgerMixin, GRPOTrainer):
    """All that it takes."""


@contextmanager
def cluster() -> Iterator[Settings]:
    """The settings of a cluster with a processor."""
    if SERVERS_VARIABLE in os.environ:
        yield Settings.from_env()
        return
    with EmbeddedBroker() as broker:
        settings = Settings(bootstrap_servers=broker.bootstrap_servers)
        create_topics(settings)
        command = [sys.executable, "-m", "rollbook.infra.cli", "processor", "run", "--quiet"]
        processor = subprocess.Popen(command, env={**os.environ, SERVERS_VARIABLE: broker.bootstrap_servers})
        try:
            yield settings
        finally:
            processor.terminate()
            processor.wait()


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: at for at, token in enumerate(["<pad>", "<eos>", *LETTERS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def model() -> LlamaForCausalLM:
    torch.manual_seed(7)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(LETTERS) + 2,
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
            pad_token_id=0,
            eos_token_id=1,
        )
    )


def vowels(completions: list[str], **_: object) -> list[float]:
    return [sum(letter in "aeiou" for letter in text) / 32 for text in completions]


def prompts() -> Dataset:
    return Dataset.from_dict({"prompt": [f"{one}{two} " for one in LETTERS[:8] for two in "xyz"]})


def arguments(folder: str) -> GRPOConfig:
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        num_generations=8,
        num_iterations=2,
        max_completion_length=96,
        max_steps=24,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )


def main() -> None:
    torch.set_num_threads(1)
    with cluster() as settings, tempfile.TemporaryDirectory() as folder:
        run = LedgerRun(settings, f"trl-{new_id()}")
        trainer = Trainer(
            model=model(),
            processing_class=tokenizer(),
            reward_funcs=vowels,
            args=arguments(folder),
            train_dataset=prompts(),
            ledger=run,
        )
        began = time.perf_counter()
        trainer.train()
        opening, ours = trainer.ledger_opening_seconds, trainer.ledger_seconds
        whole = time.perf_counter() - began - opening
        print(f"run {run.run_id}: 24 optimizer steps in {whole:.1f} s, after {opening:.1f} s in which it was opened")
        print(f"{ours:.2f} s of them, {ours / whole:.1%}, were the ledger's")


if __name__ == "__main__":
    main()
