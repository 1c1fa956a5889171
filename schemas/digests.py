"""Digests of evidence: what ties small records to the arrays behind them. All sha256, lower-case hexadecimal."""

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rollbook.schemas.records.run import Sampling

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


def float32_bytes(values: npt.ArrayLike) -> bytes:
    """Real values [T] as float32 little-endian."""
    return np.ascontiguousarray(values, dtype="<f4").tobytes()


def int32_bytes(ids: npt.ArrayLike) -> bytes:
    """Token ids [T] as int32 little-endian."""
    return np.ascontiguousarray(ids, dtype="<i4").tobytes()


def mask_bytes(mask: npt.ArrayLike) -> bytes:
    """A mask [T] as one byte a position, 0 or 1."""
    return np.ascontiguousarray(mask, dtype=np.bool_).tobytes()


def floats_of(data: bytes) -> FloatArray:
    """float32 little-endian bytes as an array [T]."""
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)


def ints_of(data: bytes) -> IntArray:
    """int32 little-endian bytes as an array [T]."""
    return np.frombuffer(data, dtype="<i4").astype(np.int32, copy=False)


def mask_of(data: bytes) -> Mask:
    """Mask bytes as a boolean array [T]."""
    return np.frombuffer(data, dtype=np.uint8).astype(np.bool_)


def tokens_digest(prompt_ids: npt.ArrayLike, response_ids: npt.ArrayLike) -> str:
    """Digest of the prompt's length and the token ids of prompt and response."""
    prompt = int32_bytes(prompt_ids)
    return _sha256(len(prompt).to_bytes(8, "little"), prompt, int32_bytes(response_ids))


def evidence_digest(action_mask: npt.ArrayLike, log_probs: npt.ArrayLike) -> str:
    """Digest of a mask [T] and the behavior log-probs [T] at its active positions; masked ones may hold anything."""
    mask = np.asarray(action_mask, dtype=np.bool_)
    active = np.asarray(log_probs, dtype=np.float32)[mask]
    return _sha256(mask_bytes(mask), float32_bytes(active))


def trajectory_evidence_digest(segment_digests: Sequence[str]) -> str:
    """Evidence of a trajectory: that of its one segment, or the digest over those of all its segments in order."""
    if len(segment_digests) == 1:
        return segment_digests[0]
    return _sha256("\n".join(segment_digests).encode())


def log_probs_digest(action_mask: npt.ArrayLike, log_probs: npt.ArrayLike) -> str:
    """Digest of log-probs [T] at active positions."""
    mask = np.asarray(action_mask, dtype=np.bool_)
    return _sha256(float32_bytes(np.asarray(log_probs, dtype=np.float32)[mask]))


def digest_of_digests(digests: Sequence[str]) -> str:
    """Digest over digests in order."""
    return _sha256("\n".join(digests).encode())


def contract_hash(
    *, tokenizer: str, template: str, engine: str, sampling: "Sampling", deterministic: bool = False
) -> str:
    """Hash of a generation contract: sha256 over its fields as canonical JSON."""
    fields = {
        "tokenizer": tokenizer,
        "template": template,
        "engine": engine,
        "sampling": sampling.model_dump(mode="json"),
        "deterministic": deterministic,
    }
    return _sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def _sha256(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
