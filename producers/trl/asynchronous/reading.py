"""Reads TRL's asynchronous trainer, its rollout samples and its forward pass into facts."""

import hashlib
import inspect
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from rollbook.producers.trl.asynchronous.intake import Arrival
from rollbook.producers.trl.conventions import ASYNC
from rollbook.producers.trl.facts import Conditions, MicroStep, RowFacts
from rollbook.producers.trl.reading import template_of, text_of
from rollbook.schemas.digests import FloatArray
from rollbook.schemas.records.common import TrajectoryIdentity
from rollbook.schemas.records.run import LogProbKind, RewardIdentity, Sampling


def conditions_of(trainer: Any) -> Conditions:
    args, tokenizer = trainer.args, trainer.processing_class
    return Conditions(
        tokenizer=str(getattr(tokenizer, "name_or_path", "")) or "unnamed",
        template=template_of(tokenizer),
        engine=_engine(trainer.rollout_worker),
        sampling=Sampling(
            temperature=float(args.temperature),
            top_p=float(args.top_p),
            top_k=int(args.top_k or 0),
            max_tokens=int(args.max_completion_length),
            log_probs=LogProbKind.PROCESSED,
            repetition_penalty=float(args.repetition_penalty),
        ),
        reward=_reward_identity(trainer.rollout_worker),
        version=version("trl"),
        framework_version=version("torch"),
        loss=ASYNC,
        scale="group",
        level="token",
        n_generations=int(args.num_generations),
        beta=0.0,
        epsilon_low=float(trainer.epsilon_low),
        epsilon_high=float(trainer.epsilon_high),
        entropy_coef=0.0,
        temperatures=(1.0, 1.0),
        max_completion_length=int(args.max_completion_length),
        is_plain=not trainer.aux_loss_enabled,
        aggregation=ASYNC,
    )


def arrival_of(sample: Any, identity: TrajectoryIdentity, number: int, ends: Sequence[int]) -> Arrival | None:
    """A sample as it left the queue; None where nothing of it is trained on. Its response begins with the first token
    that is trained on: TRL packs prompt and response into one, and trains on no first token."""
    mask = np.asarray(sample.completion_mask).astype(np.bool_)
    trained = np.flatnonzero(mask[1:])
    if not trained.size:
        return None
    start = int(trained[0]) + 1
    tokens = np.asarray(sample.input_ids, np.int32)
    behavior = np.asarray(sample.old_log_probs, np.float32)[start:].copy()
    prefix = "rewards/"
    rewards = {name.removeprefix(prefix): float(one) for name, one in sample.metrics.items() if name.startswith(prefix)}
    raw = float(sample.metrics.get("reward", math.nan))
    row = RowFacts(
        identity=identity,
        number=int(sample.group_id),
        prompt_hash=hashlib.sha256(text_of(sample.prompt).encode()).hexdigest(),
        prompt_ids=tokens[:start].copy(),
        response_ids=tokens[start:].copy(),
        action_mask=mask[start:].copy(),
        loss_mask=mask[start:].copy(),
        is_stopped=int(tokens[-1]) in ends,
        behavior=behavior,
        current=behavior,
        old=behavior,
        reference=None,
        raw_reward=None if math.isnan(raw) else raw,
        components={name: one for name, one in rewards.items() if not math.isnan(one)},
        advantage=float(sample.advantage),
    )
    turns = sum(_is_answer(message) for message in sample.completion) if isinstance(sample.completion, list) else 1
    return Arrival(number, row, int(sample.group_id), int(sample.model_version), turns)


def terms_of(values: Any, inputs: Mapping[str, Any], rows: Sequence[Arrival | None]) -> list[FloatArray]:
    """The forward pass's values [packed positions] as each row's [T], zero where nothing is trained on. A position that
    rows share is one value in each of them."""
    chosen = inputs["token_index"] >= 0
    flat = values.detach().flatten()[inputs["token_index"][chosen]].float().cpu().numpy()
    segments = inputs["segment_id"][chosen].cpu().numpy()
    found = []
    for place, arrival in enumerate(rows):
        whole = np.zeros(0 if arrival is None else len(arrival.row.response_ids), np.float32)
        if arrival is not None:
            whole[arrival.row.loss_mask] = flat[segments == place]
        found.append(whole)
    return found


def micro_step_of(
    places: Sequence[int], log_probs: Sequence[FloatArray], entropies: Sequence[FloatArray], loss: Any, accumulated: int
) -> MicroStep:
    """`places`: the rows' in their generation."""
    return MicroStep(
        rows=tuple(places),
        log_probs=_matrix(log_probs),
        entropies=_matrix(entropies),
        loss=float(loss.detach()),
        accumulated=accumulated,
    )


def _matrix(rows: Sequence[FloatArray]) -> FloatArray:
    matrix = np.zeros((len(rows), max(map(len, rows), default=0)), np.float32)
    for place, row in enumerate(rows):
        matrix[place, : len(row)] = row
    return matrix


def _is_answer(message: object) -> bool:
    return isinstance(message, Mapping) and message.get("role") == "assistant"


def _engine(worker: Any) -> str:
    """TRL's own worker asks a vLLM server, whose version it does not know; another one is named by its class."""
    if type(worker).__module__.startswith("trl."):
        try:
            return f"vllm {version('vllm')}"
        except PackageNotFoundError:
            return "vllm"
    return type(worker).__qualname__


def _reward_identity(worker: Any) -> RewardIdentity:
    """TRL's own worker is given the reward functions; another one's class is all that is known of its rewards."""
    functions = list(getattr(worker, "_loop_kwargs", {}).get("reward_funcs") or [type(worker)])
    digest = hashlib.sha256()
    for function in functions:
        try:
            source = inspect.getsource(function)
        except (TypeError, OSError):
            source = f"{type(function).__module__}.{type(function).__qualname__}"
        digest.update(f"{source}\n".encode())
    names = [str(getattr(one, "__name__", type(one).__name__)) for one in functions]
    return RewardIdentity(rule_id="+".join(names)[:200], version="1", hash=digest.hexdigest())
