"""A fold's journal that also tells which trajectories a record changed, and what was last known of those that it made
the ledger forget: a decision names the first hundred of many only."""

from typing import Any

from rollbook.processors.ledger.table import Journal, Table
from rollbook.schemas.records.ledger import PolicyState, TrajectoryState


class Changes(Journal):
    """`trajectories` and `policies`: of the last record that was kept, each as it was before its last change in it."""

    def __init__(self) -> None:
        super().__init__()
        self.trajectories: dict[str, TrajectoryState | None] = {}
        self.policies: dict[int, PolicyState | None] = {}
        self._noted: dict[str, TrajectoryState | None] = {}
        self._policies: dict[int, PolicyState | None] = {}

    def note(self, table: Table[Any, Any], key: Any, before: Any) -> None:
        super().note(table, key, before)
        if table.model is TrajectoryState:
            self._noted[key] = before
        elif table.model is PolicyState:
            self._policies[key] = before

    def keep(self) -> None:
        super().keep()
        self.trajectories, self.policies = self._noted, self._policies
        self._noted, self._policies = {}, {}

    def undo(self, mark: int = 0) -> None:
        super().undo(mark)
        self._noted, self._policies = {}, {}
