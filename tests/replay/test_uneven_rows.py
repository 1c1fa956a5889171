"""Rows that a named convention has no answer for, or that would be mostly padding, are unsupported by name: neither a
traceback nor memory without bound."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.convention import Conventions, NamedConvention
from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_bundle
from rollbook.replay.dialects.cells import MOST_CELLS
from rollbook.replay.engine.engine import replay_bundle
from rollbook.replay.engine.result import StageResult, Verdict
from rollbook.replay.engine.selection import Selection
from rollbook.tests.replay.reseal import FIXTURES
from rollbook.tests.replay.test_conventions import named, replayed, samples_of, write


@pytest.mark.parametrize(("name", "masks"), [("gae", [[1]]), ("reinforce_plus_plus", [[], [0, 1]])])
def test_what_cannot_be_whitened_is_unsupported(tmp_path: Path, name: str, masks: list[list[int]]) -> None:
    ones = [1.0] * len(masks)
    tokens = np.zeros(sum(map(len, masks)), np.float32)
    samples = [samples_of([mask], [0], ones, ones, None)[0] | {"sample_id": f"s-{at}"} for at, mask in enumerate(masks)]
    written = write(
        "rollout",
        tmp_path / "short",
        {"advantages": tokens, "values": tokens},
        {"advantages": named("verl", name)},
        samples=samples,
        expected={"reward.post_process": {"rewards": ones}},
        stages={"reward.post_process", "advantage.estimate"},
        config={"n_samples_per_prompt": len(masks)},
    )
    report = replayed(written)
    assert report.verdict is Verdict.UNVERIFIED
    assert "whitening needs 2 tokens that count, the bundle has 1" in stage(report.ranks[0].stages).reason


def stage(found: tuple[StageResult, ...], which: StageId = StageId.ADVANTAGE_ESTIMATE) -> StageResult:
    return next(one for one in found if one.stage is which)


def uneven(conventions: Conventions) -> Bundle:
    """Two thousand samples of one token, and one as long as makes too many cells of all."""
    bundle = read_bundle(FIXTURES / "full-k1")
    lengths = [1] * 2000 + [MOST_CELLS // 2001 + 1]
    first = bundle.index.samples[0]
    samples = tuple(
        first.model_copy(update={"sample_id": f"s-{at}", "response_length": length, "loss_mask": b"\1" * length})
        for at, length in enumerate(lengths)
    )
    config = bundle.index.config.model_copy(update={"conventions": conventions})
    index = bundle.index.model_copy(update={"samples": samples, "config": config})
    return replace(bundle, index=index, tensors={name: np.zeros(sum(lengths), np.float32) for name in bundle.tensors})


@pytest.mark.parametrize(
    ("field", "name", "which"),
    [
        ("advantages", "grpo", StageId.ADVANTAGE_ESTIMATE),
        ("loss", "vanilla, token-mean", StageId.LOSS_POLICY),
    ],
)
def test_rows_that_would_be_mostly_padding_are_unsupported(field: str, name: str, which: StageId) -> None:
    convention = NamedConvention(framework="verl", version="0.9.1", name=name)
    bundle = uneven(Conventions.model_validate({field: convention}))
    report = replay_bundle(bundle, Selection(stages=(which,)))
    assert report.verdict is Verdict.UNVERIFIED
    assert (
        f"2001 samples of up to {MOST_CELLS // 2001 + 1} tokens are too uneven"
        in stage(report.ranks[0].stages, which).reason
    )
