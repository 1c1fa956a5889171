"""Which committed updates a later start of their learner undid. Pure.

A decision names a hundred of them at most, and a count and a digest of all. Since a learner's weights are those of a
checkpoint, what a start undoes is always the end of the learner's standing commits in commit order: so the last `count`
of them, and the digest says whether the decisions read are the whole story.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from rollbook.processors.ledger.verdict import UPDATES_ROLLED_BACK
from rollbook.schemas.digests import digest_of_digests
from rollbook.schemas.records.decision import Decision, MassChange, Outcome

Key = tuple[str, str]
"""Run and learner."""


@dataclass(slots=True)
class _Standing:
    """A learner's commits that stand, in commit order, of those read so far; and how many of the earlier ones, which
    were not read, have been undone since."""

    ids: list[str] = field(default_factory=list)
    earlier_undone: int = 0


@dataclass(frozen=True, slots=True)
class Undone:
    """The updates that a start undid. In `doubt` they may be others of the same learner: their digest is not the
    decision's."""

    ids: frozenset[str]
    doubt: bool


class Commits:
    """Follows decisions in order. `earlier` gives those before the first one followed, the latest first; it is asked
    only when a start undid more than a decision names, and more than was followed."""

    def __init__(self, earlier: Callable[[], Iterator[Decision]]) -> None:
        self._earlier = earlier
        self._learners: dict[Key, _Standing] = {}

    def committed(self, decision: Decision) -> None:
        """Note an accepted Commit."""
        self._of(decision).ids.append(decision.update_id or "")

    def started(self, decision: Decision) -> Undone:
        """What an accepted LearnerStarted undid."""
        change = _rolled_back(decision)
        if change is None:
            return Undone(frozenset(), doubt=False)
        standing = self._of(decision)
        ids, whole = (change.first_ids, True) if _names_all(change) else self._last(decision, change.count)
        undone = frozenset(ids)
        doubt = whole and digest_of_digests(sorted(undone)) != change.digest
        kept = [name for name in standing.ids if name not in undone]
        standing.earlier_undone += len(undone) - (len(standing.ids) - len(kept))
        standing.ids = kept
        return Undone(undone, doubt)

    def _of(self, decision: Decision) -> _Standing:
        return self._learners.setdefault(_key(decision), _Standing())

    def _last(self, decision: Decision, count: int) -> tuple[list[str], bool]:
        """The learner's last `count` standing commits, and whether there are as many in the log."""
        standing = self._of(decision)
        missing = max(count - len(standing.ids), 0)
        before = list(islice(self._before(_key(decision), standing.earlier_undone), missing))
        return [*reversed(before), *standing.ids][-count:], len(before) == missing

    def _before(self, key: Key, undone: int) -> Iterator[str]:
        """A learner's commits before the first decision followed, the latest first, without those undone: going
        backwards, each start says how many of the commits before it are passed over."""
        for decision in self._earlier():
            if decision.outcome is not Outcome.ACCEPTED or _key(decision) != key:
                continue
            if decision.record_type == "LearnerStarted":
                change = _rolled_back(decision)
                undone += change.count if change is not None else 0
            elif decision.record_type == "Commit" and undone:
                undone -= 1
            elif decision.record_type == "Commit":
                yield decision.update_id or ""


def _key(decision: Decision) -> Key:
    return decision.run_id, decision.learner.learner_id if decision.learner is not None else ""


def _rolled_back(decision: Decision) -> MassChange | None:
    return next((change for change in decision.mass_changes if change.predicate == UPDATES_ROLLED_BACK), None)


def _names_all(change: MassChange) -> bool:
    return change.count == len(change.first_ids)
