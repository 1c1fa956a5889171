"""A reader of bundles written from the text of the format alone: it imports nothing of rollbook.

It knows the files, their keys, checksums and shapes, and recomputes the loss in float64 with torch. What our writer
writes has to please it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

MANIFEST_KEYS = {
    "bundle_id", "comparison_policy", "format_version", "payloads", "producer", "redaction", "stage_contracts",
}  # fmt: skip
INDEX_KEYS = {"bundle_id", "config", "identity", "samples"}
CONFIG_KEYS = {
    "advantage_estimator", "entropy_coef", "eps_clip", "eps_clip_high", "grpo_std_normalization", "kl_coef",
    "kl_loss_type", "n_samples_per_prompt",
}  # fmt: skip
IDENTITY_KEYS = {
    "actor_step_id", "consumer_batch_ids", "micro_batch_ids", "normalization_cohort_ids", "rank", "rollout_id",
    "rollout_partition_ids", "semantic_group_ids", "weight_lineage",
}  # fmt: skip
SAMPLE_KEYS = {
    "group_index", "label_hash", "loss_mask", "micro_batch_id", "raw_reward", "response_length", "reward", "sample_id",
    "total_length",
}  # fmt: skip
CONTRACT_KEYS = {"capability", "expected_outputs", "implementation", "inputs", "stage", "version"}


def read(path: Path) -> list[dict[str, Any]]:
    """The bundles of all ranks at a path; fails on the first thing that is not as the format says."""
    complete = _json(path / "COMPLETE")
    if "shards" not in complete:
        return [_read_rank(path, (complete["ranks"][0],))]
    assert set(complete) == {"ranks", "shards"}
    bundles = []
    for rank in complete["ranks"]:
        beside = _json(path / f"COMPLETE.{rank}")
        assert beside == complete["shards"][str(rank)]
        assert beside.pop("relpath") == f"rank-{rank}"
        assert beside == _json(path / f"rank-{rank}" / f"COMPLETE.{rank}")
        bundles.append(_read_rank(path / f"rank-{rank}", tuple(complete["ranks"])))
    return bundles


def _read_rank(path: Path, expected_ranks: tuple[int, ...]) -> dict[str, Any]:
    complete = _json(path / "COMPLETE")
    assert set(complete) == {"expected_ranks", "metadata", "ranks"}
    (rank,) = complete["ranks"]
    record = _json(path / f"COMPLETE.{rank}")
    assert set(record) == {"actor_step_id", "expected_ranks", "metadata", "payloads", "rollout_id"}
    assert tuple(complete["expected_ranks"]) == tuple(record["expected_ranks"]) == expected_ranks
    assert set(complete["metadata"]) == {"expected.json", "index.json", "manifest.json"}
    for name, digest in complete["metadata"].items():
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == digest == record["metadata"][name]
    manifest, index, expected = (_json(path / f"{name}.json") for name in ("manifest", "index", "expected"))
    assert (set(manifest), set(index)) == (MANIFEST_KEYS, INDEX_KEYS)
    assert manifest["format_version"] == "1.0.0"
    assert (set(index["config"]), set(index["identity"])) == (CONFIG_KEYS, IDENTITY_KEYS)
    assert all(set(sample) == SAMPLE_KEYS for sample in index["samples"])
    assert all(set(contract) == CONTRACT_KEYS for contract in manifest["stage_contracts"].values())
    assert (index["identity"]["actor_step_id"] is None) != (index["identity"]["rollout_id"] is None)
    assert manifest["bundle_id"] == index["bundle_id"]
    tokens = sum(len(sample["loss_mask"]) for sample in index["samples"])
    tensors = {}
    for name, entry in manifest["payloads"].items():
        data = (path / "payloads" / f"{name}.pt").read_bytes()
        assert entry["name"] == name
        assert len(data) == entry["bytes"]
        assert hashlib.sha256(data).hexdigest() == entry["sha256"] == record["payloads"][name]
        tensors[name] = torch.load(path / "payloads" / f"{name}.pt", weights_only=True)
        assert (list(tensors[name].shape), str(tensors[name].dtype)) == (entry["shape"], entry["dtype"])
        assert (entry["shape"], entry["dtype"]) == ([tokens], "torch.float32")
    return {"manifest": manifest, "index": index, "expected": expected, "tensors": tensors}


def loss(bundle: dict[str, Any]) -> dict[str, float]:
    """loss.policy by the format's formulas: sums over samples of masked means."""
    config, tensors = bundle["index"]["config"], {name: t.double() for name, t in bundle["tensors"].items()}
    distance = tensors["old_log_probs"] - tensors["log_probs"]
    ratio = torch.exp(-distance)
    plain = -ratio * tensors["advantages"]
    clipped = -torch.clamp(ratio, 1 - config["eps_clip"], 1 + config["eps_clip_high"]) * tensors["advantages"]
    values = {
        "pg_loss": torch.maximum(plain, clipped),
        "entropy_loss": tensors["entropy"],
        "pg_clipfrac": (clipped > plain).double(),
        "ppo_kl": distance,
    }
    sums = dict.fromkeys(values, 0.0)
    start = 0
    for sample in bundle["index"]["samples"]:
        mask = torch.tensor(sample["loss_mask"], dtype=torch.float64)
        for name, value in values.items():
            part = value[start : start + len(mask)]
            sums[name] += float((part * mask).sum() / max(float(mask.sum()), 1.0))
        start += len(mask)
    return {"loss": sums["pg_loss"] - config["entropy_coef"] * sums["entropy_loss"], **sums}


def _json(path: Path) -> dict[str, Any]:
    text = path.read_bytes().decode("utf-8")
    found: dict[str, Any] = json.loads(text, parse_constant=_not_strict)
    assert text == json.dumps(found, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return found


def _not_strict(token: str) -> None:
    raise AssertionError(f"{token} is not a JSON number")
