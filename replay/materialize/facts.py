"""Records of the log as evidence: read at their offset, held against the decision that vouches for their bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rollbook.replay.history.decisions import Decided, DecisionLog
from rollbook.replay.history.source import LogSource, OutOfRange, StoredRecord
from rollbook.replay.materialize.provenance import Position, UsedDecision, UsedRecord
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.records.common import Lifecycle

R = TypeVar("R", bound=Lifecycle)


@dataclass(frozen=True, slots=True)
class Fact(Generic[R]):
    """A decided lifecycle record. `used` is what the provenance says of it."""

    record: R
    place: str
    used: UsedRecord


class FactReader:
    """Reads facts of one partition of the lifecycle topic."""

    def __init__(self, log: LogSource, topic: str, decisions: DecisionLog) -> None:
        self._log = log
        self._topic = topic
        self._decisions = decisions

    def at(self, model: type[R], offsets: Iterable[int]) -> dict[int, Fact[R]]:
        """The facts at these offsets, whose decisions are looked up. Raises CannotWrite."""
        wanted = sorted(set(offsets))
        return self.of(model, self._decisions.of(wanted), wanted)

    def of(self, model: type[R], decided: Iterable[Decided], offsets: Iterable[int]) -> dict[int, Fact[R]]:
        """The facts at these offsets, of decisions at hand. Raises CannotWrite."""
        wanted = sorted(set(offsets))
        by_source = {found.decision.source.offset: found for found in decided}
        facts: dict[int, Fact[R]] = {}
        try:
            for stored in self._log.read_at(self._topic, self._decisions.partition, wanted):
                found = by_source.get(stored.offset)
                if found is None:
                    raise CannotWrite(
                        NotWritten.RECORD_GONE, f"{stored.place} has no decision in {self._decisions.topic}"
                    )
                facts[stored.offset] = _fact(model, stored, found)
        except OutOfRange as gone:
            raise CannotWrite(NotWritten.RECORD_GONE, str(gone)) from None
        return facts


def position_of(stored: StoredRecord) -> Position:
    """A record's position as the provenance has it."""
    return Position(topic=stored.topic, partition=stored.partition, offset=stored.offset, sha256=stored.sha256)


def _fact(model: type[R], stored: StoredRecord, decided: Decided) -> Fact[R]:
    decision = decided.decision
    if stored.sha256 != decision.source.sha256:
        raise CannotWrite(
            NotWritten.DISAGREEMENT,
            f"{stored.place} has sha256 {stored.sha256}, its decision {decided.stored.place} is of a record with "
            f"{decision.source.sha256}",
        )
    try:
        record = decode_as(model, stored.value or b"")
    except (UndecodableRecord, ContractViolation) as error:
        raise CannotWrite(
            NotWritten.DISAGREEMENT, f"{stored.place} is no {model.__name__} ({error}), says {decided.stored.place}"
        ) from None
    used = UsedRecord(
        record_type=model.__name__,
        position=position_of(stored),
        decision=UsedDecision(
            position=position_of(decided.stored),
            sequence=decision.sequence,
            outcome=decision.outcome.value,
            reason=decision.reason,
            chain=decision.chain,
        ),
    )
    return Fact(record, stored.place, used)
