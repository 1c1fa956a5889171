"""What we know beyond the format lies beside it: a reader of 1.0.0 sees only 1.0.0, and our own names the sample."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.reading.cohort import read_bundle, validate
from rollbook.replay.bundle.terms import TERMS
from rollbook.replay.bundle.writing.drafts import Draft, check_draft
from rollbook.replay.bundle.writing.writer import write_bundle
from rollbook.replay.engine.engine import replay_bundle
from rollbook.replay.engine.result import Verdict
from rollbook.tests.replay.materialized import write
from rollbook.tests.replay.reseal import FIXTURES, edit_bundle
from rollbook.tests.replay.story import Story

FORMAT = {"old_log_probs", "log_probs", "ref_log_probs", "entropy", "kl", "advantages"}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """As materialize writes it: two groups, each with its rows' terms."""
    story = Story().opened()
    story.update("u0", [[*story.group("a"), *story.group("b", (0.25, 0.75))]])
    return write(story, tmp_path / "out").steps[0].path


def test_a_reader_that_knows_the_format_alone_finds_the_format_alone(bundle: Path) -> None:
    index = json.loads((bundle / "index.json").read_text())
    tokens = sum(sample["response_length"] for sample in index["samples"])
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["payloads"].keys() == FORMAT
    for name, entry in manifest["payloads"].items():
        assert (entry["dtype"], entry["shape"]) == ("torch.float32", [tokens])
        assert torch.load(bundle / "payloads" / f"{name}.pt", weights_only=True).shape == (tokens,)
    complete = json.loads((bundle / "COMPLETE").read_text())
    assert complete["metadata"].keys() == {"manifest.json", "index.json", "expected.json"}
    assert {path.name for path in bundle.iterdir()} - {"payloads"} == {
        "manifest.json", "index.json", "expected.json", "COMPLETE", "COMPLETE.0", TERMS,
    }  # fmt: skip


def test_with_the_terms_a_wrong_log_prob_has_a_sample_and_without_them_the_bundle_is_as_good(
    bundle: Path, tmp_path: Path
) -> None:
    def bump(tensor: np.ndarray[tuple[int], np.dtype[np.float32]]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        changed = tensor.copy()
        changed[10] += 0.25
        return changed

    edited = edit_bundle(bundle, tmp_path / "edited", payload={"log_probs": bump})
    found = replay_bundle(read_bundle(edited)).first_divergence
    assert found is not None
    assert (found.stage, found.point.sample_id, found.point.token_offset) == ("loss.policy", "b.0", 1)
    assert found.diverging_samples == 1
    (bundle / TERMS).unlink()
    assert validate(bundle).valid
    assert replay_bundle(read_bundle(bundle)).verdict is Verdict.PASSED


def test_read_and_written_again_they_are_the_same(bundle: Path, tmp_path: Path) -> None:
    again = write_bundle(tmp_path / "again", Draft.of(read_bundle(bundle)))
    assert (again / TERMS).read_bytes() == (bundle / TERMS).read_bytes()


def changed(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (changed('"b.0"', '"b.7"'), "of another bundle, rank or list of samples"),
        (changed('"rank": 0', '"rank": 1'), "of another bundle, rank or list of samples"),
        (changed("0.", "1."), "sha256: not that of its content"),
        (changed('"ppo_kl"', '"ppo_lk"'), "it must be 'pg_loss'"),
        (changed("{", ""), "not JSON"),
    ],
)
def test_terms_that_are_not_what_was_written_are_refused(bundle: Path, edit: Callable[[str], str], what: str) -> None:
    text = (bundle / TERMS).read_text()
    (bundle / TERMS).write_text(edit(text))
    report = validate(bundle)
    assert not report.valid
    assert any(what in str(problem) for problem in report.problems)


def test_terms_of_other_samples_are_never_written() -> None:
    draft = replace(Draft.of(read_bundle(FIXTURES / "full-k1")), terms={"pg_loss": [1.0, 2.0]})
    (problem,) = check_draft(draft)
    assert str(problem) == f"{TERMS}: pg_loss: 2 values for 8 samples; give one value per sample"
    (problem,) = check_draft(replace(draft, terms={"pg_loss": [float("nan"), *[0.0] * 7]}))
    assert "finite" in problem.what
    (problem,) = check_draft(replace(draft, terms={"loss": [0.0] * 8}))
    assert "'pg_loss'" in problem.what
