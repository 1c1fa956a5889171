"""One update of a run, ready to be held against one of another: its rows by task, and its bundles in memory."""

from collections.abc import Mapping
from dataclasses import dataclass

from rollbook.replay.bundle.bundle import Bundle, Cohort
from rollbook.replay.diff.tasks import TaskRow, TrainedRow, rows_of
from rollbook.replay.materialize.assemble import Assembled
from rollbook.replay.materialize.commits import CommittedUpdate
from rollbook.replay.materialize.evidence import UpdateEvidence
from rollbook.replay.updates.replayed import in_memory


@dataclass(frozen=True, slots=True)
class BundleOf:
    """The update's bundle, whose `step` is empty, or that of a step. `places`: of each rank's recording of it."""

    step: str
    cohort: Cohort
    places: Mapping[int, str]

    @property
    def ranks(self) -> dict[int, Bundle]:
        return {bundle.rank: bundle for bundle in self.cohort.bundles}

    def located(self) -> dict[str, tuple[int, int]]:
        """Of each sample the first rank that has it, and its position there."""
        found: dict[str, tuple[int, int]] = {}
        for bundle in self.cohort.bundles:
            for at, sample in enumerate(bundle.index.samples):
                found.setdefault(sample.sample_id, (bundle.rank, at))
        return found


@dataclass(frozen=True, slots=True)
class UpdateOf:
    """One update. `whole` is None where its steps are no one computation, so that it has no bundle of its own."""

    run_id: str
    update_id: str
    rows: Mapping[TaskRow, TrainedRow]
    whole: BundleOf | None
    steps: tuple[BundleOf, ...]


def update_of(update: CommittedUpdate, evidence: UpdateEvidence, assembled: Assembled) -> UpdateOf:
    """Raises CannotWrite where the format refuses a bundle."""
    commit = evidence.commit
    steps = tuple(
        BundleOf(
            f"{step.rollout_id}:{step.step_id}",
            in_memory(ready),
            {recording.step.rank: recording.place for recording in recordings},
        )
        for step, ready, recordings in zip(commit.record.steps, assembled.steps, evidence.recordings, strict=True)
    )
    whole = None if assembled.update is None else BundleOf("", in_memory(assembled.update), {})
    return UpdateOf(update.run_id, update.update_id, rows_of(evidence), whole, steps)
