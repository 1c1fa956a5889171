"""Reads TRL's trainer and its tensors into facts. The one module that handles torch, loaded when it is called."""

import hashlib
import importlib
import inspect
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from rollbook.producers.trl.facts import Choices, Completion, Conditions, MicroStep, SamplerCorrection
from rollbook.schemas.digests import FloatArray
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.run import LogProbKind, RewardIdentity, Sampling
from rollbook.schemas.types import MAX_ITEMS

_WHOLE_WEIGHTS = frozenset(
    {"NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_XPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU"}
)
"""Accelerate's kinds of training in which each process has all weights."""
_FORWARD = (
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "num_tiles",
    "pixel_attention_mask",
    "spatial_shapes",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)
"""What the forward pass of a model with images needs besides tokens, under TRL's names."""


@dataclass(frozen=True, slots=True)
class Generated:
    """What TRL's `_generate` gave: ids without padding, and which tokens the model wrote (None: all)."""

    prompt_ids: Sequence[Sequence[int]]
    response_ids: Sequence[Sequence[int]]
    tool_mask: Sequence[Sequence[int]] | None


def conditions_of(trainer: Any) -> Conditions:
    args, tokenizer = trainer.args, trainer._tokenizer
    engine = "vllm" if trainer.use_vllm else "transformers"
    return Conditions(
        tokenizer=str(getattr(tokenizer, "name_or_path", "")) or _vocabulary(tokenizer),
        template=template_of(tokenizer),
        engine=f"{engine} {version(engine)}",
        sampling=Sampling(
            temperature=float(args.temperature),
            top_p=float(args.top_p),
            top_k=int(args.top_k or 0),
            max_tokens=int(trainer.max_completion_length),
            log_probs=LogProbKind.PROCESSED,
            repetition_penalty=float(args.repetition_penalty),
        ),
        reward=_reward_identity(trainer),
        version=version("trl"),
        framework_version=version("torch"),
        loss=trainer.loss_type,
        scale=str(trainer.scale_rewards),
        level=trainer.importance_sampling_level,
        n_generations=int(trainer.num_generations),
        beta=float(trainer.beta),
        epsilon_low=float(trainer.epsilon_low),
        epsilon_high=float(trainer.epsilon_high),
        entropy_coef=float(trainer.entropy_coef),
        temperatures=(float(args.sapo_temperature_pos), float(args.sapo_temperature_neg)),
        max_completion_length=int(trainer.max_completion_length),
        is_plain=not trainer.aux_loss_enabled,
        choices=_choices(trainer),
        aggregation=str(trainer.multi_objective_aggregation),
    )


def unfit(trainer: Any) -> str:
    """Why this training cannot be recorded; empty where it can. The same in all of its processes."""
    args, accelerator = trainer.args, trainer.accelerator
    kind = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    if kind not in _WHOLE_WEIGHTS:
        return (
            f"its weights are divided among processes ({kind}), and the ledger hashes whole ones: use data parallelism"
        )
    if int(args.generation_batch_size) > MAX_ITEMS:
        return (
            f"a generation buffer of {args.generation_batch_size} completions is more than an update can have "
            f"({MAX_ITEMS}): lower steps_per_generation"
        )
    buffer, step = int(args.steps_per_generation) * int(trainer.num_iterations), int(args.gradient_accumulation_steps)
    if int(args.steps_per_generation) < step <= buffer:
        return (
            f"an optimizer step of {step} micro-batches goes more than once through the {args.steps_per_generation} of "
            "a generation, and a recording has each row once: make steps_per_generation at least "
            "gradient_accumulation_steps"
        )
    if buffer % step:
        return (
            f"a generation buffer of {buffer} micro-batches is no whole number of optimizer steps of {step}, so that a "
            "step would be of two updates: make steps_per_generation * num_iterations a multiple of "
            "gradient_accumulation_steps"
        )
    return ""


def template_of(tokenizer: Any) -> str:
    """The chat template by its hash: its text is longer than a name may be."""
    text = getattr(tokenizer, "chat_template", None)
    return hashlib.sha256(str(text).encode()).hexdigest() if text else "plain"


def policy_of(trainer: Any) -> PolicyRef:
    """The weights as they are: the optimizer step that they are of, and the sha256 of every parameter and buffer."""
    digest = hashlib.sha256()
    torch = importlib.import_module("torch")
    for name, tensor in sorted(trainer.accelerator.unwrap_model(trainer.model).state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else b"")
    return PolicyRef(version=int(trainer.state.global_step), artifact_hash=digest.hexdigest())


def checkpoint_folder(trainer: Any, trial: Any) -> Path:
    """Where TRL has just saved to."""
    return Path(trainer._get_output_dir(trial=trial)) / f"checkpoint-{trainer.state.global_step}"


def resumed_folder(trainer: Any, wanted: str | Path | bool) -> Path:
    """The folder that TRL resumes from; True: the last in its output folder."""
    if wanted is not True:
        return Path(str(wanted))
    utilities = importlib.import_module("transformers.trainer_utils")
    return Path(utilities.get_last_checkpoint(trainer.args.output_dir))


def row_numbers(output: Mapping[str, Any], first: int) -> Any:
    """A tensor [B] of first, first + 1, ...: it goes through TRL's shuffling and splitting with the rows that it
    names."""
    torch = importlib.import_module("torch")
    ids = output["completion_ids"]
    return torch.arange(first, first + len(ids), device=ids.device)


def without(output: Mapping[str, Any], rows: Sequence[int], tokens: int) -> dict[str, Any]:
    """The buffer with these of its rows out of the loss. They stay in the attention, so that nothing else about the
    others changes; TRL counts the tokens of a generation after masking, and so does this: `tokens` are what all
    processes leave out."""
    torch = importlib.import_module("torch")
    completion = output["completion_mask"]
    tool_mask = output["tool_mask"].clone() if "tool_mask" in output else torch.ones_like(completion)
    tool_mask[list(rows)] = 0
    return {**output, "tool_mask": tool_mask, "num_items_in_batch": output["num_items_in_batch"] - tokens}


def current_log_probs(trainer: Any, output: Mapping[str, Any], lengths: Sequence[int]) -> Any:
    """The trainer's log-probs of a fresh generation: TRL's own where it computed them (for the loss, or for a sampler's
    correction), else by one more forward pass, which draws from no random state of the training. So it is, too, where
    TRL hides completions that were cut off: what it computed of them is of no text."""
    torch = importlib.import_module("torch")
    mask, known = output["completion_mask"], output.get("old_per_token_logps")
    counts = torch.tensor(list(lengths), device=mask.device).unsqueeze(1)
    written = (torch.arange(mask.size(1), device=mask.device) < counts).to(mask.dtype)
    is_hidden = (mask.sum(dim=1, keepdim=True) == 0) & (counts > 0)
    if known is not None and not is_hidden.any():
        return known
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
    attended = torch.cat([output["prompt_mask"], written], dim=1)
    with torch.no_grad(), torch.random.fork_rng():
        found, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model,
            ids,
            attended,
            output["completion_ids"].size(1),
            batch_size=trainer.args.per_device_train_batch_size,
            **{name: output[name] for name in _FORWARD if name in output},
        )
    return found if known is None else torch.where(is_hidden, found, known)


def completions_of(
    trainer: Any,
    inputs: Sequence[Mapping[str, Any]],
    generated: Generated,
    rewards: Any,
    output: Mapping[str, Any],
) -> tuple[Completion, ...]:
    """What this process generated. `rewards` [B of all processes, functions] as TRL gathered them, NaN where a function
    has no opinion."""
    first = int(trainer.accelerator.process_index) * len(inputs)
    per_function, weights = _array(rewards)[first : first + len(inputs)], _array(trainer.reward_weights)
    names = _distinct([str(name) for name in trainer.reward_func_names])
    current = _array(current_log_probs(trainer, output, [len(ids) for ids in generated.response_ids]))
    old, reference = _maybe(output, "old_per_token_logps"), _maybe(output, "ref_per_token_logps")
    sampler = _maybe(output, "sampling_per_token_logps")
    # What a sampler could not score carries NaN; TRL corrects nothing there, which is to take the trainer's own number.
    behavior = current if sampler is None else np.where(np.isnan(sampler), current, sampler)
    loss_mask = _array(output["completion_mask"])
    if "tool_mask" in output:
        loss_mask = loss_mask * _array(output["tool_mask"])
    advantages = _array(output["advantages"])
    ends = {*trainer.eos_token_ids}
    rows: list[Completion] = []
    for index, given in enumerate(inputs):
        response = np.asarray(generated.response_ids[index], np.int32)
        length = len(response)
        known = ~np.isnan(per_function[index])
        mask = np.ones(length, np.bool_)
        if generated.tool_mask is not None:
            mask = np.asarray(generated.tool_mask[index], np.bool_)
        rows.append(
            Completion(
                prompt_hash=hashlib.sha256(text_of(given.get("prompt")).encode()).hexdigest(),
                prompt_ids=np.asarray(generated.prompt_ids[index], np.int32),
                response_ids=response,
                action_mask=mask,
                loss_mask=loss_mask[index, :length].astype(np.bool_),
                is_stopped=bool(length) and int(response[-1]) in ends,
                behavior=behavior[index, :length],
                current=current[index, :length],
                old=None if old is None else old[index, :length],
                reference=None if reference is None else reference[index, :length],
                raw_reward=float((per_function[index] * weights)[known].sum(dtype=np.float32)) if known.any() else None,
                components={name: float(per_function[index, at]) for at, name in enumerate(names) if known[at]},
                advantage=float(advantages[index]),
                has_gaps=sampler is not None and bool(np.isnan(sampler[index, :length])[mask].any()),
            )
        )
    return tuple(rows)


def entropy_coef_of(trainer: Any) -> float:
    """The weight of the entropy in the step under way: an adaptive one changes with the step's last loss."""
    if trainer.use_adaptive_entropy and trainer._last_world_entropy > trainer.args.entropy_target:
        return 0.0
    return float(trainer.entropy_coef)


def micro_step_of(
    rows: Any, log_probs: Any, entropies: Any, loss: Any, accumulated: int, entropy_coef: float
) -> MicroStep:
    return MicroStep(
        rows=tuple(int(row) for row in rows.tolist()),
        log_probs=_array(log_probs),
        entropies=_array(entropies),
        loss=float(loss.detach()),
        accumulated=accumulated,
        entropy_coef=entropy_coef,
    )


def _array(tensor: Any) -> FloatArray:
    values: FloatArray = tensor.detach().float().cpu().numpy().copy()
    return values


def _maybe(output: Mapping[str, Any], name: str) -> FloatArray | None:
    return None if output.get(name) is None else _array(output[name])


def _distinct(names: Sequence[str]) -> list[str]:
    """TRL's names of the reward functions, of which two may be the same: of two lambdas, or of one class."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return found


def text_of(prompt: object) -> str:
    """A prompt as one text, the same for all of its rows."""
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True, default=_plain)


def _plain(part: Any) -> str:
    """An image by its content: how Python shows it depends on where it lies in memory."""
    kind = f"{type(part).__module__}.{type(part).__qualname__}"
    return f"{kind} {hashlib.sha256(part.tobytes()).hexdigest()}" if hasattr(part, "tobytes") else kind


def _vocabulary(tokenizer: Any) -> str:
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()


def _reward_identity(trainer: Any) -> RewardIdentity:
    """The functions and their weights; the hash is over their source, where Python can find it."""
    digest = hashlib.sha256()
    for function, weight in zip(trainer.reward_funcs, trainer.reward_weights.tolist(), strict=True):
        try:
            source = inspect.getsource(function)
        except (TypeError, OSError):
            source = f"{type(function).__module__}.{type(function).__qualname__}"
        digest.update(f"{weight!r}\n{source}\n".encode())
    rule_id = "+".join(str(name) for name in trainer.reward_func_names)
    return RewardIdentity(rule_id=rule_id[:200], version="1", hash=digest.hexdigest())


def _choices(trainer: Any) -> Choices:
    args = trainer.args
    correction = None
    if trainer.use_vllm and trainer.vllm_importance_sampling_correction:
        correction = SamplerCorrection(
            mode=str(trainer.vllm_importance_sampling_mode),
            least=_number(trainer.vllm_importance_sampling_clip_min),
            most=_number(trainer.vllm_importance_sampling_clip_max),
        )
    return Choices(
        delta=_number(args.delta),
        top_entropy_quantile=float(trainer.top_entropy_quantile),
        off_policy_mask_threshold=_number(trainer.off_policy_mask_threshold),
        use_bias_correction_kl=bool(args.use_bias_correction_kl),
        has_entropy_bonus=bool(trainer._entropy_bonus_enabled),
        vespo=(
            float(args.vespo_k_pos),
            float(args.vespo_lambda_pos),
            float(args.vespo_k_neg),
            float(args.vespo_lambda_neg),
        ),
        correction=correction,
        has_sampler=bool(trainer.use_vllm),
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
