"""TRL's recorded runs as bundles: each micro-step and each optimizer step what a trainer would hand to capture.

The scalars beside TRL's loss, which it does not keep, are computed here, row by row, and not by the engine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rollbook.producers.trl.conventions import loss_name
from rollbook.replay.bundle.convention import (
    Behavior,
    Conventions,
    Correction,
    EntropyMean,
    KlTerm,
    NamedConvention,
    OffPolicyMask,
    Outlier,
    Reached,
    Vespo,
    WholeBatch,
)
from rollbook.replay.bundle.model import Config
from rollbook.replay.bundle.writing.rows import NotConsumed, Origin, Rows
from rollbook.replay.capture import Recorded
from rollbook.replay.dialects import trl
from rollbook.tests.replay.goldens.case import numbers

Raw = Mapping[str, Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """One recorded training."""

    document: Raw

    @cached_property
    def params(self) -> Raw:
        return {**self.document["config"], **self.document["effective"]}

    @cached_property
    def generations(self) -> tuple["Buffer", ...]:
        return tuple(Buffer(at, raw, self.params) for at, raw in enumerate(self.document["generations"]))

    @property
    def unsupported(self) -> str:
        """Why its losses are no bundle's, if they are not."""
        params = self.params
        if params["use_adaptive_entropy"]:
            return "whether an adaptive bonus was on is the state of a controller that is not recorded"
        by_sampler = params["off_policy_mask_threshold"] is not None
        if by_sampler and any(buffer.is_partly_unknown for buffer in self.generations):
            return (
                "a token without a number of the sampler has no distance in TRL's off-policy mask, and one in a bundle"
            )
        return ""

    def micro_steps(self) -> Iterator[Recorded]:
        for micro in self.document["micro_steps"]:
            yield self._step((micro,), micro["micro_step"], f"micro-{micro['micro_step']}")

    def optimizer_steps(self) -> Iterator[Recorded]:
        for step, micros in groupby(self.document["micro_steps"], lambda micro: int(micro["global_step"])):
            yield self._step(tuple(micros), step, f"step-{step}")

    def _step(self, micros: tuple[Raw, ...], number: int, name: str) -> Recorded:
        (buffer,) = {micro["generation_index"] for micro in micros}
        return Step(self.generations[buffer], micros, self.params, number, f"{self.document['id']}-{name}").recorded()


@dataclass(frozen=True)
class Buffer:
    """One generation, its arrays [rows, longest] as recorded."""

    at: int
    raw: Raw
    params: Raw

    def array(self, name: str) -> Floats:
        return np.asarray(numbers(self.raw[name]), dtype=np.float64)

    @cached_property
    def raw_rewards(self) -> NDArray[np.float32]:
        known = np.nan_to_num(self.array("rewards_per_func").astype(np.float32), nan=0.0)
        found: NDArray[np.float32] = (known * self.array("reward_weights").astype(np.float32)).sum(axis=1)
        return found

    @cached_property
    def scored(self) -> NDArray[np.bool_]:
        known: NDArray[np.bool_] = ~np.isnan(self.array("rewards_per_func"))
        return np.asarray(known.any(axis=1))

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.array("completion_mask").sum(axis=1).astype(np.int64)
        return found

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        written: NDArray[np.bool_] = self.array("completion_mask") != 0
        if self.raw["tool_mask"] is not None:
            written &= self.array("tool_mask") != 0
        return written

    @property
    def is_partly_unknown(self) -> bool:
        found = self.raw["sampling_per_token_logps"]
        return found is not None and bool(np.isnan(self.array("sampling_per_token_logps"))[self.mask].any())

    @cached_property
    def sampler(self) -> Floats | None:
        """A token whose sampler gave no number is not corrected: it has the trainer's own."""
        if self.raw["sampling_per_token_logps"] is None:
            return None
        found, old = self.array("sampling_per_token_logps"), self.array("old_per_token_logps")
        return np.where(np.isnan(found), old, found)


@dataclass(frozen=True)
class Step:
    """Some micro-steps of one optimizer step."""

    buffer: Buffer
    micros: tuple[Raw, ...]
    params: Raw
    number: int
    name: str

    @cached_property
    def rows(self) -> list[int]:
        places = {uid: at for at, uid in enumerate(self.buffer.raw["row_uid"])}
        return [places[uid] for micro in self.micros for uid in micro["row_uid"]]

    @cached_property
    def micro_batches(self) -> list[str]:
        return [f"mb-{at:04d}" for at, micro in enumerate(self.micros) for _ in micro["row_uid"]]

    def flat(self, matrix: Floats) -> Floats:
        """Rows of the generation as the step has them, without padding."""
        return np.concatenate([matrix[row, : self.buffer.lengths[row]] for row in self.rows])

    def of_micros(self, name: str) -> Floats:
        matrices = [np.asarray(numbers(micro[name]), dtype=np.float64) for micro in self.micros]
        found = [row for matrix in matrices for row in matrix]
        return np.concatenate(
            [values[: self.buffer.lengths[row]] for row, values in zip(self.rows, found, strict=True)]
        )

    @cached_property
    def tensors(self) -> dict[str, Floats]:
        buffer = self.buffer
        new = self.of_micros("per_token_logps")
        given = {
            "log_probs": new,
            "old_log_probs": new if buffer.raw["old_per_token_logps"] is None else self._old("old_per_token_logps"),
            "entropy": self.of_micros("entropies"),
            "advantages": np.repeat(buffer.array("advantages")[self.rows], buffer.lengths[self.rows]),
        }
        if buffer.raw["ref_per_token_logps"] is not None:
            given["ref_log_probs"] = self._old("ref_per_token_logps")
        if buffer.sampler is not None:
            given["rollout_log_probs"] = self.flat(buffer.sampler)
        return given

    def _old(self, name: str) -> Floats:
        return self.flat(self.buffer.array(name))

    def recorded(self) -> Recorded:
        buffer, rows = self.buffer, self.rows
        uids, groups = buffer.raw["row_uid"], buffer.raw["group_index"]
        mine = {groups[row] for row in rows}
        whole = self.params["scale_rewards"] == "batch"
        others = [
            at for at in range(len(uids)) if at not in rows and buffer.scored[at] and (whole or groups[at] in mine)
        ]
        return Recorded(
            rollout_id=buffer.at,
            step_id=self.number,
            rows=Rows(
                sample_ids=[f"row-{uids[row]}" for row in rows],
                group_index=[groups[row] for row in rows],
                response_lengths=buffer.lengths[rows],
                total_lengths=[len(buffer.raw["prompt_ids"][row]) + int(buffer.lengths[row]) for row in rows],
                loss_mask=self.flat(buffer.mask.astype(np.float64)).astype(np.int64),
                raw_rewards=buffer.raw_rewards[rows],
                rewards=buffer.array("advantages")[rows],
                micro_batch_ids=self.micro_batches,
                unmeasured={f"row-{uids[row]}": None for row in rows if not buffer.scored[row]},
            ),
            config=self._config(),
            tensors=self.tensors,
            loss=self._scalars(),
            origin=Origin(
                consumer_batch_ids=[f"generation-{buffer.at}"],
                semantic_group_ids=[f"group-{group}" for group in sorted(mine)],
                actor_weight=str(buffer.raw["model_hash"]),
            ),
            cohort=NotConsumed(
                [f"row-{uids[at]}" for at in others], [groups[at] for at in others], buffer.raw_rewards[others]
            ),
        )

    def _config(self) -> Config:
        params = self.params
        return Config(
            advantage_estimator="grpo",
            n_samples_per_prompt=params["num_generations"],
            grpo_std_normalization=params["scale_rewards"] != "none",
            kl_loss_type="k3",
            kl_coef=0.0,
            eps_clip=params["epsilon_low"],
            eps_clip_high=params["epsilon_high"],
            entropy_coef=params["entropy_coef"],
            conventions=self._conventions(),
        )

    def _conventions(self) -> Conventions:
        params = self.params
        accumulated = self.micros[0]["current_gradient_accumulation_steps"]
        tokens = None
        if params["loss_type"] in ("dapo", "cispo", "vespo"):
            share = accumulated / params["steps_per_generation"]
            tokens = max(self.buffer.raw["num_items_in_batch"], 1.0) / params["world_size"] * share
        of_part = 1.0 if tokens is not None else len(self.micros) / accumulated
        kl = KlTerm(coef=params["beta"], by_ratio=params["use_bias_correction_kl"]) if params["beta"] else None
        return Conventions(
            advantages=named(self._advantages_name()),
            loss=named(loss_name(params["loss_type"], params["importance_sampling_level"])),
            tau_pos=params["sapo_temperature_pos"],
            tau_neg=params["sapo_temperature_neg"],
            whole_batch=WholeBatch(
                tokens=tokens,
                length=float(params["max_completion_length"]) if params["loss_type"] == "dr_grpo" else None,
                ranks=of_part,
            ),
            corrections=_corrections(params),
            kl_term=kl,
            delta=params["delta"],
            entropy_mean=EntropyMean.MICRO_BATCH,
            top_entropy_quantile=None if self.share == 1 else self.share,
            off_policy_mask=self._off_policy(),
            vespo=Vespo(**{name: params[f"vespo_{name}"] for name in Vespo.model_fields}),
        )

    @property
    def share(self) -> float:
        found: float = self.params["top_entropy_quantile"]
        return found

    def _advantages_name(self) -> str:
        summed = self.params["multi_objective_aggregation"] == "sum_then_normalize"
        return f"scale_rewards {self.params['scale_rewards']}" if summed else "normalize_then_sum"

    def _off_policy(self) -> OffPolicyMask | None:
        threshold = self.params["off_policy_mask_threshold"]
        if threshold is None:
            return None
        return OffPolicyMask(
            threshold=threshold, behavior=Behavior.OLD if self.buffer.sampler is None else Behavior.ROLLOUT
        )

    def _scalars(self) -> Mapping[str, float]:
        loss = float(sum(micro["loss"] for micro in self.micros))
        found = self.tensors
        mask, entropies = self.flat(self.buffer.mask.astype(np.float64)) != 0, []
        lengths = self.buffer.lengths[self.rows]
        of_micro = np.repeat(np.asarray(self.micro_batches), lengths)
        for name in dict.fromkeys(self.micro_batches):
            entropies.append(self._mean_entropy(found["entropy"][mask & (of_micro == name)]))
        entropy_loss = float(np.mean(entropies))
        logs = found["log_probs"] - found["old_log_probs"]
        return {
            "loss": loss,
            "pg_loss": loss + self.params["entropy_coef"] * entropy_loss,
            "entropy_loss": entropy_loss,
            "pg_clipfrac": float(self._clipped(logs, mask, lengths)[mask].sum() / max(mask.sum(), 1)),
            "ppo_kl": float(-logs[mask].sum() / max(mask.sum(), 1)),
        }

    def _mean_entropy(self, entropy: Floats) -> float:
        """Of those that count, where TRL confines the loss to the highest."""
        if not entropy.size:
            return 0.0
        least = torch.quantile(torch.tensor(entropy, dtype=torch.float32), 1 - self.share)
        return float(entropy[entropy >= float(least)].mean())

    def _clipped(self, logs: Floats, mask: NDArray[np.bool_], lengths: NDArray[np.int64]) -> Floats:
        params, advantages = self.params, self.tensors["advantages"]
        if params["importance_sampling_level"] == "sequence":
            parts = zip(*(np.split(values, np.cumsum(lengths)[:-1]) for values in (logs, mask)), strict=True)
            logs = np.repeat([part[kept].sum() / max(kept.sum(), 1) for part, kept in parts], lengths)
        ratio, high = np.exp(logs), params["epsilon_high"]
        clipped: NDArray[np.bool_] = np.zeros(ratio.shape, np.bool_)
        if params["loss_type"] == "cispo":
            clipped = ratio > high
        elif params["loss_type"] not in ("sapo", "vespo"):
            clipped = (ratio < 1 - params["epsilon_low"]) & (advantages < 0)
            clipped |= (ratio > 1 + high) & (advantages > 0)
        return clipped.astype(np.float64)


def named(name: str) -> NamedConvention:
    return NamedConvention(framework=trl.FRAMEWORK, version=trl.VERSION, name=name)


def trl_convention(*, advantages: str) -> Conventions:
    """Of advantages alone."""
    return Conventions(advantages=named(advantages))


def _corrections(params: Raw) -> tuple[Correction, ...]:
    if not (params["use_vllm_path"] and params["vllm_importance_sampling_correction"]):
        return ()
    of, what = params["vllm_importance_sampling_mode"].split("_")
    return (
        Correction(
            reach=Reached.TOKEN if of == "token" else Reached.SEQ_SUM,
            least=params["vllm_importance_sampling_clip_min"],
            most=params["vllm_importance_sampling_clip_max"],
            outside=Outlier.ZERO if what == "mask" else Outlier.TRUNCATE,
        ),
    )
