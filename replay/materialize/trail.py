"""The decisions of one update before its commit, found by walking back from it: its records have no pointers to one
another, but every one of them lies between its first Reserve and its Commit (seals may follow).

In observe mode a Commit is a fact, also where nothing was reserved or started before it. Its decision then says so
(`violation`), and what is not there is not missing.
"""

from collections.abc import Iterator

from rollbook.replay.history.decisions import Decided, DecisionLog
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.schemas.records.decision import Decision, ItemDecision, Outcome

_OF_UPDATE = frozenset({"Reserve", "Admit", "UpdateStarted", "RecordingSealed"})
_FIRST = 1
"""Sequence of a run's first decision: nothing of the run lies before it."""
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

    def to_start(self) -> None:
        """Walk to the accepted UpdateStarted, before which nothing of the update can be sealed."""
        while not self.of_type("UpdateStarted") and self._step("its UpdateStarted") is not None:
            pass

    def to_reservation(self) -> None:
        """Walk until every trajectory of the Commit was seen reserved; its Admit lies in between."""
        self.to_start()
        missing = {item.trajectory_id for item in self._commit.decision.items}
        for found in self._walked:
            missing -= _reserved(found.decision)
        while missing and (decision := self._step(f"the Reserve of {min(missing)}")) is not None:
            missing -= _reserved(decision)

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
            if decision is None:
                return None
            if (item := _refused(decision, trajectory_id)) is not None:
                return self._walked[-1], item

    def _step(self, wanted: str) -> Decision | None:
        """The next earlier decision of the update; None when there is none, and need not be."""
        ours = self._commit.decision
        for found in self._earlier:
            decision = found.decision
            same = (decision.run_id, decision.update_id) == (ours.run_id, ours.update_id)
            if same and decision.outcome is Outcome.ACCEPTED and decision.record_type in _OF_UPDATE:
                self._walked.append(found)
                return decision
            if decision.run_id == ours.run_id and decision.sequence == _FIRST:
                break
        if ours.violation:
            return None
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
