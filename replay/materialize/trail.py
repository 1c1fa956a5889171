"""The decisions of one update before its commit, found by walking back from it: its records have no pointers to one
another, but every one of them lies between its first Reserve and its Commit (seals may follow)."""

from collections.abc import Iterator

from rollbook.replay.history.decisions import Decided, DecisionLog
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.schemas.records.decision import Decision, ItemDecision, Outcome

_OF_UPDATE = frozenset({"Reserve", "Admit", "UpdateStarted", "RecordingSealed"})
_NO_REFUSAL = frozenset({"reserved", "idempotent_retry", "ok", "not_reserved"})
"""Reasons of items that did not put a trajectory out of the update; `not_reserved` says that it was out already."""


class Trail:
    """Walks as far back as is asked for, and no further."""

    def __init__(self, decisions: DecisionLog, commit: Decided) -> None:
        self._commit = commit
        self._place = commit.stored.place
        self._earlier: Iterator[Decided] = decisions.before(commit.stored.offset)
        self._walked: list[Decided] = []

    def of_type(self, record_type: str) -> list[Decided]:
        """The accepted decisions of a record type walked over so far, in the order of the log."""
        return [found for found in reversed(self._walked) if found.decision.record_type == record_type]

    def to_start(self) -> Decided:
        """Walk to the accepted UpdateStarted, before which nothing of the update can be sealed."""
        started = self.of_type("UpdateStarted")
        while not started:
            self._step("its UpdateStarted")
            started = self.of_type("UpdateStarted")
        return started[0]

    def to_reservation(self) -> None:
        """Walk until every trajectory of the Commit was seen reserved; its Admit lies in between."""
        self.to_start()
        missing = {item.trajectory_id for item in self._commit.decision.items}
        for found in self._walked:
            missing -= _reserved(found.decision)
        while missing:
            missing -= _reserved(self._step(f"the Reserve of {min(missing)}"))

    def refusal_of(self, trajectory_id: str) -> tuple[Decided, ItemDecision] | None:
        """Walk until the decision of this update that refused a trajectory; None when it is not in the log."""
        for found in self._walked:
            if (item := _refused(found.decision, trajectory_id)) is not None:
                return found, item
        while True:
            try:
                decision = self._step("")
            except CannotWrite:
                return None
            if (item := _refused(decision, trajectory_id)) is not None:
                return self._walked[-1], item

    def _step(self, wanted: str) -> Decision:
        """The next earlier decision of the update."""
        ours = self._commit.decision
        for found in self._earlier:
            decision = found.decision
            same = (decision.run_id, decision.update_id) == (ours.run_id, ours.update_id)
            if same and decision.outcome is Outcome.ACCEPTED and decision.record_type in _OF_UPDATE:
                self._walked.append(found)
                return decision
        raise CannotWrite(
            NotWritten.RECORD_GONE,
            f"no decision before the Commit's ({self._place}) has {wanted}: the log is not whole",
        )


def _reserved(decision: Decision) -> set[str]:
    if decision.record_type != "Reserve":
        return set()
    # A retry of what was already held may come after its Admit: only the first Reserve is far enough back.
    return {item.trajectory_id for item in decision.items if item.reason == "reserved"}


def _refused(decision: Decision, trajectory_id: str) -> ItemDecision | None:
    if decision.record_type not in ("Reserve", "Admit"):
        return None
    return next(
        (item for item in decision.items if item.trajectory_id == trajectory_id and item.reason not in _NO_REFUSAL),
        None,
    )
