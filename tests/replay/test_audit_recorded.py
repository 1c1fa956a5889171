"""Recorded histories audit clean for ever, and those with payloads say everything from a file alone: aborted updates,
leases, resumes, roll-backs, dead letters, orphaned policies, observe mode are all in them."""

from pathlib import Path

import pytest

from rollbook.infra.settings import Topic
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision
from rollbook.tests.producers.trl.recorded import Story, read_log, settings_of
from rollbook.tests.replay.materialized import tree
from rollbook.tests.replay.recorded_histories import recorded
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS

WITHOUT_PAYLOADS = ("every-record", "walk-gate", "walk-observe", "demo")


@pytest.mark.parametrize("name", [*WITHOUT_PAYLOADS, *(story.value for story in Story)])
def test_a_recorded_history_audits_clean(name: str) -> None:
    found = recorded(name)
    whole = stretch_of(found.log, SETTINGS, OffsetRange(LIFECYCLE, found.stretch.partition), None)
    for stretch in (whole, found.stretch):
        report = audit(found.log, SETTINGS, stretch, payloads=False).report
        assert report.findings == ()
        assert report.undecided == 0
        assert report.decided > 20


def test_what_the_first_line_names_is_in_them() -> None:
    decided, changed = set(), set()
    for name in (*WITHOUT_PAYLOADS, *(story.value for story in Story)):
        found = recorded(name)
        partition = found.stretch.partition
        bounds = found.log.bounds(DECISIONS, partition)
        for stored in found.log.read(DECISIONS, partition, bounds.first, bounds.end):
            decision = decode_as(Decision, stored.value or b"")
            decided.add((decision.record_type, decision.reason))
            changed |= {change.predicate for change in decision.mass_changes}
    aborted = {("Abort", "update_failed"), ("Abort", "operator")}
    assert decided >= aborted | {("LeaseExpired", "lease_expired"), ("LeaseExpired", "in_doubt"), ("", "undecodable")}
    assert changed >= {"updates rolled back", "policies orphaned", "trajectories quarantined with an orphaned policy"}
    assert {recorded(name).observed for name in ("walk-gate", "walk-observe")} == {False, True}


@pytest.mark.parametrize("story", list(Story))
def test_a_trl_run_is_audited_proven_and_made_into_bundles_from_a_file(story: Story, tmp_path: Path) -> None:
    log, settings = read_log(story), settings_of(story)
    run, lifecycle = story.value, settings.topic(Topic.LIFECYCLE)
    partition = Wanted.of_run(run, log, settings).lifecycle.partition
    ranges = [OffsetRange(settings.topic(topic), partition) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    path = export(log, settings, ranges, tmp_path / "run.avro", run_id=run, payloads=True).path
    materialize(log, Wanted.of_run(run, log, settings), tmp_path / "log")
    with FileLog([path]) as file:
        report = audit(file, settings, stretch_of(file, settings, OffsetRange(lifecycle, partition), run)).report
        assert report.findings == ()
        assert report.checked.admits > 0
        assert report.checked.recordings > 0
        assert report.checked.gone == report.checked.unmeasured == 0
        materialize(file, Wanted.of_run(run, file, settings), tmp_path / "file")
        proof = prove(file, stretch_of(file, settings, OffsetRange(lifecycle, partition), run), OfPolicy(version=4))
        assert proof.trajectories
    assert tree(tmp_path / "file") == tree(tmp_path / "log") != {}
