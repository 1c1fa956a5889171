"""TRL trainings as they were recorded give the same decisions and bundles for ever, without TRL."""

from collections import Counter
from pathlib import Path

import pytest

from rollbook.processors.ledger.fold import Ledger
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.report import NotWritten
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.tests.demo.recorded import read_history
from rollbook.tests.producers.trl.recorded import FOLDER, Story, history_path, read_log, settings_of
from rollbook.tests.replay.materialized import passing

EARLIER = FOLDER / "earlier"
KINDS = ("Generated", "Reserve", "Admit", "UpdateStarted", "Commit", "RecordingSealed", "CheckpointSaved", "Activate")
ACCEPTED = {
    Story.GATE: (16, 2, 2, 2, 2, 2, 0, 2),
    Story.OBSERVE: (16, 2, 2, 2, 2, 2, 0, 2),
    Story.RESUMED: (24, 4, 4, 4, 4, 4, 3, 4),
    Story.ASYNCHRONOUS: (27, 4, 8, 4, 4, 4, 0, 4),
}
STEPS = {Story.GATE: 8, Story.OBSERVE: 8, Story.RESUMED: 8, Story.ASYNCHRONOUS: 4}
NOT_WRITTEN = {Story.RESUMED: [NotWritten.ROLLED_BACK]}
"""What was undone; the step that the checkpoint brings along is recorded under its second name, too."""


def decisions(story: Story) -> list[Decision]:
    return [decode_as(Decision, one) for one in read_history(history_path(story)).decisions]


@pytest.mark.parametrize("story", list(Story))
def test_the_recorded_decisions_come_out_again(story: Story) -> None:
    history = read_history(history_path(story))
    ledger = Ledger(history.partition, history.topic_partitions)
    for record, recorded in zip(history.records, history.decisions, strict=True):
        assert ledger.fold(record).encoded == recorded, (
            f"offset {record.offset} is decided otherwise than recorded, which it never may be"
        )


@pytest.mark.parametrize("story", list(Story))
def test_they_are_whole_trainings(story: Story) -> None:
    found = decisions(story)
    assert not any(one.violation for one in found)
    accepted = Counter(one.record_type for one in found if one.outcome is Outcome.ACCEPTED)
    assert tuple(accepted[kind] for kind in KINDS) == ACCEPTED[story]


def test_what_a_resumed_training_had_done_behind_its_checkpoint_is_undone() -> None:
    changes = [change for one in decisions(Story.RESUMED) for change in one.mass_changes]
    assert "updates rolled back" in {change.predicate for change in changes}


def test_of_an_asynchronous_training_are_refused_what_is_too_old_and_what_has_drifted() -> None:
    reasons = Counter(item.reason for one in decisions(Story.ASYNCHRONOUS) for item in one.items)
    assert (reasons["stale_policy"], reasons["policy_drift"]) == (4, 1)


@pytest.mark.parametrize("story", list(Story))
def test_they_become_bundles_that_validate_and_replay(story: Story, tmp_path: Path) -> None:
    log, settings = read_log(story), settings_of(story)
    report = materialize(log, Wanted.of_run(story.value, log, settings), tmp_path)
    assert [problem.reason for problem in report.problems] == NOT_WRITTEN.get(story, [])
    assert sum(one.step_id is not None for one in report.written) == STEPS[story]
    for written in report.written:
        passing(written.path)


def test_a_training_resumed_before_its_open_steps_were_told_again_still_reads(tmp_path: Path) -> None:
    history = read_history(history_path(Story.RESUMED, EARLIER))
    ledger = Ledger(history.partition, history.topic_partitions)
    assert tuple(ledger.fold(record).encoded for record in history.records) == history.decisions
    log, settings = read_log(Story.RESUMED, EARLIER), settings_of(Story.RESUMED)
    report = materialize(log, Wanted.of_run(Story.RESUMED.value, log, settings), tmp_path)
    assert [one.reason for one in report.problems] == [NotWritten.ROLLED_BACK, NotWritten.NOT_RECORDED]
    assert sum(one.step_id is not None for one in report.written) == STEPS[Story.RESUMED] - 1
