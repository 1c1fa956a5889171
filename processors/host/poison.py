"""The limits of what is bad: one record that cannot be decided is a dead letter, nothing but such records is a fault.

A client of another project that writes to the topic, or one that partitions by another rule, would otherwise fill the
log unnoticed for weeks. The processor then stops, with what it has decided committed, and says where; started again it
goes on behind that place and counts from nought, so a supervisor that restarts it only slows the flood down.
"""

from collections import deque
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
    """What was decided last in one partition."""

    in_a_row: int = 0
    bad: int = 0
    window: deque[bool] = field(default_factory=deque)


class Poison:
    """Counts, by partition, what was decided and is committed."""

    def __init__(self, limits: PoisonLimits, topic: str) -> None:
        self._limits = limits
        self._topic = topic
        self._seen: dict[int, _Seen] = {}

    def forget(self, partition: int) -> None:
        """The partition was released: who has it next counts anew."""
        self._seen.pop(partition, None)

    def judge(self, decided: Iterable[Folded]) -> None:
        """Count committed decisions, in order. Raises `HostStopped` at the first that is one too many."""
        for folded in decided:
            decision = folded.decision
            problem = self._count(decision)
            if problem:
                raise HostStopped(self._message(decision, problem, folded.undecodable))

    def _count(self, decision: Decision) -> str:
        limits, seen = self._limits, self._seen.setdefault(decision.source.partition, _Seen())
        is_bad = decision.outcome in _BAD
        seen.in_a_row = seen.in_a_row + 1 if is_bad else 0
        if 0 < limits.consecutive <= seen.in_a_row:
            return f"{seen.in_a_row:,} records in a row"
        if limits.ratio:
            seen.window.append(is_bad)
            seen.bad += is_bad
            if len(seen.window) > limits.window:
                seen.bad -= seen.window.popleft()
            if len(seen.window) == limits.window and seen.bad > limits.ratio * limits.window:
                return f"{seen.bad:,} of the last {limits.window:,} records"
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
