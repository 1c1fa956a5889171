"""Context-parallel shards written and read from the text of the format alone: nothing of rollbook is imported.

Token by token: each is looked up in the chunk where its position, or the one before it, lies, and given to the rank
whose chunk that is.
"""

import hashlib
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

Json = dict[str, Any]
CONFIG = {
    "advantage_estimator": "grpo",
    "entropy_coef": 0.01,
    "eps_clip": 0.2,
    "eps_clip_high": 0.28,
    "grpo_std_normalization": False,
    "kl_coef": 0.1,
    "kl_loss_type": "k1",
    "n_samples_per_prompt": 2,
}
TENSORS = {
    "old_log_probs": [-1.0, -2.0, -0.5, -1.5, -3.0],
    "log_probs": [-0.6, -2.3, -0.5, -1.8, -2.9],
    "ref_log_probs": [-1.2, -1.9, -0.8, -1.5, -2.0],
    "entropy": [0.5, 1.0, 0.2, 0.8, 1.1],
    "kl": [0.2, -0.1, 0.3, 0.0, -1.0],
    "advantages": [0.5, 0.5, -0.5, -0.5, -0.5],
}
LOSS = {"loss": 0.00708806, "pg_loss": 0.02108806, "entropy_loss": 1.4, "pg_clipfrac": 0.5, "ppo_kl": -0.1}
STAGES = ("advantage.estimate", "advantage.kl", "loss.policy", "reward.post_process", "reward.raw", "sample")
RESPONSES = (2, 3)


def owner(position: int, padded: int, order: str, cp: int) -> int:
    """Whose a position of a sequence is."""
    if order == "contiguous":
        return position // (padded // cp)
    chunk = position // (padded // (2 * cp))
    return min(chunk, 2 * cp - 1 - chunk)


def owners(layout: Json, totals: list[int], responses: list[int]) -> list[int]:
    """The place in the group of whoever holds each response token, all samples in index order."""
    found = []
    packed = layout["packed"] or [1] * len(totals)
    sample = 0
    for count, padded in zip(packed, layout["padded_lengths"], strict=True):
        position = 0
        for _ in range(count):
            for token in range(totals[sample]):
                if token >= totals[sample] - responses[sample]:
                    at = position - 1 if layout["held_by"] == "predictor" else position
                    found.append(owner(at, padded, layout["order"], len(layout["ranks"])))
                position += 1
            sample += 1
    return found


def layout_of(cp: int, order: str, totals: list[int], **changed: Any) -> Json:
    """As Megatron pads: each sample by itself, to a multiple of twice the group's size."""
    multiple = 2 * cp
    return {
        "ranks": list(range(cp)),
        "order": order,
        "held_by": "predictor",
        "padded_lengths": [(total + multiple - 1) // multiple * multiple for total in totals],
        "packed": [],
        "scalars": "whole",
        **changed,
    }


Edit = Callable[[int, Json], object]


def write(
    path: Path, layout: Json, totals: list[int], edit: Edit | None = None, losses: list[Json] | None = None
) -> Path:
    """The worked example of the format, dealt out. `edit` changes a rank's {manifest, index, expected, tensors} before
    they are sealed."""
    path.mkdir()
    held = owners(layout, totals, list(RESPONSES))
    shards = {}
    for place, rank in enumerate(layout["ranks"]):
        chosen = [at for at, whose in enumerate(held) if whose == place]
        content = {
            "manifest": _manifest(path.name),
            "index": _index(path.name, {**deepcopy(layout), "cp_rank": place}, totals),
            "expected": {
                "reward.raw": {"raw_rewards": [1.0, 0.0]},
                "reward.post_process": {"rewards": [0.5, -0.5]},
                "loss.policy": losses[place] if losses else LOSS,
            },
            "tensors": {name: torch.tensor(values)[chosen].clone() for name, values in TENSORS.items()},
        }
        if edit is not None:
            edit(rank, content)
        shards[str(rank)] = _write_rank(path, rank, sorted(layout["ranks"]), content)
    _json(path / "COMPLETE", {"ranks": sorted(layout["ranks"]), "shards": shards})
    return path


def tensors(path: Path) -> dict[str, list[float]]:
    """The whole tensors of the shards at a path, which are one group."""
    complete = json.loads((path / "COMPLETE").read_text())
    parts: dict[int, dict[str, Any]] = {}
    for rank in complete["ranks"]:
        index = json.loads((path / f"rank-{rank}" / "index.json").read_text())
        layout, samples = index["context_parallel"], index["samples"]
        loaded = {
            file.stem: torch.load(file, weights_only=True).tolist()
            for file in sorted((path / f"rank-{rank}" / "payloads").glob("*.pt"))
        }
        parts[layout["cp_rank"]] = {name: iter(values) for name, values in loaded.items()}
    lengths = ([one["total_length"] for one in samples], [one["response_length"] for one in samples])
    held = owners(layout, *lengths)
    whole = {name: [next(parts[whose][name]) for whose in held] for name in parts[0]}
    assert all(next(rest, None) is None for part in parts.values() for rest in part.values())
    return whole


def _manifest(bundle_id: str) -> Json:
    contract = {"version": "v1", "capability": "recompute", "implementation": "reimplemented"}
    return {
        "format_version": "1.1.0",
        "bundle_id": bundle_id,
        "producer": {"commit": "c0ffee", "dirty_patch_digest": "", "torch_version": "2.13.0"},
        "stage_contracts": {
            stage: {**contract, "stage": stage, "inputs": [], "expected_outputs": []} for stage in STAGES
        },
        "payloads": {},
        "comparison_policy": {"exact_fields": [], "tolerances": {}},
        "redaction": {},
    }


def _index(bundle_id: str, layout: Json, totals: list[int]) -> Json:
    samples = [
        {
            "sample_id": f"s-{at}",
            "group_index": 0,
            "response_length": RESPONSES[at],
            "total_length": totals[at],
            "loss_mask": ([1, 1], [1, 0, 1])[at],
            "raw_reward": (1.0, 0.0)[at],
            "reward": (0.5, -0.5)[at],
            "label_hash": "",
            "micro_batch_id": None,
        }
        for at in range(2)
    ]
    identity: Json = {
        "actor_step_id": {"rollout_id": 7, "step_id": 0},
        "rollout_id": None,
        "rollout_partition_ids": [],
        "consumer_batch_ids": [],
        "micro_batch_ids": [],
        "semantic_group_ids": [],
        "normalization_cohort_ids": [],
        "weight_lineage": {"rollout_weight": "", "actor_weight": ""},
        "rank": {"dp": 1, "tp": 1, "pp": 1, "cp": len(layout["ranks"])},
    }
    return {
        "bundle_id": bundle_id,
        "identity": identity,
        "samples": samples,
        "config": dict(CONFIG),
        "context_parallel": layout,
    }


def _write_rank(path: Path, rank: int, ranks: list[int], content: Json) -> Json:
    folder = path / f"rank-{rank}"
    (folder / "payloads").mkdir(parents=True)
    entries = content["manifest"]["payloads"]
    for name, tensor in content["tensors"].items():
        file = folder / "payloads" / f"{name}.pt"
        torch.save(tensor, file)
        entries[name] = {
            "name": name,
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
    metadata = {
        f"{name}.json": _json(folder / f"{name}.json", content[name]) for name in ("manifest", "index", "expected")
    }
    record = {
        "actor_step_id": content["index"]["identity"]["actor_step_id"],
        "rollout_id": None,
        "payloads": {name: entry["sha256"] for name, entry in entries.items()},
        "metadata": metadata,
        "expected_ranks": ranks,
    }
    _json(folder / f"COMPLETE.{rank}", record)
    _json(folder / "COMPLETE", {"ranks": [rank], "expected_ranks": ranks, "metadata": metadata})
    shard = {**record, "relpath": f"rank-{rank}"}
    _json(path / f"COMPLETE.{rank}", shard)
    return shard


def _json(path: Path, content: Json) -> str:
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    path.write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()
