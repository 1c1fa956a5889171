"""Digests and partitions: known values, and what they do not depend on."""

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.schemas.digests import (
    contract_hash,
    digest_of_digests,
    evidence_digest,
    float32_bytes,
    floats_of,
    int32_bytes,
    ints_of,
    log_probs_digest,
    mask_bytes,
    mask_of,
    tokens_digest,
    trajectory_evidence_digest,
)
from rollbook.schemas.partition import murmur2, partition_of
from rollbook.schemas.records.run import LogProbKind, Sampling


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- partitions


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafkas_java_client(key: str, hashed: int) -> None:
    assert struct.unpack("<i", struct.pack("<I", murmur2(key.encode())))[0] == hashed


@given(st.text(max_size=40), st.integers(1, 1000))
def test_a_run_lives_in_one_partition_of_those_there_are(run_id: str, count: int) -> None:
    partition = partition_of(run_id, count)
    assert 0 <= partition < count
    assert partition == (murmur2(run_id.encode()) & 0x7FFFFFFF) % count


def test_runs_spread() -> None:
    counts = np.bincount([partition_of(f"run-{at}", 12) for at in range(1200)], minlength=12)
    assert counts.min() > 60


# --- arrays


def test_arrays_are_little_endian_on_every_machine() -> None:
    assert float32_bytes([1.0, -2.5]) == struct.pack("<2f", 1.0, -2.5)
    assert int32_bytes([1, -2]) == struct.pack("<2i", 1, -2)
    assert mask_bytes([True, False, True]) == b"\1\0\1"
    assert float32_bytes(np.array([1.0], dtype=">f8")) == struct.pack("<f", 1.0)


@given(st.lists(st.floats(width=32), max_size=9), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9))
def test_arrays_come_back(floats: list[float], ints: list[int]) -> None:
    assert np.array_equal(floats_of(float32_bytes(floats)), np.array(floats, dtype=np.float32), equal_nan=True)
    assert ints_of(int32_bytes(ints)).tolist() == ints
    assert mask_of(mask_bytes([value > 0 for value in ints])).tolist() == [value > 0 for value in ints]


# --- digests


def test_the_tokens_digest_knows_where_the_prompt_ends() -> None:
    expected = _sha(struct.pack("<q", 8) + struct.pack("<3i", 1, 2, 3))
    assert tokens_digest([1, 2], [3]) == expected
    assert tokens_digest([1], [2, 3]) != expected
    assert tokens_digest([], []) == _sha(bytes(8))


def test_the_evidence_digest_covers_mask_and_active_log_probs_only() -> None:
    expected = _sha(b"\1\0\1" + struct.pack("<2f", -0.5, -1.5))
    assert evidence_digest([True, False, True], [-0.5, -9.0, -1.5]) == expected
    assert evidence_digest([True, False, True], [-0.5, float("nan"), -1.5]) == expected
    assert evidence_digest([True, True, False], [-0.5, -1.5, -9.0]) != expected
    assert evidence_digest([True, False, True], [-0.5, -9.0, -1.25]) != expected


def test_the_log_probs_digest_covers_active_positions() -> None:
    assert log_probs_digest([False, True], [1.0, -0.5]) == _sha(struct.pack("<f", -0.5))


def test_the_evidence_of_several_segments_keeps_their_order() -> None:
    first, second = _sha(b"1"), _sha(b"2")
    assert trajectory_evidence_digest([first]) == first
    assert trajectory_evidence_digest([first, second]) == _sha(f"{first}\n{second}".encode())
    assert trajectory_evidence_digest([second, first]) != trajectory_evidence_digest([first, second])
    assert digest_of_digests([first]) == _sha(first.encode())


SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=8, log_probs=LogProbKind.RAW)


def test_the_contract_hash_is_of_the_fields_as_canonical_json() -> None:
    text = (
        '{"deterministic":false,"engine":"e","sampling":{"log_probs":"raw","max_tokens":8,"repetition_penalty":1.0,'
        '"seed":null,"temperature":1.0,"top_k":0,"top_p":1.0},"template":"t","tokenizer":"k"}'
    )
    assert contract_hash(tokenizer="k", template="t", engine="e", sampling=SAMPLING) == _sha(text.encode())


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer": "other"},
        {"template": "other"},
        {"engine": "other"},
        {"deterministic": True},
        {"sampling": SAMPLING.model_copy(update={"temperature": 0.5})},
        {"sampling": SAMPLING.model_copy(update={"seed": 0})},
    ],
)
def test_each_condition_makes_another_contract(change: dict[str, object]) -> None:
    fields: dict[str, object] = {"tokenizer": "k", "template": "t", "engine": "e", "sampling": SAMPLING}
    assert contract_hash(**fields) != contract_hash(**fields | change)  # type: ignore[arg-type]
