"""TRL trainings as they were recorded, in both modes, give the same decisions and bundles for ever, without TRL."""

from collections import Counter
from pathlib import Path

import pytest

from rollbook.processors.ledger.fold import Ledger
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.run import Enforcement
from rollbook.tests.demo.recorded import read_history
from rollbook.tests.producers.trl.recorded import history_path, name_of, read_log, settings_of
from rollbook.tests.replay.materialized import passing

AGAIN = "make the histories anew with `python -m rollbook.tests.producers.trl.recorded`"


@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_the_recorded_decisions_come_out_again(enforcement: Enforcement) -> None:
    history = read_history(history_path(enforcement))
    ledger = Ledger(history.partition, history.topic_partitions)
    for record, recorded in zip(history.records, history.decisions, strict=True):
        assert ledger.fold(record).encoded == recorded, (
            f"offset {record.offset} is decided otherwise than recorded: where that is meant, and formats are not "
            f"frozen yet, {AGAIN}"
        )


@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_they_are_whole_trainings_of_two_updates_each(enforcement: Enforcement) -> None:
    decisions = [decode_as(Decision, one) for one in read_history(history_path(enforcement)).decisions]
    assert not any(one.violation for one in decisions)
    accepted = Counter(one.record_type for one in decisions if one.outcome is Outcome.ACCEPTED)
    assert accepted["Generated"] == 16
    once_an_update = ("Reserve", "Admit", "UpdateStarted", "Commit", "RecordingSealed", "PolicyPrepared", "Activate")
    assert {name: accepted[name] for name in once_an_update} == dict.fromkeys(once_an_update, 2)


@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_they_become_bundles_that_validate_and_replay(enforcement: Enforcement, tmp_path: Path) -> None:
    log, settings = read_log(enforcement), settings_of(enforcement)
    report = materialize(log, Wanted.of_run(name_of(enforcement), log, settings), tmp_path)
    assert report.problems == ()
    steps = [one for one in report.written if one.step_id is not None]
    assert len(steps) == 8
    for written in report.written:
        passing(written.path)
