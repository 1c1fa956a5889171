"""What is noted of one trajectory while its run is derived, and the fate that follows from it."""

from collections.abc import Iterator
from dataclasses import dataclass

from rollbook.processors.ledger.store import behavior_version
from rollbook.processors.reasons import Reason
from rollbook.replay.survivorship.fates import OF_REASON, REFUSED, Fate, Part
from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus
from rollbook.schemas.records.rollout import Purpose

Task = tuple[str, str]
"""Data set and name."""

_BY_STATE = {
    TrajectoryStatus.DISPATCHED: Fate.IN_FLIGHT,
    TrajectoryStatus.GENERATED: Fate.UNREWARDED,
    TrajectoryStatus.GENERATION_FAILED: Fate.GENERATION_FAILED,
    TrajectoryStatus.REWARDED: Fate.WAITING,
    TrajectoryStatus.REWARD_FAILED: Fate.REWARD_FAILED,
    TrajectoryStatus.RESERVED: Fate.RESERVED,
    TrajectoryStatus.CONSUMED: Fate.CONSUMED,
    TrajectoryStatus.DISCARDED: Fate.DISCARDED,
    TrajectoryStatus.QUARANTINED: Fate.QUARANTINED,
    TrajectoryStatus.OFFLINE: Fate.EXPIRED,
}
_HELD = (TrajectoryStatus.RESERVED, TrajectoryStatus.CONSUMED)
_BY_THE_GATE = (Reason.POLICY_DRIFT, Reason.EMPTY_ACTION_MASK)


@dataclass(slots=True)
class Row:
    """`status` None: the ledger never took it in. `cause`: why it failed, was taken out or not taken in. `refused`: the
    last answer of a gate, until an update takes it."""

    group_id: str
    version: int
    status: TrajectoryStatus | None = None
    purpose: Purpose = Purpose.TRAIN
    task: Task | None = None
    length: int | None = None
    reward: float | None = None
    cause: str = ""
    refused: str = ""
    update_id: str = ""
    is_dispatched: bool = False
    was_reserved: bool = False
    was_admitted: bool = False
    was_trained: bool = False
    is_undone: bool = False
    is_stale: bool = False

    def move(self, state: TrajectoryState, record_type: str) -> None:
        """On to a state that the ledger has it in now."""
        if state.status is not self.status:
            self.cause = f"by {record_type}"
            self.is_undone = self.is_undone or self.status is TrajectoryStatus.CONSUMED
        if state.status in _HELD:
            self.refused, self.was_reserved = "", True
        if state.status is TrajectoryStatus.CONSUMED:
            self.was_trained, self.is_undone, self.update_id = True, False, state.update_id
        if state.admitted_ratio is not None:
            self.was_admitted = True
        self.version, self.purpose, self.status = behavior_version(state), state.purpose, state.status

    def undo_forgotten(self) -> None:
        """The update that trained on it is undone, and the ledger knows the row no more."""
        self.status, self.is_undone = TrajectoryStatus.OFFLINE, True

    def refuse(self, reason: str) -> None:
        """A gate's answer; what it leaves in its update, as where facts are taken, is not refused."""
        if reason in OF_REASON and self.status not in _HELD:
            self.refused = reason

    @property
    def fate(self) -> Fate:
        if self.status is None:
            return Fate.REFUSED_AT_ENTRY
        found = _BY_STATE[self.status]
        if found is Fate.CONSUMED:
            return found
        if self.purpose is Purpose.EVAL:
            return Fate.EVALUATION
        if found is Fate.QUARANTINED:
            return OF_REASON[self.refused] if self.cause == "by Admit" and self.refused in _BY_THE_GATE else found
        if found not in (Fate.WAITING, Fate.EXPIRED):
            return found
        if self.is_undone:
            return Fate.ROLLED_BACK
        if self.refused:
            return OF_REASON[self.refused]
        return Fate.WAITING_STALE if self.is_stale and found is Fate.WAITING else found

    @property
    def why(self) -> str:
        """What stands behind its fate; empty where the fate says it all."""
        found = self.fate
        if found in REFUSED and found is not Fate.REFUSED_AT_ENTRY:
            return self.refused
        return self.cause if found in _WITH_A_CAUSE else ""

    def parts(self) -> Iterator[Part]:
        """The parts of the rewarded that it belongs to."""
        if self.purpose is Purpose.EVAL:
            yield Part.EVALUATION
            return
        yield Part.ALL
        found = self.fate
        if found is Fate.CONSUMED:
            yield Part.CONSUMED
            return
        yield Part.ROLLED_BACK if self.was_trained else Part.NEVER_TRAINED
        if not self.was_trained:
            yield from (Part.REFUSED,) if found in REFUSED else ()
            yield from (Part.DISCARDED,) if found is Fate.DISCARDED else ()


_WITH_A_CAUSE = (
    Fate.GENERATION_FAILED,
    Fate.REWARD_FAILED,
    Fate.DISCARDED,
    Fate.QUARANTINED,
    Fate.REFUSED_AT_ENTRY,
)
