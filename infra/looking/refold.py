"""A run folded again from its first record, step by step, for whoever watches something in it. Pure.

The fold is deterministic, so what it does here is what the processor did; the last decision's chain vouches for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from rollbook.processors.ledger.fold import Ledger, NewerFoldVersion, SourceRecord
from rollbook.processors.ledger.store import Run
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode, unwrap
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision


@dataclass(frozen=True)
class Step:
    """A record just folded, its decision, and the run after it."""

    stored: StoredRecord
    decision: Decision
    run: Run

    @cached_property
    def record(self) -> Lifecycle | None:
        """The typed record; None where the contract refused it. Decoded only when asked for."""
        try:
            found = decode(self.stored.value or b"")
        except (UndecodableRecord, ContractViolation):
            return None
        return found if isinstance(found, Lifecycle) else None

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The record's fields as they lie in its bytes, also where the contract refused their values."""
        try:
            return unwrap(self.stored.value or b"").fields
        except UndecodableRecord:
            return {}

    def may_name(self, name: bytes) -> bool:
        """Whether the record's bytes contain a name: a record that does not need not be decoded."""
        return name in (self.stored.value or b"")


class Watch(Protocol):
    """Notes what concerns one thing."""

    def before(self, run: Run) -> None:
        """Look at the run as it is before the next record."""

    def after(self, step: Step) -> None:
        """Look at what the record changed."""


def refold(
    records: Iterable[StoredRecord], run_id: str, partition: int, topic_partitions: int, watches: Sequence[Watch]
) -> Run:
    """Fold a run's records of its partition, those of other runs left out: they do not touch it. The run at the end."""
    ledger = Ledger(partition, topic_partitions)
    run = ledger.run(run_id)
    key = run_id.encode()
    for stored in records:
        if stored.key != key:
            continue
        for watch in watches:
            watch.before(run)
        try:
            folded = ledger.fold(SourceRecord(stored.partition, stored.offset, stored.key, stored.value))
        except NewerFoldVersion as newer:
            raise BadInput(str(newer)) from None
        if folded.decision.run_id == run_id:  # a record under the run's key that is another's was not decided for it
            step = Step(stored, folded.decision, run)
            for watch in watches:
                watch.after(step)
        ledger.journal.keep()
    return run
