"""Keys of the ledger topic: (run, kind, name) as a JSON list, so that no two can be confused."""

import json
from json.encoder import encode_basestring
from typing import Any

from rollbook.processors.ledger.store import Run
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.ledger import Position
from rollbook.schemas.types import Part

POSITION = "position"


def key_of(run_id: str, kind: str, name: str | int) -> bytes:
    """The key of a record of the ledger topic."""
    # A row has a key: put together by hand it costs a tenth of what an encoder does.
    third = encode_basestring(name) if isinstance(name, str) else str(name)
    return f"[{encode_basestring(run_id)},{encode_basestring(kind)},{third}]".encode()


def position_key(partition: int) -> bytes:
    """The key of a partition's `Position`; it belongs to no run."""
    return key_of("", POSITION, partition)


def parse_key(key: bytes) -> tuple[str, str, str | int]:
    """The (run, kind, name) of a key. Raises ValueError."""
    try:
        parsed = json.loads(key)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    match parsed:
        case [str(run_id), str(kind), str(name)] | [str(run_id), str(kind), int(name)]:
            return run_id, kind, name
    raise ValueError("no list of run, kind and name")


def restore_row(run: Run, kind: str, name: Any, value: bytes | None) -> None:
    """Put a record of the ledger topic back into its table, without a journal entry."""
    for table in run.tables():
        if table.kind == kind:
            row: Part | None = None if value is None else decode_as(table.model, value)
            table.assign(name, row)
            return
    raise ValueError(f"unknown kind {kind!r} in the ledger topic: it was written by another version of rollbook")


def decode_position(value: bytes) -> Position:
    """The `Position` in the bytes."""
    return decode_as(Position, value)
