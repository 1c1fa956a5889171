"""The demo's history in a file says everything that its broker said: workers and a trainer that died, leases,
roll-backs and orphaned policies included."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.audit.bundles import check_bundles
from rollbook.replay.history.export import export, ranges_of_run
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.replay.updates.replayed import UpdateOutcome, replay_history
from rollbook.schemas.records.update import Commit
from rollbook.tests.demo.finished import FinishedDemo
from rollbook.tests.demo.test_demo import CONFIG, UNDONE


@pytest.fixture
def file(demo: FinishedDemo, tmp_path: Path) -> FileLog:
    path = tmp_path / "run.avro"
    with KafkaLog(demo.settings) as log:
        ranges = ranges_of_run(log, demo.settings, demo.run_id)
        export(log, demo.settings, ranges, path, run_id=demo.run_id, payloads=True)
    return FileLog([path])


def test_it_is_audited_proven_replayed_and_made_into_the_same_bundles(
    demo: FinishedDemo, file: FileLog, tmp_path: Path
) -> None:
    settings = replace(demo.settings, bootstrap_servers="127.0.0.1:1")  # where no broker is
    stretch = stretch_of(file, settings, None, demo.run_id)
    report = audit(file, settings, stretch).report
    assert report.passed
    assert report.unchecked == ()
    assert report.decided == len(demo.lifecycle)
    assert report.checked.admits > 500
    assert check_bundles(file, settings, [demo.folder / "bundles"]).findings == ()
    wanted = Wanted.of_run(demo.run_id, file, settings)
    assert materialize(file, wanted, tmp_path / "bundles").complete
    outcomes = Counter(update.outcome for update in replay_history(file, wanted).updates)
    assert outcomes == {UpdateOutcome.PASSED: CONFIG.updates, UpdateOutcome.ROLLED_BACK: UNDONE}
    active = demo.records[-1][1].active_policy
    assert active is not None
    proof = prove(file, stretch, OfPolicy(version=active.version))
    commits = [record for record, _ in demo.records if isinstance(record, Commit)]
    trained = {name for one in commits for step in one.steps for name in step.trajectory_ids}
    assert set() < {one.trajectory_id for one in proof.trajectories} < trained, "what was rolled back is not in them"
