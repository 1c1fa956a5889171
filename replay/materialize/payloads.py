"""Reads payloads by their references, verified against them, and keeps what the provenance says of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollbook.replay.history.source import LogSource, StoredRecord
from rollbook.replay.materialize.facts import position_of
from rollbook.replay.materialize.provenance import Position
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.schemas.errors import BadInput
from rollbook.schemas.payload_io import PayloadCorrupt, join, place_of
from rollbook.schemas.records.common import PayloadRef

_Chunks = Mapping[int, StoredRecord]


@dataclass(frozen=True, slots=True)
class PayloadBytes:
    """A payload, whole and as its reference describes it."""

    data: bytes
    place: str
    chunks: tuple[Position, ...]


def read_payloads(log: LogSource, refs: Sequence[PayloadRef]) -> list[PayloadBytes]:
    """The payloads in the order of their references, each partition read once. Raises CannotWrite."""
    partitions = sorted({(ref.topic, ref.partition) for ref in refs})
    read = {partition: _read_partition(log, partition, refs) for partition in partitions}
    return [_payload(ref, read[ref.topic, ref.partition]) for ref in refs]


def _read_partition(log: LogSource, partition: tuple[str, int], refs: Sequence[PayloadRef]) -> _Chunks:
    offsets = [offset for ref in refs if (ref.topic, ref.partition) == partition for offset in ref.offsets]
    try:
        return {stored.offset: stored for stored in log.read_at(*partition, offsets)}
    except BadInput as gone:  # not retained, or the topic itself is gone
        raise CannotWrite(NotWritten.PAYLOAD_GONE, f"payload {gone}") from None


def _payload(ref: PayloadRef, chunks: _Chunks) -> PayloadBytes:
    stored = [chunks[offset] for offset in ref.offsets]
    try:
        data = join([chunk.value or b"" for chunk in stored], ref)
    except PayloadCorrupt as corrupt:
        raise CannotWrite(NotWritten.PAYLOAD_CORRUPT, str(corrupt)) from None
    return PayloadBytes(data, place_of(ref), tuple(position_of(chunk) for chunk in stored))
