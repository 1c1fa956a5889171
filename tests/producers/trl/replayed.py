"""What the log gives of a TRL run: its bundles, what replay must say of each, and the same out of a file."""

from collections import Counter
from pathlib import Path

from rollbook.infra.settings import Settings
from rollbook.producers.trl import LedgerRun
from rollbook.producers.trl.conventions import loss_name
from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_cohort
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome, Verdict
from rollbook.replay.histories import open_history
from rollbook.replay.history.export import export, ranges_of_run
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.report import MaterializeReport
from rollbook.replay.recognition.bundles import dialects_of
from rollbook.replay.updates.replayed import UpdateOutcome
from rollbook.tests.producers.trl.tiny import Shape
from rollbook.tests.replay.materialized import tree

STAGES_OF_UPDATE = [
    StageId.SAMPLE,
    StageId.REWARD_RAW,
    StageId.REWARD_POST_PROCESS,
    StageId.ADVANTAGE_ESTIMATE,
]


def bundles_of(run: LedgerRun, folder: Path) -> MaterializeReport:
    return bundles_in(run.settings, run.run_id, folder)


def bundles_in(settings: Settings, run_id: str, folder: Path) -> MaterializeReport:
    with KafkaLog(settings) as log:
        return materialize(log, Wanted.of_run(run_id, log, settings), folder)


def replays(path: Path, shape: Shape) -> None:
    """Every stage that the bundle can have is recomputed, under TRL's names, and TRL is named for it."""
    cohort = read_cohort(path)
    result = replay_cohort(cohort)
    assert result.verdict is Verdict.PASSED, result
    for rank, bundle in zip(result.ranks, cohort.bundles, strict=True):
        of_step = bundle.index.identity.actor_step_id is not None
        passed = [stage.stage for stage in rank.stages if stage.outcome is Outcome.PASSED]
        assert passed == [*STAGES_OF_UPDATE, *([StageId.LOSS_POLICY] if of_step else [])]
        named = bundle.index.config.conventions
        assert named is not None
        assert str(named.advantages) == f"trl 1.16.0 scale_rewards {shape.scale}"
        level = str(shape.options.get("importance_sampling_level", "token"))
        assert str(named.loss) == (f"trl 1.16.0 {loss_name(shape.loss, level)}" if of_step else "None")
    for found in dialects_of(cohort):
        for subject in found.subjects:
            if subject.matches:
                assert subject.confirmed
                assert "trl" in {match.framework for match in subject.matches if match.rank == 1}


def says_the_same_in_a_file(
    settings: Settings, run_id: str, version: int, outcomes: dict[UpdateOutcome, int], folder: Path
) -> None:
    """Exported from its broker, a run is audited, proven, replayed and made into the same bundles without. `version`:
    of its last policy; `outcomes`: of its updates."""
    folder.mkdir()
    bundles_in(settings, run_id, folder / "kafka")
    with KafkaLog(settings) as log:
        ranges = ranges_of_run(log, settings, run_id)
        path = export(log, settings, ranges, folder / "run.avro", run_id=run_id, payloads=True).path
    with open_history(path, run=run_id) as history:
        (report,) = history.audit(bundles=[folder / "kafka"])
        assert (report.findings, report.undecided, report.unchecked) == ((), 0, ())
        assert report.checked.recordings > 0
        proof = history.prove(policy=version)
        assert len(proof.updates) == outcomes[UpdateOutcome.PASSED]
        assert Counter(one.outcome for one in history.replay()) == outcomes
        history.materialize(folder / "file")
    assert tree(folder / "file") == tree(folder / "kafka") != {}
