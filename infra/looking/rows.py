"""The trajectories that one update asked for, and what became of each in it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rollbook.infra.looking.trajectory import FORGOTTEN
from rollbook.processors.ledger.store import Run
from rollbook.processors.lifecycle import NONE
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.records.ledger import UpdateState, UpdateStatus
from rollbook.schemas.records.update import Commit

REFUSED, ROLLED_BACK = "refused", "rolled_back"
_PASSES = (Reason.OK, Reason.RESERVED, Reason.IDEMPOTENT_RETRY)
_GATES = ("Reserve", "Admit")
_ENDS = ("Commit", "Abort", "LeaseExpired")


@dataclass(frozen=True, slots=True)
class Row:
    """A trajectory of an update. `fate` is what became of it there last: reserved while it is held, refused, trained,
    dropped, released, rolled_back. `refused` is the last gate that it failed, `state` its state now."""

    trajectory_id: str
    group_id: str = ""
    fate: str = REFUSED
    refused: str = ""
    dropped: str = ""
    held: bool = False
    admitted: bool = False
    lag: int | None = None
    freshness: str | None = None
    mean_abs_log_ratio: float | None = None
    generated_offset: int | None = None
    reward_offset: int | None = None
    raw_reward: float | None = None
    state: str = NONE


class Rows:
    """The rows of an update, in the order in which it asked for them."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    def decided(self, decision: Decision) -> None:
        """Take a decision of the update."""
        for item in decision.items:
            row = _measured(self._row(item.trajectory_id), item)
            if decision.record_type in _ENDS:
                row = replace(row, fate=item.reason)
            elif decision.record_type in _GATES and item.reason not in _PASSES:
                row = replace(row, refused=item.reason)
            elif decision.record_type == "Admit":
                row = replace(row, admitted=True)
            self._rows[item.trajectory_id] = row

    def changed(self, before: UpdateState | None, now: UpdateState | None, decision: Decision, run: Run) -> None:
        """Take a change of what the update holds, also one that came with others and names no row."""
        holds = set() if now is None else {*now.held, *now.trained}
        held = set() if before is None else set(before.held)
        told = {item.trajectory_id for item in decision.items}
        for name in sorted(held - holds):
            if decision.record_type == "Admit":
                self._rows[name] = replace(self._row(name), fate=REFUSED)
            elif name not in told:
                self._rows[name] = replace(self._row(name), fate=Reason.RELEASED.value)
        for name in () if now is None else now.held:
            self._rows[name] = replace(self._row(name), fate=Reason.RESERVED.value)
        before_trained = () if before is None else before.trained
        for name in () if now is None else set(now.trained).difference(before_trained):  # its reward came late
            self._rows[name] = replace(self._row(name), fate=Reason.TRAINED.value)
        if now is not None and now.status is UpdateStatus.ROLLED_BACK and before is not None:
            for name in before.trained:
                self._rows[name] = replace(self._row(name), fate=ROLLED_BACK)
        for name in sorted(holds):
            known = run.trajectories.get(name)
            group_id = self._row(name).group_id if known is None else known.group_id
            self._rows[name] = replace(self._row(name), held=True, group_id=group_id)

    def committed(self, commit: Commit) -> None:
        """Take the trainer's reasons for what it dropped."""
        for drop in commit.dropped:
            told = f"{drop.reason}, {drop.disposition.value}"
            self._rows[drop.trajectory_id] = replace(self._row(drop.trajectory_id), dropped=told)

    def groups(self) -> set[str]:
        """The groups of what was ever held."""
        return {row.group_id for row in self._rows.values() if row.held and row.group_id}

    def now(self, run: Run) -> tuple[Row, ...]:
        """The rows, each with the trajectory's state at the end of the log."""
        return tuple(replace(row, state=_state(row, run)) for row in self._rows.values())

    def _row(self, trajectory_id: str) -> Row:
        return self._rows.get(trajectory_id) or Row(trajectory_id)


def with_rewards(rows: Iterable[Row], rewards: dict[tuple[int, str], float]) -> tuple[Row, ...]:
    """The rows with their raw rewards, which are found by offset and trajectory."""
    return tuple(replace(row, raw_reward=rewards.get((row.reward_offset or 0, row.trajectory_id))) for row in rows)


def _measured(row: Row, item: ItemDecision) -> Row:
    if item.generated_offset is not None:
        row = replace(row, generated_offset=item.generated_offset, reward_offset=item.reward_offset)
    if item.lag is not None:
        row = replace(row, lag=item.lag, freshness=item.freshness or row.freshness)
    if item.mean_abs_log_ratio is not None:
        row = replace(row, mean_abs_log_ratio=item.mean_abs_log_ratio)
    return row


def _state(row: Row, run: Run) -> str:
    trajectory = run.trajectories.get(row.trajectory_id)
    if trajectory is not None:
        return trajectory.status.value
    return NONE if row.generated_offset is None else FORGOTTEN
