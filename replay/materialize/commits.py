"""Which updates were committed in a range, and what became of them: one pass over the decisions, from the range's
first record to the last decision there is, since seals and roll-backs come later."""

from dataclasses import dataclass, field

from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.source import Bounds
from rollbook.replay.materialize.rollbacks import Commits, Undone
from rollbook.replay.progress import Watch
from rollbook.schemas.records.decision import Decision, Outcome


@dataclass(slots=True)
class CommittedUpdate:
    """An update whose Commit, in the range, was accepted. Offsets are those of the decisions topic; `committed` is that
    of the Commit itself."""

    run_id: str
    update_id: str
    learner_id: str
    commit: int
    committed: int
    seals: list[int] = field(default_factory=list)
    rolled_back_by: str = ""
    perhaps_rolled_back_by: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The committed updates in commit order, and the part of the range that is not decided yet."""

    updates: tuple[CommittedUpdate, ...]
    undecided: Bounds | None


def find_committed(
    decisions: DecisionLog, within: Bounds, *, run_id: str | None, update_id: str | None, watch: Watch
) -> Found:
    """The updates committed at lifecycle offsets `within`, only of this run and update where given."""
    found: dict[tuple[str, str], CommittedUpdate] = {}
    commits = Commits(lambda: (earlier.decision for earlier in decisions.before(start)))
    start = decisions.locate(within.first)
    decided_to = within.first
    for count, decided in enumerate(decisions.read(start)):
        if count % 1_000 == 0:
            watch("decisions", decided.stored.offset - start, decisions.bounds.end - start)
        decision = decided.decision
        decided_to = max(decided_to, decision.source.offset + 1)
        if decision.outcome is not Outcome.ACCEPTED or run_id not in (None, decision.run_id):
            continue
        if decision.record_type == "Commit":
            commits.committed(decision)
        if decision.record_type == "LearnerStarted":
            _undo(found, decision, commits.started(decision), decided.stored.place)
        else:
            _note(found, decided.stored.offset, decision, within, update_id)
    undecided = Bounds(decided_to, within.end) if decided_to < within.end else None
    return Found(tuple(found.values()), undecided)


def _note(
    found: dict[tuple[str, str], CommittedUpdate],
    offset: int,
    decision: Decision,
    within: Bounds,
    update_id: str | None,
) -> None:
    key = (decision.run_id, decision.update_id or "")
    if decision.record_type == "Commit" and decision.source.offset < within.end and update_id in (None, key[1]):
        learner = decision.learner.learner_id if decision.learner is not None else ""
        found[key] = CommittedUpdate(*key, learner, offset, decision.source.offset)
    elif decision.record_type == "RecordingSealed" and key in found:
        found[key].seals.append(offset)


def _undo(found: dict[tuple[str, str], CommittedUpdate], decision: Decision, undone: Undone, place: str) -> None:
    learner_id = decision.learner.learner_id if decision.learner is not None else ""
    for update in found.values():
        if update.run_id != decision.run_id or update.rolled_back_by:
            continue
        if undone.doubt and update.learner_id == learner_id:
            update.perhaps_rolled_back_by = place
        elif not undone.doubt and update.update_id in undone.ids:
            update.rolled_back_by = place
