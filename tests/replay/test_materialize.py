"""Bundles from the log: complete, replaying, the same bytes from every range that holds the Commit."""

from pathlib import Path

import pytest

from rollbook.replay.bundle.model import Capability, StageId
from rollbook.replay.bundle.strictjson import parse
from rollbook.replay.materialize.provenance import Position, Provenance
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.run import Enforcement
from rollbook.tests.replay.materialized import passing, tree, write, write_run
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, Story


@pytest.fixture
def story() -> Story:
    return Story().opened()


def test_each_update_and_each_of_its_steps_becomes_a_bundle_that_replays(story: Story, tmp_path: Path) -> None:
    a, b, c = story.group("a"), story.group("b", worker="worker-1"), story.group("c", (0.25, 0.75))
    story.update("u0", [a, b])
    story.update("u1", [[*c]])
    report = write(story, tmp_path)
    assert report.complete
    assert report.updates == 2
    names = ["run-a-uu0-r3", "run-a-uu0-r3-s0", "run-a-uu0-r3-s1", "run-a-uu1-r3", "run-a-uu1-r3-s0"]
    assert [written.path.name for written in report.written] == names
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == names
    for written in report.written:
        passing(written.path)


def test_the_index_says_what_the_log_says(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a", (1.0, 0.5)), story.group("b", worker="worker-1")
    story.update("u0", [[*a, *b]])
    bundle = passing(write(story, tmp_path).steps[0].path)
    samples = bundle.index.samples
    assert [sample.sample_id for sample in samples] == [*a, *b]
    assert [sample.raw_reward for sample in samples] == [1.0, 0.5, 1.0, 0.0]
    assert [(sample.response_length, sample.total_length) for sample in samples] == [(4, 7), (5, 8), (4, 7), (5, 8)]
    assert [sample.group_index for sample in samples] == [0, 0, 1, 1]
    assert [sample.micro_batch_id for sample in samples] == ["mb-0000", "mb-0000", "mb-0001", "mb-0001"]
    assert samples[0].loss_mask == bytes([1, 1, 0, 1])
    assert {sample.label_hash for sample in samples} == {"labels-1"}
    identity = bundle.index.identity
    assert identity.rollout_partition_ids == ("batch-worker-0", "batch-worker-1")
    assert identity.semantic_group_ids == ("a", "b")
    assert identity.normalization_cohort_ids == ("cohort-a", "cohort-b")
    assert identity.weight_lineage.rollout_weight == "0:weights-0"
    assert bundle.manifest.producer.torch_version == "none"


def test_any_range_that_holds_the_commit_gives_the_same_bytes(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.update("u0", [a, a])
    b = story.group("b")
    commit = story.update("u1", [b]).source.offset
    write(story, tmp_path / "all")
    write(story, tmp_path / "again")
    one = write(story, tmp_path / "one", f"lifecycle:0:{commit}-{commit + 1}")
    assert [written.update_id for written in one.steps] == ["u1"]
    everything = tree(tmp_path / "all")
    assert tree(tmp_path / "again") == everything
    assert tree(tmp_path / "one") == {name: data for name, data in everything.items() if "-uu1-" in name}


def test_seals_are_found_before_and_after_the_commit(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b")
    story.reserve("before", a)
    story.start("before")
    story.seal("before", [story.recording("before", 0, a)])
    first = story.commit("before", [a]).source.offset
    story.reserve("after", b)
    story.start("after")
    last = story.commit("after", [b]).source.offset
    for _ in range(5):
        story.group(f"between-{story.events}")
    story.seal("after", [story.recording("after", 0, b)])
    report = write(story, tmp_path, f"lifecycle:0:{first}-{last + 1}")
    assert report.complete
    assert len(report.steps) == 2


def test_a_row_refused_for_drift_stays_in_its_group_with_a_zero_loss_mask(story: Story, tmp_path: Path) -> None:
    a = story.group("a", (1.0, 0.25))
    story.update("u0", [a], drifted=[a[1]])
    bundle = passing(write(story, tmp_path).steps[0].path)
    refused = bundle.index.samples[1]
    assert refused.sample_id == a[1]
    assert not any(refused.loss_mask)
    assert refused.raw_reward == 0.25
    assert bundle.index.samples[0].reward > 0


def test_a_refusal_is_found_in_a_part_before_the_reservation_of_all_that_was_trained(
    story: Story, tmp_path: Path
) -> None:
    a = story.group("a")
    story.reserve("u0", [a[1]], drifted=[a[1]])
    story.reserve("u0", [a[0]], part=1)
    story.start("u0")
    story.commit("u0", [[a[0]]])
    story.seal("u0", [story.recording("u0", 0, a, masked=[a[1]])])
    report = write(story, tmp_path)
    assert report.complete
    passing(report.steps[0].path)


def test_a_row_that_the_commit_dropped_may_stay_with_a_zero_loss_mask(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.reserve("u0", a)
    story.start("u0")
    story.commit("u0", [[a[0]]], dropped=[a[1]])
    story.seal("u0", [story.recording("u0", 0, a, masked=[a[1]])])
    bundle = passing(write(story, tmp_path).steps[0].path)
    assert [any(sample.loss_mask) for sample in bundle.index.samples] == [True, False]


def test_a_run_is_told_from_another_in_its_partition(story: Story, tmp_path: Path) -> None:
    other = Story("run-b", log=story.log, ledger=story.ledger).opened()
    for told in (story, other):
        told.group("g")
    for told in (story, other):
        told.update("same-id", [["g.0", "g.1"]])
    assert [written.run_id for written in write_run(story, tmp_path / "b", "run-b").steps] == ["run-b"]
    assert len(write(story, tmp_path / "both").steps) == 2
    assert write_run(story, tmp_path / "none", "run-b", "other").updates == 0


def test_a_remote_reward_is_not_promised_to_be_recomputable(tmp_path: Path) -> None:
    story = Story(remote_rewards=True).opened()
    story.update("u0", [story.group("a")])
    contracts = passing(write(story, tmp_path).steps[0].path).manifest.stage_contracts
    assert contracts[StageId.REWARD_RAW].capability is Capability.RECORDED_ONLY
    assert contracts[StageId.REWARD_POST_PROCESS].capability is Capability.RECOMPUTE


def test_a_run_without_payloads_is_held_against_its_spans(tmp_path: Path) -> None:
    story = Story(keep_payloads=False).opened()
    story.update("u0", [story.group("a")])
    passing(write(story, tmp_path).steps[0].path)


def test_an_update_that_trained_on_nothing_has_no_bundle(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.reserve("u0", a, drifted=a)
    story.start("u0")
    story.commit("u0", [], expected_ranks=[])
    report = write(story, tmp_path)
    assert report.complete
    assert (report.updates, report.steps) == (1, ())


def test_the_provenance_names_every_record_with_the_digest_that_it_has_there(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b")
    story.update("u0", [a, b])
    written = write(story, tmp_path).steps[1]
    provenance = parse("provenance", written.provenance.read_bytes(), Provenance)
    found = [used.record_type for used in provenance.records]
    of_update = ["Reserve", "Admit", "UpdateStarted", "Commit", "RecordingSealed"]
    assert found == ["Generated", "Generated", "RewardReady", *of_update]
    assert [(used.record_type, used.subject) for used in provenance.payloads] == [
        ("StepRecording", "u0"),
        ("SegmentPayload", b[0]),
        ("SegmentPayload", b[1]),
    ]
    assert len(provenance.payloads[0].chunks) > 1
    positions: list[Position] = []
    for used in provenance.records:
        positions += [used.position, used.decision.position]
        assert used.decision.outcome == Outcome.ACCEPTED
    positions += [chunk for used in provenance.payloads for chunk in used.chunks]
    for position in positions:
        (there,) = story.log.read_at(position.topic, position.partition, [position.offset])
        assert there.sha256 == position.sha256


def test_what_is_not_decided_yet_is_said(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    end = story.end
    story.log.append(LIFECYCLE, 0, b"run-a", b"not decided yet")
    report = write(story, tmp_path)
    assert report.undecided is not None
    assert (report.undecided.first, report.undecided.end) == (end, end + 1)
    assert len(report.steps) == 1


def test_a_late_update_is_found_without_reading_the_log_before_it(story: Story, tmp_path: Path) -> None:
    for number in range(800):
        story.group(f"early-{number}", (1.0,))
    commit = story.update("u0", [story.group("late")]).source.offset
    story.log.reads.clear()
    assert write(story, tmp_path, f"lifecycle:0:{commit}-").complete
    assert story.log.reads.get(LIFECYCLE, 0) == 0
    assert story.log.reads[DECISIONS] < 1_200
    assert story.end > 1_600


@pytest.mark.parametrize("told", [(), ("reserved",), ("reserved", "started")])
def test_in_observe_mode_a_commit_is_a_fact_whatever_came_before_it(told: tuple[str, ...], tmp_path: Path) -> None:
    story = Story(enforcement=Enforcement.OBSERVE).opened()
    a, b = story.group("a"), story.group("b")
    if "reserved" in told:
        story.reserve("u0", a)
    if "started" in told:
        story.start("u0")
    decision = story.commit("u0", [[*a, *b]])
    assert decision.violation
    story.seal("u0", [story.recording("u0", 0, [*a, *b])])
    report = write(story, tmp_path)
    assert report.complete
    passing(report.steps[0].path)


def test_one_step_may_take_the_rows_of_another_again(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.update("u0", [a, a, a])
    report = write(story, tmp_path)
    assert [written.step_id for written in report.steps] == [0, 1, 2]
    first, *others = (passing(written.path) for written in report.steps)
    assert all(other.index.samples == first.index.samples for other in others)
