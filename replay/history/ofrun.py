"""Whose a record is, by its key."""

from rollbook.processors.ledger.keys import POSITION, parse_key
from rollbook.replay.history.source import StoredRecord


def is_of_run(record: StoredRecord, run_id: str) -> bool:
    """By its key: the run's id, or in the ledger a list that begins with it; a partition's position is everybody's."""
    key = record.key or b""
    if key == run_id.encode():
        return True
    try:
        of, kind, _ = parse_key(key)
    except ValueError:
        return False
    return of == run_id or kind == POSITION
