"""What a trainer may get wrong when it writes a bundle is told in one line that names the field, and never quotes a
value; and signs that two writers met are seen."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.contextparallel import Order, context_parallel
from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.bundle.writing.bundle_writer import BundleWriter
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay import by_hand
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

ZIGZAG: Json = {"order": Order.ZIGZAG, "ranks": (0, 1), "rank": 0, "total_lengths": [6, 7]}


def payload(path: Path, values: Any) -> None:
    writer = BundleWriter(path / "b", index=by_hand.index("b"), producer=by_hand.PRODUCER)
    writer.payload("kl", values)


def finalize(path: Path, name: str = "b", ranks: Any = None, **given: Any) -> None:
    by_hand.writer(path / name, index=by_hand.index("b"), **given).finalize(ranks)


MISUSES: list[tuple[str, Callable[[Path], object], str]] = [
    ("texts as numbers", lambda path: payload(path, ["1.5"] * 5), "payloads.kl: not numbers"),
    ("dates", lambda path: payload(path, np.zeros(5, "M8[s]")), "payloads.kl: not numbers"),
    ("complex numbers", lambda path: payload(path, np.zeros(5, complex)), "payloads.kl: not numbers"),
    ("complex tensors", lambda path: payload(path, torch.zeros(5, dtype=torch.complex64)), "payloads.kl: not numbers"),
    ("tensors without data", lambda path: payload(path, torch.empty(5, device="meta")), "payloads.kl: not numbers"),
    ("an unknown stage", lambda path: by_hand.writer(path / "b").promise("loss"), "stage: it must be "),  # type: ignore[arg-type]
    ("nothing", lambda path: payload(path, [None] * 5), "payloads.kl: not numbers"),
    ("lists of other lengths", lambda path: payload(path, [[1], [2, 3]]), "payloads.kl: not numbers"),
    ("rewards as texts", lambda _: by_hand.index(rows=by_hand.rows(raw_rewards=["1", "0"])), "samples.raw_reward"),
    ("labels that are none", lambda _: by_hand.index(rows=by_hand.rows(labels=[7, 8])), "samples.label_hash"),
    ("a negative rank", lambda path: finalize(path, rank=-1), "expected_ranks.0: it must be 0 or more"),
    ("a vast rank", lambda path: finalize(path, rank=2**30), "expected_ranks.0: it must be below 1048576"),
    ("no path", lambda path: finalize(path, "a\0b"), "not a path; write to another"),
    ("a rank of no group", lambda _: context_parallel(**{**ZIGZAG, "rank": 2}), "rank 2 is not among"),
    ("an unknown order", lambda _: context_parallel(**{**ZIGZAG, "order": "striped"}), "order 'striped' is not known"),
    ("no padding", lambda _: context_parallel(**ZIGZAG, pad_to_multiple_of=0), "pad_to_multiple_of is 0"),
    ("packed twice", lambda _: context_parallel(**ZIGZAG, packed=[2, 1]), "packed has 3 samples, total_lengths 2"),
    ("lengths as texts", lambda _: context_parallel(**{**ZIGZAG, "total_lengths": ["6", "7"]}), "no whole numbers"),
    ("a group of one", lambda _: context_parallel(**{**ZIGZAG, "ranks": (0,)}), "context_parallel: ranks"),
]


@pytest.mark.parametrize(
    "late",
    [
        lambda writer: writer.payload("returns", by_hand.TENSORS["kl"]),
        lambda writer: writer.terms("pg_loss", [0.0, 0.0]),
        lambda writer: writer.expect(raw_rewards=[1.0, 0.0]),
        lambda writer: writer.promise(StageId.LOSS_POLICY),
    ],
    ids=["payload", "terms", "expect", "promise"],
)
def test_what_comes_after_finalize_is_refused_not_lost(tmp_path: Path, late: Callable[[BundleWriter], None]) -> None:
    writer = by_hand.writer(tmp_path / "b")
    writer.finalize()
    with pytest.raises(BadInput, match="written already"):
        late(writer)


@pytest.mark.parametrize(("use", "message"), [case[1:] for case in MISUSES], ids=[case[0] for case in MISUSES])
def test_misuse_is_told(tmp_path: Path, use: Callable[[Path], object], message: str) -> None:
    with pytest.raises(BadInput) as told:
        use(tmp_path)
    assert message in str(told.value)
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_every_kind_of_number_is_one(tmp_path: Path) -> None:
    for values in (torch.ones(5, dtype=torch.bfloat16), np.ones(5, bool), np.ones(5, np.uint8), [1, 1, 1, 1, 1.0]):
        payload(tmp_path, values)
    assert by_hand.index(rows=by_hand.rows(raw_rewards=torch.tensor([True, False]))).samples[0].raw_reward == 1.0
    assert context_parallel(**{**ZIGZAG, "total_lengths": torch.tensor([6, 7])}).padded_lengths == (8, 8)


def test_a_completion_record_of_another_rank_is_a_second_writer(tmp_path: Path) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "b")
    shutil.copy(bundle / "COMPLETE.0", bundle / "COMPLETE.3")
    (problem,) = validate(bundle).problems
    assert str(problem).startswith("COMPLETE.3: in the folder of rank 0: two writers met here")


def test_a_hint_names_no_bundle_outside(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    shutil.copytree(FIXTURES / "full-k1", outside)
    (inside / "linked").symlink_to(outside)
    with pytest.raises(BadInput, match="check the path"):
        read_cohort(inside)
    shutil.copytree(FIXTURES / "full-k1", inside / "own")
    with pytest.raises(BadInput, match=r"it holds bundles, name one: own$"):
        read_cohort(inside)
