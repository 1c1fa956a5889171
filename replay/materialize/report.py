"""What materialize did: the bundles written, and what was asked for and could not be, each with its reason."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rollbook.replay.history.source import Bounds
from rollbook.schemas.text import visible


class NotWritten(StrEnum):
    """Why an update has no bundles."""

    NOT_RECORDED = "not_recorded"
    RANK_NOT_SEALED = "rank_not_sealed"
    ROLLED_BACK = "rolled_back"
    RECORD_GONE = "record_gone"
    PAYLOAD_GONE = "payload_gone"
    PAYLOAD_CORRUPT = "payload_corrupt"
    INCOMPLETE_RECORDING = "incomplete_recording"
    DISAGREEMENT = "disagreement"
    NOT_REPRESENTABLE = "not_representable"
    EXISTS = "exists"


MEANING: dict[NotWritten, str] = {
    NotWritten.NOT_RECORDED: "Its Commit expects no rank's recordings.",
    NotWritten.RANK_NOT_SEALED: "An expected rank's RecordingSealed was not accepted (yet).",
    NotWritten.ROLLED_BACK: "A later start of its learner undid it.",
    NotWritten.RECORD_GONE: "A record that it needs is not to be had any more.",
    NotWritten.PAYLOAD_GONE: "A payload is not retained any more.",
    NotWritten.PAYLOAD_CORRUPT: "A payload is not what its reference describes.",
    NotWritten.INCOMPLETE_RECORDING: "The trainer did not record something that a bundle needs.",
    NotWritten.DISAGREEMENT: "Log and recording contradict each other.",
    NotWritten.NOT_REPRESENTABLE: "The format has no way to say it.",
    NotWritten.EXISTS: "Another bundle has its name; bundles are never overwritten.",
}
"""What each reason means; the reference page is generated from it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why one update, or one step of it, has no bundle. `what` names the places in the log."""

    run_id: str
    update_id: str
    step_id: int | None
    reason: NotWritten
    what: str


@dataclass(frozen=True, slots=True)
class Written:
    """One bundle, whole and on disk, with its provenance beside it. `step_id` None: of the update. `samples` is the
    number of all its ranks'. `was_there`: an earlier call wrote the same bytes."""

    run_id: str
    update_id: str
    rollout_id: int
    step_id: int | None
    path: Path
    provenance: Path
    samples: int
    was_there: bool


@dataclass(frozen=True, slots=True)
class MaterializeReport:
    """The answer for a range; `written` in the order of the training. An update with a problem has no bundle at all.

    `undecided`: lifecycle offsets of the range whose decisions were not there yet, so that nothing is known of them.
    `without_update`: why updates whose steps are written have no bundle of their own. `only`: the one update that was
    asked for, if it was one.
    """

    updates: int
    written: tuple[Written, ...]
    problems: tuple[Problem, ...]
    undecided: Bounds | None
    without_update: tuple[Problem, ...] = ()
    only: str | None = None

    @property
    def steps(self) -> tuple[Written, ...]:
        """The bundles of optimizer steps alone."""
        return tuple(written for written in self.written if written.step_id is not None)

    @property
    def complete(self) -> bool:
        """Whether every committed update of the range that stands was written: one that was undone has no bundle. An
        update that was asked for and is not there was not written."""
        is_there = self.updates > 0 or self.only is None
        return is_there and all(problem.reason is NotWritten.ROLLED_BACK for problem in self.problems)


class CannotWrite(Exception):
    """An update stops here; caught where updates are gone through. One `what` for each contradiction found."""

    def __init__(self, reason: NotWritten, *whats: str, step_id: int | None = None) -> None:
        super().__init__(reason, *whats)
        self.reason = reason
        self.whats = whats
        self.step_id = step_id


def plain(report: MaterializeReport) -> dict[str, Any]:
    """For scripts: keys only ever grow. Paths are text, also such as are none."""
    left = report.undecided
    return {
        "complete": report.complete,
        "updates": report.updates,
        "bundles": [
            {
                "run_id": one.run_id,
                "update_id": one.update_id,
                "rollout_id": one.rollout_id,
                "step_id": one.step_id,
                "path": visible(one.path, limit=4096),
                "provenance": visible(one.provenance, limit=4096),
                "samples": one.samples,
                "was_there": one.was_there,
            }
            for one in report.written
        ],
        "not_written": [_plain_problem(one) for one in report.problems],
        "without_update": [_plain_problem(one) for one in report.without_update],
        "undecided": None if left is None else {"start": left.first, "end": left.end},
    }


def _plain_problem(problem: Problem) -> dict[str, Any]:
    return {
        "run_id": problem.run_id,
        "update_id": problem.update_id,
        "step_id": problem.step_id,
        "reason": problem.reason.value,
        "meaning": MEANING[problem.reason],
        "what": problem.what,
    }
