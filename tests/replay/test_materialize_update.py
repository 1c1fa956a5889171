"""The bundle of an update: every row once, groups whole, linked to its steps, so that a chain finds where it first
goes wrong."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import INDEX, Capability, Links, StageId, StepBundle
from rollbook.replay.bundle.reading.cohort import read_bundle, read_cohort, validate
from rollbook.replay.engine.chain import replay_chain
from rollbook.replay.engine.result import Verdict
from rollbook.replay.materialize.report import MaterializeReport
from rollbook.schemas.digests import float32_bytes, floats_of
from rollbook.schemas.records.payload import ArrayName, StepRecording, World
from rollbook.tests.replay.independent_reader import read as read_independently
from rollbook.tests.replay.materialized import STEPS_ALONE, passing, tree, write
from rollbook.tests.replay.story import Plant, Story
from rollbook.tests.replay.test_materialize_ranks import of_ranks, part, update

NAME = "run-a-uu0-r3"


@pytest.fixture
def story() -> Story:
    return Story().opened()


def of_update(folder: Path) -> Bundle:
    return passing(folder / NAME)


def test_it_holds_the_rows_of_all_steps_once_in_the_order_in_which_they_came(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b", (0.25, 0.75))
    story.update("u0", [b, a, b])
    write(story, tmp_path)
    index = of_update(tmp_path).index
    assert [sample.sample_id for sample in index.samples] == [*b, *a]
    assert [sample.group_index for sample in index.samples] == [0, 0, 1, 1]
    assert {sample.micro_batch_id for sample in index.samples} == {None}
    identity = index.identity
    assert (identity.rollout_id, identity.actor_step_id, identity.micro_batch_ids) == (3, None, ())
    assert (identity.semantic_group_ids, identity.normalization_cohort_ids) == (("b", "a"), ("cohort-b", "cohort-a"))


def test_update_and_steps_name_one_another(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.update("u0", [a, a])
    report = write(story, tmp_path)
    named = tuple(StepBundle(step_id=at, bundle_id=f"{NAME}-s{at}") for at in range(2))
    assert of_update(tmp_path).index.links == Links(update_id="u0", step_bundles=named)
    for written in report.steps:
        assert passing(written.path).index.links == Links(update_id="u0", update_bundle=NAME)


def test_it_promises_what_comes_before_the_loss_and_holds_nothing_of_it(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    write(story, tmp_path)
    bundle = of_update(tmp_path)
    assert bundle.manifest.format_version == "1.1.0"
    assert bundle.manifest.stage_contracts.keys() == set(StageId) - {StageId.LOSS_POLICY, StageId.LOSS_VALUE}
    assert {one.capability for one in bundle.manifest.stage_contracts.values()} == {Capability.RECOMPUTE}
    assert set(bundle.tensors) == {"old_log_probs", "ref_log_probs", "kl", "advantages"}
    assert (bundle.expected.loss_policy, bundle.terms) == (None, {})


def test_its_provenance_names_the_records_of_all_steps(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b")
    story.update("u0", [a, b])
    of_all, *of_steps = write(story, tmp_path).written
    text = of_all.provenance.read_text()
    assert '"actor_step_id": null' in text
    assert all(name in text for name in (*a, *b))
    assert [sum(name in one.provenance.read_text() for name in (*a, *b)) for one in of_steps] == [2, 2]


def test_format_1_0_0_has_the_steps_alone(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.update("u0", [a, a])
    report = write(story, tmp_path, form=STEPS_ALONE)
    assert [written.path.name for written in report.written] == [f"{NAME}-s0", f"{NAME}-s1"]
    for written in report.written:
        assert passing(written.path).manifest.format_version == "1.0.0"
        read_independently(written.path)


def mini_batches(story: Story, steps: Sequence[Sequence[tuple[int, Sequence[str]]]]) -> None:
    """An update whose steps have a row each of whole groups."""
    ids = list(dict.fromkeys(group[at] for step in steps for at, group in step))
    story.reserve("u0", ids)
    story.start("u0")
    story.commit("u0", [[group[at] for at, group in step] for step in steps])
    ((one,), (other,)) = steps
    recordings = [part(story.recording("u0", at, group), row) for at, (row, group) in enumerate((one, other))]
    story.seal("u0", recordings)


def test_a_group_that_mini_batches_divide_is_whole_in_it(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    mini_batches(story, [[(0, a)], [(1, a)]])
    report = write(story, tmp_path)
    assert report.complete
    assert of_update(tmp_path).index.cohort is None
    for written, missing in zip(report.steps, reversed(a), strict=True):
        bundle = passing(written.path)
        assert [member.sample_id for member in bundle.index.cohort or ()] == [missing]
        assert bundle.manifest.stage_contracts[StageId.REWARD_POST_PROCESS].capability is Capability.RECOMPUTE
    assert replay_chain(tmp_path).verdict is Verdict.PASSED


def test_format_1_0_0_cannot_normalise_a_divided_group_again(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    mini_batches(story, [[(0, a)], [(1, a)]])
    for written in write(story, tmp_path, form=STEPS_ALONE).written:
        contracts = passing(written.path).manifest.stage_contracts
        assert contracts[StageId.REWARD_POST_PROCESS].capability is Capability.RECORDED_ONLY


def test_a_group_that_ranks_divide_is_whole_in_it_and_named_in_theirs(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    whole = story.recording("u0", 0, a)
    update(story, a, [of_ranks([part(whole, 0), part(whole, 1)], World(dp=2))])
    report = write(story, tmp_path)
    assert [sample.sample_id for sample in of_update(tmp_path).index.samples] == a
    (step,) = report.steps
    assert validate(step.path).problems == ()
    for bundle in read_cohort(step.path).bundles:
        assert bundle.manifest.stage_contracts[StageId.REWARD_POST_PROCESS].capability is Capability.RECOMPUTE
    found = replay_chain(tmp_path / NAME)
    assert found.verdict is Verdict.PASSED
    assert [len(link.handovers) for link in found.links] == [0, 2]


def test_a_member_that_was_not_consumed_counts_in_its_group(story: Story, tmp_path: Path) -> None:
    a = story.group("a", (1.0, 0.25))
    story.reserve("u0", [a[0]])
    story.start("u0")
    story.commit("u0", [[a[0]]])
    story.seal("u0", [part(story.recording("u0", 0, a), 0)])
    write(story, tmp_path)
    for name in (NAME, f"{NAME}-s0"):
        (member,) = passing(tmp_path / name).index.cohort or ()
        assert (member.sample_id, member.group_index, member.raw_reward) == (a[1], 0, 0.25)
    assert replay_chain(tmp_path).verdict is Verdict.PASSED


def test_ranks_that_share_their_rows_are_in_it_once(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    update(story, a, [of_ranks([story.recording("u0", 0, a)] * 2, World(tp=2))])
    write(story, tmp_path)
    assert [sample.sample_id for sample in of_update(tmp_path).index.samples] == a


def test_a_row_is_taken_from_where_it_counted(story: Story, tmp_path: Path) -> None:
    """Where a row does not count, a trainer may have written anything."""
    a, b = story.group("a"), story.group("b")
    story.reserve("u0", [*a, *b])
    story.start("u0")
    story.commit("u0", [a, [*a, *b]])
    masked = story.recording("u0", 0, [*a, *b], masked=b)
    story.seal("u0", [masked, story.recording("u0", 1, [*a, *b])])
    write(story, tmp_path)
    assert all(any(sample.loss_mask) for sample in of_update(tmp_path).index.samples)


def other_kl(recording: StepRecording) -> StepRecording:
    if recording.step_id == 0:
        return recording
    return recording.model_copy(
        update={"config": recording.config.model_copy(update={"eps_clip": 0.2, "kl_coef": 0.2})}
    )


def test_steps_of_different_computations_have_no_update_in_common(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.update("u0", [a, a], plant=other_kl)
    report = write(story, tmp_path)
    assert report.complete
    assert [written.step_id for written in report.written] == [0, 1]
    (why,) = report.without_update
    assert "has kl_coef 0.2, t.payloads:0@" in why.what
    for written in report.written:
        assert passing(written.path).index.links == Links(update_id="u0")
    before = tree(tmp_path)
    write(story, tmp_path)
    assert tree(tmp_path) == before


def plant_in(step_id: int, array: ArrayName, token: int, by: float = 0.5) -> Plant:
    """A trainer that used another value in one step."""

    def plant(recording: StepRecording) -> StepRecording:
        if recording.step_id != step_id:
            return recording
        values = floats_of(next(one.data for one in recording.arrays if one.name is array)).copy()
        values[token] += by
        arrays = (
            one.model_copy(update={"data": float32_bytes(values)}) if one.name is array else one
            for one in recording.arrays
        )
        return recording.model_copy(update={"arrays": tuple(arrays)})

    return plant


def test_what_a_later_step_took_over_otherwise_is_found_on_the_way_to_it(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.update("u0", [a, a], plant=plant_in(1, ArrayName.ADVANTAGES, token=4 + 2))
    write(story, tmp_path)
    found = replay_chain(tmp_path).first_divergence
    assert found is not None
    assert (found.bundle_id, found.in_handover) == (f"{NAME}-s1", True)
    point = found.divergence.point
    assert (found.divergence.stage, point.sample_id, point.token_offset) == (StageId.ADVANTAGE_ESTIMATE, a[1], 2)


def test_what_the_trainer_normalised_wrongly_is_found_in_the_update(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b", (1.0, 0.25))

    def plant(recording: StepRecording) -> StepRecording:
        rows = (row.model_copy(update={"reward": row.reward + (row.trajectory_id == b[1])}) for row in recording.rows)
        return recording.model_copy(update={"rows": tuple(rows)})

    story.update("u0", [a, b], plant=plant)
    write(story, tmp_path)
    found = replay_chain(tmp_path).first_divergence
    assert found is not None
    assert (found.bundle_id, found.in_handover) == (NAME, False)
    assert (found.divergence.stage, found.divergence.point.sample_id) == (StageId.REWARD_POST_PROCESS, b[1])


def test_the_chain_of_each_update_of_a_folder_is_told_apart(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b")
    story.update("u0", [a])
    story.update("u1", [b], plant=plant_in(0, ArrayName.KL, token=1))
    report: MaterializeReport = write(story, tmp_path)
    assert replay_chain(report.written[0].path).verdict is Verdict.PASSED
    found = replay_chain(tmp_path).first_divergence
    assert found is not None
    assert (found.bundle_id, found.divergence.point.sample_id) == ("run-a-uu1-r3", b[0])
    assert read_bundle(report.written[2].path).bundle_id == "run-a-uu1-r3"


def test_an_update_that_is_too_large_for_one_bundle_costs_its_steps_no_more_than_the_link(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.update("u0", [story.group("a"), story.group("b")])
    written = write(story, tmp_path / "large").written
    longest = max((one.path / "index.json").stat().st_size for one in written if one.step_id is not None)
    limit = "rollbook.replay.bundle.writing.drafts.max_json_bytes"
    monkeypatch.setattr(limit, lambda file: longest if file == INDEX else 2**20)
    report = write(story, tmp_path / "small")
    assert report.complete
    (why,) = report.without_update
    assert "more than the" in why.what
    assert [one.step_id for one in report.written] == [0, 1]
    for one in report.written:
        assert passing(one.path).index.links == Links(update_id="u0")
    assert sorted(path.name for path in (tmp_path / "small").glob(".*")) == []
