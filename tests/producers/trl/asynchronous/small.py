"""An asynchronous training of seconds on a CPU: tiny model, a rollout worker of our own whose every sample is seeded.

TRL's tree attention is a CUDA kernel fetched from a hub: its stand-in here computes the same in plain torch.
"""

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rollbook.producers.trl import LedgerRun
from rollbook.producers.trl.asynchronous import AsyncLedgerMixin
from rollbook.tests.producers.trl.tiny import datasets, model, tokenizer, torch

grpo: Any = pytest.importorskip("trl.experimental.async_grpo.async_grpo_trainer")
packing: Any = pytest.importorskip("trl.experimental.async_grpo.packing")
rollouts: Any = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
config: Any = pytest.importorskip("trl.experimental.async_grpo.async_grpo_config")

GROUP = 4
LENGTH = 8
HALF = 3
TOOL = [5, 6]
FAR = -20.0
"""Nats that no token of the tiny model falls below, but those of a sampler that is far off."""
PROMPTS = [f"{one}{two} " for one in "abcd" for two in "xyz"]
_PLAIN: Any = grpo.AsyncGRPOTrainer


class LedgerTrainer(AsyncLedgerMixin, _PLAIN):  # type: ignore[misc]  # where TRL is not installed it is Any
    """What a user writes."""


class MaskingTrainer(_PLAIN):  # type: ignore[misc]
    """Plain TRL, where the loss terms of rows that are far off are taken out by hand."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        out = (inputs["old_log_probs"] < FAR) & (inputs["token_index"] >= 0)
        kept = inputs["token_index"].masked_fill(out, -1)
        tokens = inputs["global_n_tokens"] - out.sum()
        return super().compute_loss(model, {**inputs, "token_index": kept, "global_n_tokens": tokens}, *args, **kwargs)


def attention(
    query: Any, key: Any, value: Any, starts_q: Any, starts_k: Any, *_: Any, softmax_scale: float, **__: Any
) -> Any:
    """Each segment of the queries over its own path of keys, causally, ends aligned."""
    parts = []
    bounds = list(zip(starts_q.tolist(), starts_q.tolist()[1:], starts_k.tolist(), starts_k.tolist()[1:], strict=False))
    for q_from, q_to, k_from, k_to in bounds:
        queries, keys, values = query[q_from:q_to], key[k_from:k_to], value[k_from:k_to]
        scores = torch.einsum("qhd,khd->hqk", queries, keys) * softmax_scale
        ahead = torch.ones(q_to - q_from, k_to - k_from, dtype=torch.bool).triu(k_to - k_from - (q_to - q_from) + 1)
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
        parts.append(torch.einsum("hqk,khd->qhd", weights, values))
    return torch.cat(parts)


@dataclass(frozen=True)
class Shape:
    """Six rows a step in two micro-batches, groups of four: a group falls into two steps now and then. `lags`: of how
    many versions more a group is behind; `drifted`: rows, by number, whose sampler is `off` by nats."""

    steps: int = 4
    rows: int = 3
    accumulation: int = 2
    max_staleness: int = 4
    token_budget: int = 0
    lags: dict[int, int] = field(default_factory=dict)
    drifted: frozenset[int] = frozenset()
    off: float = 30.0
    unrewarded: frozenset[int] = frozenset()
    first: int = 0
    """The version before the first sync: not 0 where TRL goes on from a checkpoint with a worker of its own."""
    ahead: int = 0
    """How far the stamp of a group is ahead of its version."""
    turns: bool = False
    """Two answers with a tool's between them; the first conversation of each group forks into two rows."""
    options: dict[str, Any] = field(default_factory=dict)

    def version(self, group: int) -> int:
        """What the group is sampled with: the newest weights that can be there when TRL first draws of it, less its
        lag. TRL draws one micro-batch ahead. Where groups and micro-batches hold now more, now less: the first ones."""
        if self.token_budget or self.turns:
            return 1
        dropped = sum(lag > self.max_staleness and other < group for other, lag in self.lags.items())
        micro_batch = (group - dropped) * GROUP // self.rows
        syncs = (micro_batch - 1) // self.accumulation // int(self.options.get("weight_sync_steps", 1))
        return max(1, 1 + syncs - self.lags.get(group, 0))


class Weights:
    """Takes TRL's weights and keeps those of each version."""

    def __init__(self) -> None:
        self._latest: dict[str, Any] = {}
        self._versions: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._is_over = False

    def init_weight_transfer(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def destroy(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        self._latest = {name: tensor.clone() for name, tensor in iterator}

    def arrived(self, version: int) -> None:
        with self._changed:
            self._versions[version] = self._latest
            self._changed.notify_all()

    def of(self, version: int) -> dict[str, Any] | None:
        """Waits for them; None when the training is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or version in self._versions)
            return None if self._is_over else self._versions[version]


class Worker:
    """Generates in a thread of its own, group after group, each sample from a seed of its own."""

    def __init__(self, weights: Weights, shape: Shape) -> None:
        self.rollout_buffer: Any = queue.Queue()
        self.metrics_queue: Any = queue.Queue()
        self._weights = weights
        self._shape = shape
        self._model = model()
        self._tokenizer = tokenizer()
        self._number = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._weights.destroy()
        self._thread.join()

    def update_model_version(self, version: int) -> None:
        self._weights.arrived(version)

    def check_health(self, _: float) -> None:
        if not self._thread.is_alive():
            raise RuntimeError("the rollout worker died")

    def _serve(self) -> None:
        for group in range(10**6):
            version = self._shape.first + self._shape.version(group)
            weights = self._weights.of(version)
            if weights is None:
                return
            self._model.load_state_dict(weights, strict=False)
            for sample in self._group(group, version):
                self.rollout_buffer.put(sample)

    def _group(self, group: int, version: int) -> list[Any]:
        prompt = PROMPTS[group % len(PROMPTS)]
        prompt_ids = self._tokenizer(prompt)["input_ids"]
        texts = [self._sample(prompt_ids, group * GROUP + place) for place in range(GROUP)]
        rewards = np.array([self._reward(ids, group * GROUP + place) for place, (ids, _) in enumerate(texts)])
        known = ~np.isnan(rewards)
        mean, std = (rewards[known].mean(), rewards[known].std()) if known.any() else (0.0, 0.0)
        advantages = np.where(known, (rewards - mean) / (std + 1e-8), 0.0)
        samples = []
        for place, (ids, log_probs) in enumerate(texts):
            drift = self._shape.off if group * GROUP + place in self._shape.drifted else 0.0
            metrics = {
                "reward": float(rewards[place]),
                "reward_std": float(std),
                "rewards/vowels": float(rewards[place]),
            }
            for tokens, mask, behavior in self._rows(prompt_ids, ids, [one - drift for one in log_probs], place == 0):
                samples.append(
                    rollouts.RolloutSample(
                        prompt=prompt,
                        completion=self._messages(ids),
                        input_ids=np.asarray(tokens, np.int64),
                        completion_mask=np.asarray(mask, np.int64),
                        old_log_probs=np.asarray(behavior, np.float32),
                        advantage=float(advantages[place]),
                        model_version=version + self._shape.ahead,
                        group_id=group,
                        metrics=dict(metrics),
                    )
                )
        return samples

    def _messages(self, ids: Sequence[int]) -> list[dict[str, str]]:
        answers = [ids[:HALF], ids[HALF:]] if self._shape.turns else [ids]
        return [{"role": "assistant", "content": self._tokenizer.decode(one)} for one in answers]

    def _rows(
        self, prompt_ids: list[int], ids: list[int], log_probs: list[float], forks: bool
    ) -> list[tuple[list[int], list[int], list[float]]]:
        """Tokens, mask and log-probs of a conversation's training rows."""
        if not self._shape.turns or len(ids) <= HALF:
            return [_row((prompt_ids, None), (ids, log_probs))]
        first, second = (ids[:HALF], log_probs[:HALF]), (ids[HALF:], log_probs[HALF:])
        if forks:
            return [_row((prompt_ids, None), first), _row(([*prompt_ids, *TOOL], None), second)]
        return [_row((prompt_ids, None), first, (TOOL, None), second)]

    def _sample(self, prompt_ids: Sequence[int], seed: int) -> tuple[list[int], list[float]]:
        generator = torch.Generator().manual_seed(seed)
        ids: list[int] = []
        log_probs: list[float] = []
        while len(ids) < LENGTH and 1 not in ids:
            with torch.no_grad():
                logits = self._model(torch.tensor([[*prompt_ids, *ids]])).logits[0, -1]
            chances = logits.log_softmax(-1)
            token = int(torch.multinomial(chances.exp(), 1, generator=generator))
            ids.append(token)
            log_probs.append(float(chances[token]))
        return ids, log_probs

    def _reward(self, ids: Sequence[int], number: int) -> float:
        if number in self._shape.unrewarded:
            return float("nan")
        return sum(letter in "aeiou" for letter in self._tokenizer.decode(ids)) / 4


def _row(*parts: tuple[list[int], list[float] | None]) -> tuple[list[int], list[int], list[float]]:
    """Parts that the model has written have log-probs."""
    return (
        [token for ids, _ in parts for token in ids],
        [int(known is not None) for ids, known in parts for _ in ids],
        [one for ids, known in parts for one in (known or [0.0] * len(ids))],
    )


def train(
    folder: Path,
    shape: Shape,
    ledger: LedgerRun | None = None,
    kind: Any = None,
    resume: str | None = None,
) -> Any:
    """A trainer that has trained."""
    torch.set_num_threads(1)
    model().save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    arguments = config.AsyncGRPOConfig(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=shape.rows,
        gradient_accumulation_steps=shape.accumulation,
        num_generations=GROUP,
        max_completion_length=LENGTH,
        max_steps=shape.steps,
        max_staleness=shape.max_staleness,
        token_budget=shape.token_budget,
        learning_rate=1e-2,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        report_to=[],
        logging_strategy="no",
        disable_tqdm=True,
        seed=3,
        **{"save_strategy": "no", **shape.options},
    )
    weights = Weights()
    given: dict[str, Any] = {} if ledger is None else {"ledger": ledger}
    trainer = (kind or (_PLAIN if ledger is None else LedgerTrainer))(
        model=str(folder / "model"),
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"prompt": PROMPTS}),
        rollout_worker=Worker(weights, shape),
        weight_transfer=weights,
        **given,
    )
    trainer.model_version = shape.first
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what TRL takes from a GPU: its attention kernel, and the name of the device."""
    kernel = SimpleNamespace(flash_attn_varlen_func=attention)
    monkeypatch.setattr(packing, "_flash_attn", lambda: kernel)
    monkeypatch.setattr(grpo, "get_peak_flops_per_device", lambda *_: None)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL without a GPU."""
    stand_in(monkeypatch)
