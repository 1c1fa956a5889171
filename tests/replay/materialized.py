"""What tests of materialize ask of a story: write it, and look at what lies on disk."""

from pathlib import Path

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.reading.cohort import read_bundle, validate
from rollbook.replay.engine.engine import replay_bundle
from rollbook.replay.engine.result import Verdict
from rollbook.replay.history.ranges import parse_range
from rollbook.replay.materialize.form import BundleFormat, Form
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.report import MaterializeReport
from rollbook.tests.replay.story import SETTINGS, Story

STEPS_ALONE = Form(BundleFormat.V1_0)


def write(story: Story, out: Path, text: str = "lifecycle:0:-", form: Form = Form()) -> MaterializeReport:  # noqa: B008
    """Materialize an offset range."""
    return materialize(story.log, Wanted.of_range(parse_range(text, SETTINGS), SETTINGS), out, form=form)


def write_run(story: Story, out: Path, run_id: str, update_id: str | None = None) -> MaterializeReport:
    """Materialize a run."""
    return materialize(story.log, Wanted.of_run(run_id, story.log, SETTINGS, update_id), out)


def problem(report: MaterializeReport) -> str:
    """The only problem, as one line."""
    (found,) = report.problems
    step = "" if found.step_id is None else f" step {found.step_id}"
    return f"{found.update_id}{step} {found.reason}: {found.what}"


def passing(path: Path) -> Bundle:
    """The bundle, which is valid and replays."""
    assert validate(path).problems == ()
    bundle = read_bundle(path)
    assert replay_bundle(bundle).verdict is Verdict.PASSED
    return bundle


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
