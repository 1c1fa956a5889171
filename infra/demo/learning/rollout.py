"""Rollout: sampling a group of responses to one prompt, with the log-probs that the sampler saw."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch.nn import functional

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.model import TinyTransformer
from rollbook.infra.demo.learning.records import FloatArray
from rollbook.infra.demo.learning.task import END, Prompt


class FinishReason(StrEnum):
    """Why a response ended."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Response:
    """One sampled response: ids (with the end token where it came) and behaviour log-probs, float32, one a token."""

    ids: tuple[int, ...]
    log_probs: FloatArray
    finish_reason: FinishReason


def sample_group(
    model: TinyTransformer, prompt: Prompt, config: DemoConfig, *, attempt: int = 0
) -> tuple[Response, ...]:
    """The group of `samples_per_prompt` responses to a prompt at temperature 1.

    A function of weights, configuration, prompt and `attempt` alone: no matter which worker generates, or when. A group
    that was lost is generated anew as the next attempt.
    """
    generator = torch.Generator().manual_seed(_sampling_seed(config, prompt, attempt))
    samples = config.samples_per_prompt
    ids = torch.tensor([prompt.ids] * samples)
    columns: list[torch.Tensor] = []
    with torch.no_grad():
        while len(columns) < config.max_response_tokens:
            log_softmax = functional.log_softmax(model(ids)[:, -1], dim=-1)
            token = torch.multinomial(log_softmax.exp(), 1, generator=generator)
            columns.append(log_softmax.gather(1, token).squeeze(1))
            ids = torch.cat([ids, token], dim=1)
            if (ids[:, len(prompt.ids) :] == END).any(dim=1).all():
                break
    log_probs = torch.stack(columns, dim=1).numpy()
    return tuple(_cut(row, log_probs[index]) for index, row in enumerate(ids[:, len(prompt.ids) :].tolist()))


def _cut(ids: list[int], log_probs: FloatArray) -> Response:
    """A batch goes on until its last member has ended; what another sampled after its own end is not its response."""
    length = ids.index(END) + 1 if END in ids else len(ids)
    reason = FinishReason.STOP if END in ids else FinishReason.LENGTH
    return Response(ids=tuple(ids[:length]), log_probs=log_probs[:length].copy(), finish_reason=reason)


def _sampling_seed(config: DemoConfig, prompt: Prompt, attempt: int) -> int:
    digest = hashlib.sha256(f"{config.seed}/{prompt.task_id}/{attempt}".encode()).digest()
    return int.from_bytes(digest[:6], "little")
