"""Figures over a whole run, for people and alerts: at which lag rows were consumed, how far those at the drift gate had
drifted, and how much of that is there before the policy has changed. Nothing is decided by them.

They are tallies, since the trajectories that they count are forgotten, with names that begin with `figure: `. `SINCE`
has the sequence of the first decision that is counted, `THROUGH` that of the last one that was looked at: a ledger that
an earlier rollbook began, or had in between, has counted less than the log says. What one in between did not count is
seen by the gap, and the figures begin anew. An audit holds figures against each other only where both were counted from
the same decision on, to the end.

Figures that a later version adds come with another name of `THROUGH`: then each version sees what the other did not
count.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rollbook.processors.ledger.store import Run
from rollbook.schemas.records.decision import Tally
from rollbook.schemas.records.ledger import TrajectoryState
from rollbook.schemas.types import INT63_MAX

FIGURE = "figure: "
SINCE = f"{FIGURE}since decision"
THROUGH = f"{FIGURE}through decision"
CONSUMED = f"{FIGURE}consumed at lag "
ADMITTED = f"{FIGURE}admitted with drift of "
REFUSED = f"{FIGURE}refused with drift of "
ROWS = f"{FIGURE}rows judged at lag 0 of version "
DRIFT = f"{FIGURE}drift at lag 0 in 1e-9 nats of version "

BOUNDS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Of the histogram of drift, in nats; each bin has its upper bound, and the last none."""
BINS = (*(f"up to {bound:g}" for bound in BOUNDS), f"above {BOUNDS[-1]:g}")
FARTHEST = 1_000
"""Of a lag: what is observed may be of any, and a name each must not be."""
MOST_VERSIONS = 64
"""Whose drift at lag 0 is kept."""
_NANO = 1_000_000_000
_MOST_NATS = 1_000.0


def is_figure(name: str) -> bool:
    """Whether a tally is one of these."""
    return name.startswith(FIGURE)


def count_consumed(run: Run, lags: Iterable[int | None]) -> None:
    """Rows of a Commit, by the lag that they were admitted or reserved at. What has none is told by the difference to
    all that was consumed: also what an update is found to have trained on only later."""
    _add(run, Counter(f"{CONSUMED}{max(-1, min(lag, FARTHEST))}" for lag in lags if lag is not None))


@dataclass(slots=True)
class AtTheGate:
    """Rows that an Admit has judged for the first time: admitted, or refused for their drift."""

    names: Counter[str] = field(default_factory=Counter)

    def take(self, run: Run, row: TrajectoryState, lag: int, ratio: float, *, admitted: bool) -> None:
        """Count a row."""
        self.names[f"{ADMITTED if admitted else REFUSED}{BINS[bisect_left(BOUNDS, ratio)]}"] += 1
        version = row.policies[0].version
        if lag == 0 and version >= run.head.floor:
            # Whole billionths: a sum of floats would depend on the order of the rows.
            self.names[f"{ROWS}{version}"] += 1
            self.names[f"{DRIFT}{version}"] += round(min(ratio, _MOST_NATS) * _NANO)

    def count(self, run: Run) -> None:
        """Keep what was counted."""
        _add(run, self.names)


def looked_at(run: Run) -> None:
    """Note that all there is to count of the decision under way was counted."""
    if SINCE in run.tallies and not _begun_anew_behind_a_gap(run):
        _put(run, THROUGH, run.head.sequence + 1)


def versions(run: Run) -> set[int]:
    """Those whose drift at lag 0 is kept."""
    return {int(tally.name.removeprefix(ROWS)) for tally in run.tallies.values() if tally.name.startswith(ROWS)}


def _add(run: Run, names: Counter[str]) -> None:
    if not names:
        return
    _begun_anew_behind_a_gap(run)
    if SINCE not in run.tallies:
        _put(run, SINCE, run.head.sequence + 1)
        _put(run, THROUGH, run.head.sequence)
    arrived = any(name.startswith(ROWS) and name not in run.tallies for name in names)
    for name in sorted(names):
        known = run.tallies.get(name)
        _put(run, name, min(INT63_MAX, names[name] + (known.count if known else 0)))
    for old in _outdated(run) if arrived else ():
        run.tallies.drop(f"{ROWS}{old}")
        run.tallies.drop(f"{DRIFT}{old}")


def _put(run: Run, name: str, count: int) -> None:
    run.tallies.put(name, Tally.trusted(name=name, count=count))


def _begun_anew_behind_a_gap(run: Run) -> bool:
    through = run.tallies.get(THROUGH)
    if through is not None and through.count == run.head.sequence:
        return False
    for tally in run.tallies.values():
        if is_figure(tally.name):
            run.tallies.drop(tally.name)
    return True


def _outdated(run: Run) -> list[int]:
    kept = sorted(versions(run))
    newest = set(kept[-MOST_VERSIONS:])
    return [version for version in kept if version < run.head.floor or version not in newest]
