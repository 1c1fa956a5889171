"""At which revision trajectories were last seen, from decisions and from the ledger topic."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus

MOST = 200_000
_GONE = frozenset(
    {
        TrajectoryStatus.CONSUMED.value,
        TrajectoryStatus.DISCARDED.value,
        TrajectoryStatus.QUARANTINED.value,
        TrajectoryStatus.OFFLINE.value,
        TrajectoryStatus.GENERATION_FAILED.value,
    }
)


class Revisions:
    """The live trajectories that were heard of, the newest ones where there are too many."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[int, str]] = OrderedDict()

    def note_items(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Take in the items of a decision as they lie in its record."""
        for item in items:
            if item["revision_after"] is not None:
                self._note(str(item["trajectory_id"]), int(item["revision_after"]), str(item["state_after"]))

    def note_states(self, states: Iterable[object]) -> None:
        """Take in states of the ledger topic; a decision that was read meanwhile may be newer."""
        for state in states:
            if isinstance(state, TrajectoryState):
                self._note(state.trajectory_id, state.revision, state.status.value)

    def of(self, trajectory_id: str) -> int:
        """The revision last seen, 0 for one never heard of."""
        return self._seen.get(trajectory_id, (0, ""))[0]

    def waits(self, trajectory_id: str) -> bool:
        """Whether it was last seen rewarded, so that its next revision is ours to make."""
        return self._seen.get(trajectory_id, (0, ""))[1] == TrajectoryStatus.REWARDED.value

    def _note(self, trajectory_id: str, revision: int, state: str) -> None:
        if revision < self.of(trajectory_id):
            return
        self._seen.pop(trajectory_id, None)
        if state not in _GONE:
            self._seen[trajectory_id] = (revision, state)
            if len(self._seen) > MOST:
                self._seen.popitem(last=False)
