"""The limits of what is bad: one record that cannot be decided is a dead letter, nothing but such records is a fault.

A client of another project that writes to the topic, or one that partitions by another rule, would otherwise fill the
log unnoticed for weeks. The processor then stops, with what it has decided committed, and says where; started again it
goes on behind that place and counts from nought, so a supervisor that restarts it only slows the flood down.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from rollbook.processors.host.errors import HostStopped
from rollbook.processors.ledger.fold import Folded
from rollbook.schemas.records.decision import Decision, Outcome

_BAD = frozenset({Outcome.UNDECODABLE, Outcome.INVALID})


@dataclass(frozen=True, slots=True)
class PoisonLimits:
    """Of one partition; 0 lifts a limit."""

    consecutive: int = 1_000
    """So many records in a row that are undecodable or invalid."""
    ratio: float = 0.5
    """More than this share of the last `window` records."""
    window: int = 2_000


NO_LIMITS = PoisonLimits(consecutive=0, ratio=0.0)


@dataclass(slots=True)
class _Seen:
    """What was decided in one partition. Only bad records cost more than being counted."""

    records: int = 0
    in_a_row: int = 0
    bad: deque[int] = field(default_factory=deque)
    """The numbers of the bad records of the window."""


class Poison:
    """Counts, by partition, what was decided and is committed."""

    def __init__(self, limits: PoisonLimits, topic: str) -> None:
        self._limits = limits
        self._topic = topic
        self._seen: defaultdict[int, _Seen] = defaultdict(_Seen)

    def forget(self, partition: int) -> None:
        """The partition was released: who has it next counts anew."""
        self._seen.pop(partition, None)

    def judge(self, decided: Iterable[Folded]) -> None:
        """Count committed decisions, in order. Raises `HostStopped` at the first that is one too many."""
        for folded in decided:
            decision = folded.decision
            seen = self._seen[decision.source.partition]
            seen.records += 1
            if decision.outcome not in _BAD:
                seen.in_a_row = 0
                continue
            problem = self._count(seen)
            if problem:
                raise HostStopped(self._message(decision, problem, folded.undecodable))

    def _count(self, seen: _Seen) -> str:
        """One more bad record; what is wrong where that is too many."""
        limits = self._limits
        seen.in_a_row += 1
        if 0 < limits.consecutive <= seen.in_a_row:
            return f"{seen.in_a_row:,} records in a row"
        if limits.ratio:
            seen.bad.append(seen.records)
            while seen.bad[0] <= seen.records - limits.window:
                seen.bad.popleft()
            if seen.records >= limits.window and len(seen.bad) > limits.ratio * limits.window:
                return f"{len(seen.bad):,} of the last {limits.window:,} records"
        return ""

    def _message(self, decision: Decision, problem: str, undecodable: str | None) -> str:
        source = decision.source
        why = undecodable or f"{decision.record_type}: {decision.reason} ({decision.detail})"
        return (
            f"{self._topic}:{source.partition}: {problem} up to offset {source.offset} are undecodable or invalid, the "
            f"last one: {why}; all of them are decided; find out who writes there (`rollbook dead-letters --partition "
            f"{source.partition}`, `rollbook decisions`), stop it, and start the processor again: it goes on behind "
            "that place"
        )
