"""The verifiable task: sort the digits of the prompt. A row has one prompt; the verifier gives partial credit."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollbook.infra.demo.config import DemoConfig

SEPARATOR = 10
"""Ends the prompt."""
END = 11
"""Ends the response."""
VOCABULARY_SIZE = 12

TRAIN_DATASET = "sort-digits/train"
EVAL_DATASET = "sort-digits/eval"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of a dataset: distinct digits, and what a perfect response to them is."""

    dataset: str
    row: int
    digits: tuple[int, ...]

    @property
    def task_id(self) -> str:
        return f"{self.dataset}/{self.row}"

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids of the prompt."""
        return (*self.digits, SEPARATOR)

    @property
    def label(self) -> tuple[int, ...]:
        """Token ids of the perfect response, end token included."""
        return (*sorted(self.digits), END)

    @property
    def prompt_hash(self) -> str:
        return _sha256(self.ids)

    @property
    def label_hash(self) -> str:
        return _sha256(self.label)


def train_prompt(config: DemoConfig, row: int) -> Prompt:
    """The training prompt of a row: any row, always the same one for a seed."""
    return _prompt(config, TRAIN_DATASET, row, seed=config.seed)


def eval_prompts(config: DemoConfig) -> tuple[Prompt, ...]:
    """The evaluation prompts: the same for every seed, so that runs can be compared."""
    return tuple(_prompt(config, EVAL_DATASET, row, seed=0) for row in range(config.eval_prompts))


def reward_of(prompt: Prompt, response_ids: Sequence[int]) -> float:
    """The share of positions that agree with the label, in [0, 1]; a missing or surplus token is a wrong position.

    Rounded to float32, so that the log, a bundle and the learner's arithmetic hold the same number.
    """
    right = sum(given == wanted for given, wanted in zip(response_ids, prompt.label, strict=False))
    return float(np.float32(right / max(len(prompt.label), len(response_ids))))


def sloppy_demonstration(prompt: Prompt, sloppiness: float, rng: random.Random) -> tuple[int, ...]:
    """The label with each digit replaced by a random one with probability `sloppiness`: what the warm-up imitates."""
    *digits, end = prompt.label
    return (*(rng.randrange(10) if rng.random() < sloppiness else digit for digit in digits), end)


def _prompt(config: DemoConfig, dataset: str, row: int, seed: int) -> Prompt:
    # A string seeds random.Random through sha512: the same on every machine and Python version, unlike hash().
    rng = random.Random(f"{dataset}:{seed}:{row}")
    length = rng.randint(config.min_digits, config.max_digits)
    return Prompt(dataset=dataset, row=row, digits=tuple(rng.sample(range(10), length)))


def _sha256(ids: Sequence[int]) -> str:
    return hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes()).hexdigest()
