"""What a fold writes: decisions, rows of the ledger and snapshots, as of a host that puts each record into a
transaction of its own.

Rows and snapshots are under the schemas that they had when the history was frozen: what a record gains later must leave
the rest of it as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rollbook.processors.freshness import snapshot
from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.processors.ledger.keys import key_of
from rollbook.schemas.codec import encoder
from rollbook.schemas.records.decision import FreshnessSnapshot
from rollbook.schemas.registry import LEDGER
from rollbook.schemas.types import Part
from rollbook.tests.frozen.schemas import schema_written
from rollbook.tests.frozen.table import Table

_WRITTEN: tuple[type[Part], ...] = (*LEDGER, FreshnessSnapshot)


@dataclass(slots=True)
class Written:
    """In their order; of a row key and value, each after whether there is one."""

    decisions: list[bytes] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    snapshots: list[bytes] = field(default_factory=list)


def schemas_of(table: Table, name: str) -> dict[str, str]:
    """Of rows and snapshots, by record: those of an entry, or today's where there is none."""
    kept: dict[str, str] | None = table.kept().get(name, {}).get("schemas")
    return kept or {model.__name__: schema_written(model) for model in _WRITTEN}


def written_by(ledger: Ledger, records: Iterable[SourceRecord], schemas: Mapping[str, str]) -> Written:
    """Fold records, and see what is written."""

    encoders: dict[type[Part], Callable[[Part], bytes]] = {
        model: encoder(model, schemas[model.__name__]) for model in _WRITTEN
    }

    def bytes_of(record: Part) -> bytes:
        return encoders[type(record)](record)

    found = Written()
    for record in records:
        folded = ledger.fold(record)
        found.decisions.append(folded.encoded)
        for table, key in ledger.journal.changes():
            row = table.get(key)
            found.rows += parts(key_of(table.run_id, table.kind, key), None if row is None else bytes_of(row))
        ledger.journal.keep()
        run = ledger.run(folded.decision.run_id)
        if run.head.config_version:
            found.snapshots.append(bytes_of(snapshot(run)))
    return found


def parts(key: bytes | None, value: bytes | None) -> Iterator[bytes]:
    """A record, so that none is another."""
    for part in (key, value):
        yield b"none" if part is None else b"some"
        yield part or b""
