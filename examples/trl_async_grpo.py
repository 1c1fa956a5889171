"""Asynchronous GRPO with TRL on a CPU, its lifecycle in the ledger: `python examples/trl_async_grpo.py`, half a minute.

The model and the cluster are those of `trl_grpo.py`. TRL's own rollout worker asks a vLLM server, on a GPU; the one
here generates in a thread with whatever weights TRL sent last, so that rows are a version or two old when they are
trained on.
"""

import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from trl.experimental.async_grpo import async_grpo_trainer, packing
from trl.experimental.async_grpo.async_grpo_config import AsyncGRPOConfig
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample
from trl_grpo import cluster, model, prompts, tokenizer, vowels

from rollbook.producers import new_id
from rollbook.producers.trl import LedgerRun
from rollbook.producers.trl.asynchronous import AsyncLedgerMixin

GROUP = 8
LENGTH = 32
STEPS = 12


class Trainer(AsyncLedgerMixin, async_grpo_trainer.AsyncGRPOTrainer):
    """All that it takes."""


class Worker:
    """TRL's RolloutWorkerProtocol and WeightTransferProtocol in one: it generates where the weights arrive."""

    def __init__(self) -> None:
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue(4 * GROUP)
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self._model: Any = model()  # generate is typed otherwise in each version of transformers
        self._tokenizer = tokenizer()
        self._weights: dict[str, torch.Tensor] = {}
        self._version = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        self._weights = {name: tensor.clone() for name, tensor in iterator}

    def update_model_version(self, version: int) -> None:
        self._version = version

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def check_health(self, _: float) -> None:
        if not self._thread.is_alive():
            raise RuntimeError("the rollout worker died")

    def _serve(self) -> None:
        texts = prompts()["prompt"]
        for group in range(10**6):
            version = self._version
            self._model.load_state_dict(self._weights, strict=False)
            for sample in self._group(group, texts[group % len(texts)], version):
                while not self._is_over.is_set():
                    try:
                        self.rollout_buffer.put(sample, timeout=0.1)
                        break
                    except queue.Full:
                        continue
            if self._is_over.is_set():
                return

    def _group(self, group: int, prompt: str, version: int) -> list[RolloutSample]:
        prompt_ids = self._tokenizer(prompt)["input_ids"]
        found = self._model.generate(
            torch.tensor([prompt_ids] * GROUP),
            attention_mask=torch.ones(GROUP, len(prompt_ids), dtype=torch.long),
            do_sample=True,
            top_k=0,
            max_new_tokens=LENGTH,
            output_logits=True,
            return_dict_in_generate=True,
        )
        written = found.sequences[:, len(prompt_ids) :]
        log_probs = torch.stack(found.logits, 1).log_softmax(-1).gather(-1, written[..., None])[..., 0]
        rows = [self._ended(ids) for ids in written.tolist()]
        texts = [str(self._tokenizer.decode(ids)) for ids in rows]
        rewards = np.array(vowels(texts), np.float64)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
        return [
            RolloutSample(
                prompt=[{"role": "user", "content": prompt}],
                completion=[{"role": "assistant", "content": texts[at]}],
                input_ids=np.array([*prompt_ids, *ids]),
                completion_mask=np.array([0] * len(prompt_ids) + [1] * len(ids)),
                old_log_probs=np.array([0.0] * len(prompt_ids) + log_probs[at, : len(ids)].tolist(), np.float32),
                advantage=float(advantages[at]),
                model_version=version,
                group_id=group,
                metrics={"reward": rewards[at], "reward_std": rewards.std(), "rewards/vowels": rewards[at]},
            )
            for at, ids in enumerate(rows)
        ]

    def _ended(self, ids: list[int]) -> list[int]:
        end = self._tokenizer.eos_token_id
        return ids[: ids.index(end) + 1] if end in ids else ids


def on_cpu() -> None:
    """Stands in for what TRL takes from a GPU: its attention kernel, and the name of the device."""

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        starts_q: torch.Tensor,
        starts_k: torch.Tensor,
        *_: int,
        softmax_scale: float,
        **__: object,
    ) -> torch.Tensor:
        parts = []
        for at in range(len(starts_q) - 1):
            queries, path = slice(starts_q[at], starts_q[at + 1]), slice(starts_k[at], starts_k[at + 1])
            scores = torch.einsum("qhd,khd->hqk", query[queries], key[path]) * softmax_scale
            rows, columns = scores.shape[1:]
            ahead = torch.ones(rows, columns, dtype=torch.bool).triu(columns - rows + 1)
            weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
            parts.append(torch.einsum("hqk,khd->qhd", weights, value[path]))
        return torch.cat(parts)

    kernel = SimpleNamespace(flash_attn_varlen_func=attention)
    vars(packing)["_flash_attn"] = lambda: kernel
    vars(async_grpo_trainer)["get_peak_flops_per_device"] = lambda *_: None


def main() -> None:
    torch.set_num_threads(1)
    on_cpu()
    with cluster() as settings, tempfile.TemporaryDirectory() as folder:
        model().save_pretrained(f"{folder}/model")
        tokenizer().save_pretrained(f"{folder}/model")
        run, worker = LedgerRun(settings, f"trl-{new_id()}", max_lag=4), Worker()
        trainer = Trainer(
            model=f"{folder}/model",
            args=AsyncGRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=GROUP,
                gradient_accumulation_steps=2,
                num_generations=GROUP,
                max_completion_length=LENGTH,
                max_steps=STEPS,
                max_staleness=4,
                token_budget=0,
                learning_rate=1e-3,
                gradient_checkpointing=False,
                use_cpu=True,
                bf16=False,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=prompts(),
            rollout_worker=worker,
            weight_transfer=worker,
            ledger=run,
        )
        began = time.perf_counter()
        trainer.train()
        whole = time.perf_counter() - began
        ours = trainer.ledger_seconds
        print(f"run {run.run_id}: {STEPS} optimizer steps in {whole:.1f} s")
        print(f"{ours:.2f} s of them, {ours / whole:.1%}, were the ledger's")


if __name__ == "__main__":
    main()
