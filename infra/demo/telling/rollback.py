"""What a roll-back took back, watched while the run is folded again: a decision names only the first of many. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rollbook.infra.looking.refold import Step
from rollbook.processors.ledger.store import Run
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import UpdateStatus

FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A roll-back in figures. `rows` were trained on by its updates; `became` are their states right after it, `now`
    those at the end of the run, with `forgotten` for rows that had been forgotten when it came."""

    updates: int
    policies: list[int]
    rows: int
    became: dict[str, int]
    now: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Noted:
    updates: int
    policies: list[int]
    became: dict[str, str]


class RollBacks:
    """Watches for roll-backs, and for what every update that stands trained on."""

    def __init__(self) -> None:
        self._trained: dict[str, tuple[str, ...]] = {}
        self._undone: list[_Noted] = []

    def after(self, step: Step) -> None:
        """Note a Commit, or the start of a learner that undid some."""
        decision = step.decision
        if decision.outcome is not Outcome.ACCEPTED:
            return
        if decision.record_type == "Commit" and decision.update_id is not None:
            self._trained[decision.update_id] = tuple(
                item.trajectory_id for item in decision.items if item.reason == "trained"
            )
        elif decision.record_type == "LearnerStarted":
            self._started(step.run)

    def _started(self, run: Run) -> None:
        undone = [name for name in self._trained if _is_undone(run, name)]
        if not undone:
            return
        before = {version for noted in self._undone for version in noted.policies}
        policies = {policy.version for policy in run.policies.values() if policy.orphaned} - before
        rows = [row for name in undone for row in self._trained.pop(name)]
        self._undone.append(_Noted(len(undone), sorted(policies), {row: _state(run, row) for row in rows}))

    @property
    def forgotten(self) -> list[str]:
        """Rows whose update was undone when they had been forgotten: nobody trains on them any more."""
        return [row for noted in self._undone for row, state in noted.became.items() if state == FORGOTTEN]

    @property
    def trained_twice(self) -> int:
        """Trajectories that more than one update trained on, of those that stand."""
        times = Counter(row for rows in self._trained.values() for row in rows)
        return sum(count > 1 for count in times.values())

    @property
    def trained_again(self) -> str | None:
        """A trajectory that came back and was trained on again."""
        standing = {row for rows in self._trained.values() for row in rows}
        return next((row for noted in self._undone for row in noted.became if row in standing), None)

    def figures(self, states: Mapping[str, str]) -> list[RolledBack]:
        """Each roll-back, given the states of the trajectories at the end."""
        return [
            RolledBack(
                updates=noted.updates,
                policies=noted.policies,
                rows=len(noted.became),
                became=dict(sorted(Counter(noted.became.values()).items())),
                now=dict(sorted(Counter(states[row] for row in noted.became).items())),
            )
            for noted in self._undone
        ]


def _is_undone(run: Run, update_id: str) -> bool:
    update = run.updates.get(update_id)
    return update is not None and update.status is UpdateStatus.ROLLED_BACK


def _state(run: Run, trajectory_id: str) -> str:
    known = run.trajectories.get(trajectory_id)
    return FORGOTTEN if known is None else known.status.value
