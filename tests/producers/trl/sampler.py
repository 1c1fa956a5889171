"""Samplers that a training can be given in the place of its own generation (`rollout_func` of TRL): what they write is
made up, and their log-probs are the trainer's and a bit, as those of another engine are."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollbook.tests.producers.trl.tiny import torch

FIRST_LETTER, EOS = 2, 1


@dataclass(frozen=True)
class Sampler:
    """`drifts` are added to the log-probs of a buffer's rows, of all processes, in turn, at every other token with
    another sign. `tools`: the second and third token of each row are a tool's. `unscored`: a token of the first row has
    no log-prob."""

    drifts: Sequence[float] = (0.02,)
    tools: bool = False
    unscored: bool = False
    is_cut: bool = False
    """Whether every third row ends without an end."""

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        prompt_ids = [trainer.processing_class(text=prompt)["input_ids"] for prompt in prompts]
        step = trainer.state.global_step
        first = trainer.accelerator.process_index * len(prompts)
        rows = [self._written(f"{prompt} {at} {step}", at) for at, prompt in enumerate(prompts, first)]
        log_probs: list[list[float | None]] = []
        for at, (prompt, row) in enumerate(zip(prompt_ids, rows, strict=True), first):
            ids = torch.tensor([prompt + row])
            with torch.no_grad():
                found, _, _ = trainer._get_per_token_logps_and_entropies(
                    trainer.model, ids, torch.ones_like(ids), len(row)
                )
            drift = self.drifts[at % len(self.drifts)]
            log_probs.append([value - drift for value in found[0].tolist()])
        if self.unscored:
            log_probs[0][0] = None
        given: dict[str, list[Any]] = {"prompt_ids": prompt_ids, "completion_ids": rows, "logprobs": log_probs}
        if self.tools:
            given["env_mask"] = [[1, 0, 0, *[1] * (len(row) - 3)] for row in rows]
        return given

    def _written(self, seed: str, at: int) -> list[int]:
        digest = hashlib.sha256(seed.encode()).digest()
        letters = [FIRST_LETTER + byte % 26 for byte in digest[1 : 5 + digest[0] % 3]]
        return letters if self.is_cut and at % 3 == 0 else [*letters, EOS]


def masking(trainer: Any, rows: Sequence[int]) -> Any:
    """Plain TRL with these rows of each buffer, of all processes, out of its loss, as its own tool mask would put
    them."""
    generate = trainer._generate_and_score_completions

    def generated(inputs: Any) -> Any:
        output = generate(inputs)
        mask = torch.ones_like(output["completion_mask"])
        first = trainer.accelerator.process_index * len(mask)
        mask[[row - first for row in rows if 0 <= row - first < len(mask)]] = 0
        left_out = trainer.accelerator.gather((output["completion_mask"] * (1 - mask)).sum()).sum()
        return {**output, "tool_mask": mask, "num_items_in_batch": output["num_items_in_batch"] - left_out}

    trainer._generate_and_score_completions = generated
    return trainer
