"""The decisions of a run: which ones are asked for, read from the end or followed as they are committed."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice

from rollbook.infra.looking.place import Place
from rollbook.processors.reasons import Reason
from rollbook.replay.history.decisions import Decided
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.registry import LIFECYCLE
from rollbook.schemas.text import visible

_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a decision must be to be shown; what is left out fits all, of several reasons, outcomes or types any."""

    trajectory: str | None = None
    update: str | None = None
    reasons: frozenset[str] = field(default_factory=frozenset)
    outcomes: frozenset[Outcome] = field(default_factory=frozenset)
    types: frozenset[str] = field(default_factory=frozenset)

    @property
    def all(self) -> bool:
        """Whether every decision is wanted."""
        return self == Wanted()

    def fits(self, decision: Decision) -> bool:
        """Whether the decision is one of them. A mass change names its first 100 ids only."""
        return (
            (self.trajectory is None or self.trajectory in _trajectories(decision))
            and (self.update is None or self.update in _updates(decision))
            and (not self.reasons or not self.reasons.isdisjoint(_reasons(decision)))
            and (not self.outcomes or decision.outcome in self.outcomes)
            and (not self.types or decision.record_type in self.types)
        )


def wanted(
    trajectory: str | None,
    update: str | None,
    reasons: Iterable[str],
    outcomes: Iterable[Outcome],
    types: Iterable[str],
) -> Wanted:
    """The filter. Raises BadInput for a reason or a type that does not exist."""
    return Wanted(
        trajectory,
        update,
        frozenset(_known("reason", reason, [one.value for one in Reason]) for reason in reasons),
        frozenset(outcomes),
        frozenset(_known("record type", name, [model.__name__ for model in LIFECYCLE]) for name in types),
    )


def _known(what: str, name: str, names: list[str]) -> str:
    if name in names:
        return name
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise BadInput(f"'{visible(name)}' is no {what}: {hint}docs/reference lists them all")


def last(place: Place, limit: int, which: Wanted, end: int | None = None) -> list[Decided]:
    """The last decisions of the run that are wanted, read from the end backwards: several runs share a partition."""
    known = place.decisions()
    backwards = known.before(known.bounds.end if end is None else end)
    return list(islice(_of_run(place, backwards, which), limit))[::-1]


def every(place: Place, which: Wanted) -> Iterator[Decided]:
    """Those that are wanted, from the first."""
    return _of_run(place, place.decisions().read(), which)


def follow(
    place: Place, which: Wanted, limit: int | None, pause: Callable[[float], None] = time.sleep
) -> Iterator[Decided]:
    """The last `limit` of those that are wanted (None: all), then each when it is committed; never ends."""
    bounds = place.decisions().bounds
    start = bounds.first if limit is None else bounds.end
    if limit is not None:
        yield from last(place, limit, which, bounds.end)
    while True:
        known = place.decisions()
        if start < known.bounds.end:
            yield from _of_run(place, known.read(start), which)
            start = known.bounds.end
        pause(_PAUSE_S)


def count(place: Place) -> int:
    """How many decisions the run has: the sequence of its last one."""
    newest = last(place, 1, Wanted())
    return newest[0].decision.sequence if newest else 0


def _of_run(place: Place, decided: Iterable[Decided], which: Wanted) -> Iterator[Decided]:
    return (one for one in decided if one.decision.run_id == place.run_id and which.fits(one.decision))


def _trajectories(decision: Decision) -> set[str]:
    named = {item.trajectory_id for item in decision.items}
    named.update(fact.subject_id for fact in decision.released)
    named.update(name for change in decision.mass_changes for name in change.first_ids)
    if decision.subject is not None and decision.subject.kind == "trajectory":
        named.add(decision.subject.id)
    return named


def _updates(decision: Decision) -> set[str]:
    named = {name for change in decision.mass_changes for name in change.first_ids if "updates" in change.predicate}
    return named if decision.update_id is None else {decision.update_id, *named}


def _reasons(decision: Decision) -> set[str]:
    return {decision.reason, *(item.reason for item in decision.items), *(fact.reason for fact in decision.released)}
