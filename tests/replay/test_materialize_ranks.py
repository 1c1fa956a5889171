"""Updates that several ranks recorded: one bundle a step with a folder a rank, or the reason why not."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rollbook.replay.bundle.model import Capability, StageId
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.bundle.strictjson import parse
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome, Verdict
from rollbook.replay.materialize.form import BundleFormat, Form
from rollbook.replay.materialize.provenance import Provenance
from rollbook.replay.materialize.report import NotWritten
from rollbook.schemas.digests import float32_bytes, floats_of
from rollbook.schemas.records.payload import StepRecording, World
from rollbook.schemas.types import NamedNumber
from rollbook.tests.replay.materialized import problem, tree, write
from rollbook.tests.replay.story import Story

Steps = Sequence[Sequence[StepRecording]]


@pytest.fixture
def story() -> Story:
    return Story().opened()


def of_ranks(recordings: Sequence[StepRecording], world: World) -> list[StepRecording]:
    """The recordings of a step, one a rank."""
    return [found.model_copy(update={"rank": rank, "world": world}) for rank, found in enumerate(recordings)]


def update(story: Story, ids: Sequence[str], steps: Steps, ranks: Sequence[int] = (0, 1)) -> None:
    """An update of these recordings by step and rank; rank 1 seals before the Commit, the others after it."""
    story.reserve("u0", ids)
    story.start("u0")
    by_rank = {rank: [step[rank] for step in steps] for rank in ranks}
    story.seal("u0", by_rank[1], rank=1)
    story.commit("u0", [ids] * len(steps), ranks)
    for rank in ranks:
        if rank != 1:
            story.seal("u0", by_rank[rank], rank=rank)


def part(recording: StepRecording, index: int) -> StepRecording:
    """One row of a recording by itself, as the rank that has only that row records it."""
    start = sum(len(row.loss_mask) for row in recording.rows[:index])
    end = start + len(recording.rows[index].loss_mask)
    terms = {term.name: term.values[index] for term in recording.row_terms}
    loss = float(np.float32(terms["pg_loss"] - recording.config.entropy_coef * terms["entropy_loss"]))
    return recording.model_copy(
        update={
            "rows": (recording.rows[index],),
            "arrays": tuple(
                array.model_copy(update={"data": float32_bytes(floats_of(array.data)[start:end])})
                for array in recording.arrays
            ),
            "row_terms": tuple(
                term.model_copy(update={"values": (term.values[index],)}) for term in recording.row_terms
            ),
            "results": tuple(NamedNumber(name=name, value=value) for name, value in {"loss": loss, **terms}.items()),
        }
    )


def test_each_data_parallel_rank_has_its_rows(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b", (0.25, 0.75))
    steps = [of_ranks([story.recording("u0", at, a), story.recording("u0", at, b)], World(dp=2)) for at in range(2)]
    update(story, [*a, *b], steps)
    report = write(story, tmp_path)
    assert report.complete
    assert [(written.step_id, written.samples) for written in report.steps] == [(0, 4), (1, 4)]
    for written in report.steps:
        assert validate(written.path).problems == ()
        cohort = read_cohort(written.path)
        assert [bundle.rank for bundle in cohort.bundles] == [0, 1]
        assert [[s.sample_id for s in bundle.index.samples] for bundle in cohort.bundles] == [a, b]
        assert [[s.group_index for s in bundle.index.samples] for bundle in cohort.bundles] == [[0, 0], [1, 1]]
        assert {bundle.index.identity.rank.dp for bundle in cohort.bundles} == {2}
        assert replay_cohort(cohort).verdict is Verdict.PASSED


def test_ranks_that_share_their_rows_are_written_each(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    update(story, a, [of_ranks([story.recording("u0", 0, a)] * 2, World(tp=2))])
    (written,) = write(story, tmp_path).steps
    cohort = read_cohort(written.path)
    assert [len(bundle.index.samples) for bundle in cohort.bundles] == [2, 2]
    assert replay_cohort(cohort).verdict is Verdict.PASSED


def test_a_group_spread_over_ranks_is_not_promised_to_be_normalised_again(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    whole = story.recording("u0", 0, a)
    update(story, a, [of_ranks([part(whole, 0), part(whole, 1)], World(dp=2))])
    (written,) = write(story, tmp_path, form=Form(BundleFormat.V1_0)).written
    assert validate(written.path).problems == ()
    cohort = read_cohort(written.path)
    for bundle in cohort.bundles:
        contracts = bundle.manifest.stage_contracts
        assert contracts[StageId.REWARD_POST_PROCESS].capability is Capability.RECORDED_ONLY
        assert [sample.group_index for sample in bundle.index.samples] == [0]
    report = replay_cohort(cohort)
    assert report.verdict is Verdict.PASSED
    outcomes = {stage.stage: stage.outcome for stage in report.ranks[1].stages}
    assert outcomes[StageId.ADVANTAGE_ESTIMATE] is outcomes[StageId.LOSS_POLICY] is Outcome.PASSED


def test_a_group_that_is_not_whole_anywhere_is_no_group(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b")
    whole = story.recording("u0", 0, a)
    update(story, [a[0], *b], [of_ranks([part(whole, 0), story.recording("u0", 0, b)], World(dp=2))])
    found = problem(write(story, tmp_path, form=Form(BundleFormat.V1_0)))
    assert "rank-0/index.json: samples: group 0 has 1 samples" in found


def test_the_provenance_is_one_for_all_ranks_and_names_each_record_once(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    update(story, a, [of_ranks([story.recording("u0", 0, a), story.recording("u0", 0, a)], World(tp=2))])
    (written,) = write(story, tmp_path).steps
    provenance = parse("provenance", written.provenance.read_bytes(), Provenance)
    assert provenance.ranks == (0, 1)
    records = [used.record_type for used in provenance.records]
    assert records.count("RecordingSealed") == 2
    assert [used.record_type for used in provenance.payloads] == ["StepRecording"] * 2 + ["SegmentPayload"] * 2
    assert sorted(path.name for path in tmp_path.glob("*-s0*")) == [written.path.name, written.provenance.name]


def test_any_range_that_holds_the_commit_gives_the_same_bytes(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b")
    update(story, [*a, *b], [of_ranks([story.recording("u0", 0, a), story.recording("u0", 0, b)], World(dp=2))])
    write(story, tmp_path / "all")
    commit = story.end - 2
    write(story, tmp_path / "one", f"lifecycle:0:{commit}-{commit + 1}")
    assert tree(tmp_path / "one") == tree(tmp_path / "all") != {}


def test_a_rank_alone_is_a_plain_bundle_whatever_its_number(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    update(story, a, [of_ranks([story.recording("u0", 0, a)] * 2, World())], ranks=[1])
    (written,) = write(story, tmp_path).steps
    assert (written.path / "COMPLETE.1").is_file()
    assert read_cohort(written.path).bundles[0].expected_ranks == (1,)


def test_every_expected_rank_is_waited_for(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.reserve("u0", a)
    story.start("u0")
    story.commit("u0", [a], (0, 1, 2))
    recordings = of_ranks([story.recording("u0", 0, a)] * 3, World(tp=3))
    for rank in (2, 0):
        story.seal("u0", [recordings[rank]], rank=rank)
    assert "accepted RecordingSealed: 1; wait for them" in problem(write(story, tmp_path))
    story.seal("u0", [recordings[1]], rank=1)
    assert write(story, tmp_path).complete


def other_config(recording: StepRecording) -> StepRecording:
    return recording.model_copy(update={"config": recording.config.model_copy(update={"eps_clip": 0.3})})


def test_ranks_that_contradict_each_other_or_the_commit_are_told(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b")
    first = story.recording("u0", 0, a)
    _, second = of_ranks([first, first], World(dp=2))
    update(story, [*a, *b], [[of_ranks([first], World(dp=2))[0], other_config(second)]])
    report = write(story, tmp_path)
    assert {found.reason for found in report.problems} == {NotWritten.DISAGREEMENT}
    told = " | ".join(found.what for found in report.problems)
    assert "trains b.0 in step 0, t.payloads:0@" in told
    assert "have no row of it" in told
    assert "has config " in told
    assert "2 of the data-parallel ranks" in told
    assert "have a.1 segment 0" in told
    assert tree(tmp_path) == {}
