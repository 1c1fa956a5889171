"""Whose a record is, by its key."""

from rollbook.processors.ledger.keys import POSITION, parse_key
from rollbook.replay.history.source import StoredRecord


def is_of_run(record: StoredRecord, run_id: str) -> bool:
    """By its key: the run's id, or in the ledger a list that begins with it; a partition's position is everybody's."""
    return _is_of(record, run_id, or_position=True)


def is_runs_own(record: StoredRecord, run_id: str) -> bool:
    """Whether there would be no such record without the run."""
    return _is_of(record, run_id, or_position=False)


def _is_of(record: StoredRecord, run_id: str, *, or_position: bool) -> bool:
    key = record.key or b""
    if key == run_id.encode():
        return True
    try:
        of, kind, _ = parse_key(key)
    except ValueError:
        return False
    return or_position if kind == POSITION else of == run_id
