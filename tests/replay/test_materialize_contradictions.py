"""Where a recording contradicts the log nothing is written, and the reason names both places. One line a case."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.replay.materialize.report import NotWritten
from rollbook.schemas.digests import float32_bytes, floats_of
from rollbook.schemas.records.payload import ArrayName, Role, SegmentPayload, StepRecording, World
from rollbook.schemas.types import NamedNumber
from rollbook.tests.replay.materialized import passing, problem, tree, write
from rollbook.tests.replay.story import LIFECYCLE, PAYLOADS, Story

Plant = Callable[[StepRecording], StepRecording]


def changed(**fields: Any) -> Plant:
    """The recording with other fields."""
    return lambda recording: recording.model_copy(update=fields)


def row(index: int, **fields: Any) -> Plant:
    """One row with other fields."""

    def plant(recording: StepRecording) -> StepRecording:
        rows = list(recording.rows)
        rows[index] = rows[index].model_copy(update=fields)
        return recording.model_copy(update={"rows": tuple(rows)})

    return plant


def member(index: int, **fields: Any) -> Plant:
    """One member of the first cohort with other fields."""

    def plant(recording: StepRecording) -> StepRecording:
        first, *rest = recording.cohorts
        members = list(first.members)
        members[index] = members[index].model_copy(update=fields)
        return recording.model_copy(update={"cohorts": (first.model_copy(update={"members": tuple(members)}), *rest)})

    return plant


def token(name: ArrayName, at: int, value: float) -> Plant:
    """One value of an array."""

    def plant(recording: StepRecording) -> StepRecording:
        arrays = []
        for array in recording.arrays:
            values = floats_of(array.data).copy()
            if array.name is name:
                values[at] = value
            arrays.append(array.model_copy(update={"data": float32_bytes(values)}))
        return recording.model_copy(update={"arrays": tuple(arrays)})

    return plant


def cut(name: ArrayName, tokens: int) -> Plant:
    """An array of another length; 0 leaves it out."""

    def plant(recording: StepRecording) -> StepRecording:
        arrays = [
            array.model_copy(update={"data": array.data[: 4 * tokens]}) if array.name is name else array
            for array in recording.arrays
            if array.name is not name or tokens
        ]
        return recording.model_copy(update={"arrays": tuple(arrays)})

    return plant


def result(name: str, value: float | None) -> Plant:
    """A scalar result; None leaves it out."""

    def plant(recording: StepRecording) -> StepRecording:
        kept = tuple(found for found in recording.results if found.name != name)
        added = () if value is None else (NamedNumber(name=name, value=value),)
        return recording.model_copy(update={"results": kept + added})

    return plant


def with_padding(**fields: Any) -> Plant:
    """A copy of the first row at the end, as padding."""

    def plant(recording: StepRecording) -> StepRecording:
        first = recording.rows[0]
        length = len(first.loss_mask)
        padding = first.model_copy(update={"padding": True, "loss_mask": bytes(length), **fields})
        arrays = tuple(
            array.model_copy(update={"data": array.data + float32_bytes(np.full(length, 9.0))})
            for array in recording.arrays
        )
        terms = tuple(term.model_copy(update={"values": (*term.values, 0.0)}) for term in recording.row_terms)
        return recording.model_copy(update={"rows": (*recording.rows, padding), "arrays": arrays, "row_terms": terms})

    return plant


DISAGREES, INCOMPLETE, UNFIT = NotWritten.DISAGREEMENT, NotWritten.INCOMPLETE_RECORDING, NotWritten.NOT_REPRESENTABLE
EVERY = (
    ArrayName.OLD_LOG_PROBS,
    ArrayName.LOG_PROBS,
    ArrayName.REF_LOG_PROBS,
    ArrayName.ENTROPY,
    ArrayName.KL,
    ArrayName.ADVANTAGES,
)
OLD = ArrayName.OLD_LOG_PROBS
LOG, ARRAYS_AT = f"{LIFECYCLE}:0@", f"{PAYLOADS}:0@"
CASES: list[tuple[str, Plant, NotWritten, tuple[str, ...]]] = [
    ("another reward", member(0, raw_reward=0.5), DISAGREES, ("cohorts.0", "0.5 of a.0", f"{LOG}5 has 1.0")),
    ("another prompt", row(1, prompt_length=4), DISAGREES, ("rows.1 (a.1)", "4 prompt", f"{LOG}4 has 3")),
    ("another length", row(1, loss_mask=b"\1\1\0\1"), DISAGREES, ("rows.1 (a.1)", "4 response tokens", "and 5")),
    ("loss without action", row(0, loss_mask=b"\1\1\1\1"), DISAGREES, ("rows.0 (a.0)", "token 2", f"{ARRAYS_AT}0")),
    ("another group", row(0, group_id="other"), DISAGREES, ("of group other", f"{LOG}3 of group a")),
    ("a segment too many", row(0, segment=1), DISAGREES, ("of segment 1", f"{LOG}3 has 1")),
    ("a row nobody reserved", row(0, trajectory_id="unused.0"), DISAGREES, ("unused.0", "no decision")),
    ("a row of another step", row(0, trajectory_id="b.0"), DISAGREES, ("step 0 of t.lifecycle", "does not name it")),
    ("a trajectory without a row", row(0, trajectory_id="a.1"), DISAGREES, ("trains a.0 in step 0", "no row of it")),
    ("a row without a cohort", changed(cohorts=()), DISAGREES, ("rows.0 (a.0)", "member of no cohort")),
    ("another old log-prob", token(OLD, 1, -9.0), DISAGREES, ("token 1 are -9.0", f"{ARRAYS_AT}0")),
    ("another sum", result("pg_loss", 12.0), DISAGREES, ("row_terms pg_loss add up", "12.0")),
    ("an array too short", cut(ArrayName.ENTROPY, 4), DISAGREES, ("entropy has 16 bytes", "9 tokens")),
    ("active padding", with_padding(loss_mask=b"\1\0\0\0"), DISAGREES, ("rows.2 is padding",)),
    ("another update", changed(update_id="u9"), DISAGREES, ("has update_id u9", "has u0")),
    ("another step", changed(step_id=5), DISAGREES, ("has step_id 5", "has 0")),
    ("another rank", changed(rank=1), DISAGREES, ("has rank 1", "has 0")),
    ("a critic's", changed(role=Role.CRITIC), UNFIT, ("critic",)),
    ("a mean over rows", changed(normalizer=2.0), UNFIT, ("normalizer 2.0", "plain sums")),
    ("a world too large", changed(world=World(dp=1 << 50)), UNFIT, ("index.json",)),
    ("no entropy", cut(ArrayName.ENTROPY, 0), INCOMPLETE, ("no array entropy",)),
    ("no kl", cut(ArrayName.KL, 0), INCOMPLETE, ("no array kl",)),
    ("no loss", result("loss", None), INCOMPLETE, ("results lack loss",)),
    ("a log-prob that is NaN", token(ArrayName.LOG_PROBS, 0, math.nan), UNFIT, ("log_probs", "nan")),
]  # fmt: skip


@pytest.mark.parametrize(("plant", "reason", "texts"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_planted_contradiction_is_told_and_nothing_of_its_update_is_written(
    tmp_path: Path, plant: Plant, reason: NotWritten, texts: tuple[str, ...]
) -> None:
    story = Story().opened()
    a, b = story.group("a"), story.group("b")
    story.group("unused")

    def first_step(recording: StepRecording) -> StepRecording:
        return plant(recording) if recording.step_id == 0 else recording

    story.update("u0", [a, b], plant=first_step)
    report = write(story, tmp_path)
    assert {found.reason for found in report.problems} == {reason}
    assert {found.step_id for found in report.problems} == {0}
    told = " | ".join(found.what for found in report.problems)
    assert "\n" not in told
    for text in texts:
        assert text in told
    assert report.steps == ()
    assert tree(tmp_path) == {}


def test_a_refused_row_that_counts_in_the_loss_is_told(tmp_path: Path) -> None:
    story = Story().opened()
    a = story.group("a")
    mask = story.rows[a[1]].loss_mask.tobytes()
    story.update("u0", [a], drifted=[a[1]], plant=row(1, loss_mask=mask))
    assert "counts in the loss, but t.decisions:0@" in problem(write(story, tmp_path))
    assert "refused it (policy_drift)" in problem(write(story, tmp_path))


def test_padding_is_left_out(tmp_path: Path) -> None:
    story = Story().opened()
    a = story.group("a")
    story.update("plain", [a])
    story.update("padded", [story.group("b")], plant=with_padding())
    plain, padded = write(story, tmp_path).steps
    assert (plain.samples, padded.samples) == (2, 2)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_masked_may_hold_anything(tmp_path: Path, name: ArrayName, value: float) -> None:
    story = Story().opened()
    story.update("u0", [story.group("a")], plant=token(name, 2, value))
    (written,) = write(story, tmp_path).steps
    bundle = passing(written.path)
    expected = bundle.index.samples[0].reward if name is ArrayName.ADVANTAGES else 0
    assert bundle.tensors[name.value][2] == np.float32(expected)


ARRAYS: list[tuple[str, dict[str, Any], str]] = [
    ("another mask", {"action_mask": b"\1\1\1\1"}, "evidence_digest"),
    ("other tokens", {"response_ids": bytes(16)}, "tokens_digest"),
    ("a short mask", {"action_mask": b"\1"}, "1 bytes of mask"),
    ("another trajectory", {"trajectory_id": "b.0"}, "trajectory b.0"),
    ("other log-probs", {"log_probs": bytes(16)}, "evidence_digest"),
]


@pytest.mark.parametrize(("fields", "text"), [case[1:] for case in ARRAYS], ids=[case[0] for case in ARRAYS])
def test_a_payload_that_is_not_what_generated_says_is_told(tmp_path: Path, fields: dict[str, Any], text: str) -> None:
    def first(arrays: SegmentPayload) -> SegmentPayload:
        return arrays.model_copy(update=fields) if arrays.trajectory_id == "a.0" else arrays

    story = Story(plant_arrays=first).opened()
    story.update("u0", [story.group("a")])
    report = write(story, tmp_path)
    told = " | ".join(found.what for found in report.problems)
    assert {found.reason for found in report.problems} == {DISAGREES}
    assert f"{PAYLOADS}:0@0, segment 0 of {LIFECYCLE}:0@3" in told
    assert text in told


def test_redacted_tokens_are_no_contradiction(tmp_path: Path) -> None:
    story = Story(
        plant_arrays=lambda arrays: arrays.model_copy(update={"prompt_ids": b"", "response_ids": b""})
    ).opened()
    story.update("u0", [story.group("a")])
    assert write(story, tmp_path).complete
