"""The trainer's crash: what its last checkpoint does not hold is taken back, and what stands was trained on once."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.learner import Learner
from rollbook.infra.demo.learning.plan import PlannedRow, StepPlan
from rollbook.infra.demo.learning.records import TrainingRow
from rollbook.infra.demo.learning.weights import WeightsFile, load_weights, save_weights
from rollbook.infra.demo.processes.folder import RunFolder
from rollbook.processors.lifecycle import TRANSITIONS
from rollbook.producers.reading.fetch import Fetcher
from rollbook.producers.reading.loading import LoadedTrajectory, load_trajectories
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.rollout import Generated
from rollbook.schemas.records.update import CheckpointSaved, LearnerStarted
from rollbook.tests.demo.finished import FinishedDemo
from rollbook.tests.recount import Codec, figures, read_topic

CONFIG = DemoConfig()
UNDONE = 2


@pytest.fixture
def recounted(demo: FinishedDemo) -> dict[str, Any]:
    servers, prefix = demo.settings.bootstrap_servers, demo.settings.topic_prefix
    lifecycle, decisions = (read_topic(servers, f"{prefix}{topic}") for topic in ("lifecycle", "decisions"))
    return figures(demo.run_id, lifecycle, decisions, Codec())


def test_a_second_process_starts_from_the_last_checkpoint_of_the_first(demo: FinishedDemo) -> None:
    accepted = [record for record, decision in demo.records if decision.outcome is Outcome.ACCEPTED]
    first, second = (record for record in accepted if isinstance(record, LearnerStarted))
    before = accepted[: accepted.index(second)]
    saved = [record.checkpoint for record in before if isinstance(record, CheckpointSaved)]
    assert first.incarnation != second.incarnation
    assert (first.checkpoint, second.checkpoint) == (None, saved[-1])
    assert len(demo.undone) == UNDONE


def test_the_decision_lists_what_it_took_back_and_counts_what_was_forgotten(
    demo: FinishedDemo, recounted: dict[str, Any]
) -> None:
    (changes,) = (
        {change.predicate: change.count for change in decision.mass_changes}
        for record, decision in demo.records
        if isinstance(record, LearnerStarted) and record.checkpoint is not None
    )
    (found,) = recounted["rolled_back"]
    assert changes["updates rolled back"] == found["updates"] == UNDONE
    assert changes["policies orphaned"] == len(found["policies"]) == UNDONE
    assert changes["trajectories rolled back, but forgotten"] == found["became"]["forgotten"] > 0
    assert changes["trajectories rolled back"] == found["rows"] - found["became"]["forgotten"]
    assert found["became"]["rewarded"] > 0
    assert found["became"].keys() <= {"forgotten", "offline", "quarantined", "rewarded"}


def test_no_row_is_trained_on_twice_in_what_stands_and_what_came_back_is_trained_on_again(
    demo: FinishedDemo, recounted: dict[str, Any]
) -> None:
    trained = Counter(item.trajectory_id for item in demo.items("Commit") if item.reason == "trained")
    assert set(trained.values()) == {1}
    assert recounted["trained_twice"] == 0
    (found,) = recounted["rolled_back"]
    assert found["now"]["consumed"] > found["became"]["rewarded"] / 2


def test_no_row_is_lost(demo: FinishedDemo, recounted: dict[str, Any]) -> None:
    """Each that was reported is in one state at the end, and none is held by an update that is over."""
    known = {
        item.trajectory_id
        for _, decision in demo.records
        if decision.record_type in ("Generated", "GenerationFailed") and decision.outcome is Outcome.ACCEPTED
        for item in decision.items
    }
    states = recounted["trajectories"]
    assert sum(states.values()) == len(known)
    assert states.keys() <= {*TRANSITIONS.values(), "forgotten"} - {"reserved", "generated", "dispatched"}
    (found,) = recounted["rolled_back"]
    assert sum(found["now"].values()) == sum(found["became"].values()) == found["rows"]


def test_nothing_that_an_undone_policy_wrote_is_in_what_stands(demo: FinishedDemo, recounted: dict[str, Any]) -> None:
    wrote = {
        record.identity.trajectory_id: {span.policy.version for span in record.segments[0].spans if span.policy}
        for record, _ in demo.records
        if isinstance(record, Generated)
    }
    undone = set(recounted["rolled_back"][0]["policies"])
    assert any(versions & undone for versions in wrote.values())
    for item in demo.items("Commit"):
        assert not wrote[item.trajectory_id] & undone


def test_the_weights_are_those_of_a_trainer_that_did_only_what_stands(demo: FinishedDemo, tmp_path: Path) -> None:
    """From the initial weights, by the records of the updates that stand, every policy comes out again, bit for bit."""
    folder = RunFolder(demo.folder)
    first, *others = folder.next_release(after=-1).lineage
    config = folder.plan().config
    initial = WeightsFile(folder.weights(first), folder.release(first).policy.artifact_hash)
    learner = Learner(load_weights(initial, config), config)
    plans = iter(steps_that_stand(demo))
    for version in others:
        for _ in range(config.steps_per_update):
            learner.step(next(plans))
        again = save_weights(learner.model, tmp_path / "again.npz")
        assert again.sha256 == folder.release(version).policy.artifact_hash, version
    assert next(plans, None) is None
    assert len(others) == CONFIG.updates
    assert others[-1] == CONFIG.updates + UNDONE


def steps_that_stand(demo: FinishedDemo) -> list[StepPlan]:
    """The optimizer steps by their bundles, the tokens from the log."""
    reserved = {item.trajectory_id: item for item in demo.items("Reserve") if item.reason == "reserved"}
    fetcher = Fetcher(demo.settings)
    try:
        partition = demo.lifecycle[0].partition
        loaded = load_trajectories(fetcher, demo.settings, partition, list(reserved.values()), deadline_s=60)
    finally:
        fetcher.close()
    rows = {one.trajectory_id: one for one in loaded}
    return [step_of(json.loads((bundle / "index.json").read_text()), rows) for bundle in demo.bundles]


def step_of(index: dict[str, Any], rows: dict[str, LoadedTrajectory]) -> StepPlan:
    step = index["identity"]["actor_step_id"]
    planned = [planned_row(sample, rows[sample["sample_id"]]) for sample in index["samples"]]
    return StepPlan(step["rollout_id"], step["step_id"], tuple(planned))


def planned_row(sample: dict[str, Any], loaded: LoadedTrajectory) -> PlannedRow:
    (segment,) = loaded.segments
    row = TrainingRow(
        trajectory_id=loaded.trajectory_id,
        prompt_ids=tuple(segment.prompt_ids.tolist()),
        response_ids=tuple(segment.response_ids.tolist()),
        behavior_log_probs=segment.log_probs,
        raw_reward=loaded.raw_reward,
        admitted=any(sample["loss_mask"]),
    )
    micro_batch = int(sample["micro_batch_id"].removeprefix("mb-"))
    return PlannedRow(row, loaded.group_id, sample["group_index"], micro_batch, sample["reward"])


def test_the_page_says_what_became_of_the_rows(demo: FinishedDemo) -> None:
    (found,) = demo.summary["figures"]["rolled_back"]
    said = " ".join(demo.output.split())
    assert f"the trainer was killed {UNDONE} updates after its last checkpoint and started again from it" in said
    assert f"Of the {found['rows']} rows of those updates: {found['became']['forgotten']} were forgotten" in said
    assert "none trained on twice in what stands." in said
    assert demo.summary["undone"] == sorted(demo.undone)
    assert demo.summary["not_written"] == []
