"""How a payload is cut into records and put together again, verified. Pure: its readers bring the chunks."""

import hashlib
from collections.abc import Sequence

from rollbook.infra.settings import PAYLOAD_MAX_BYTES
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PayloadRef

CHUNK_BYTES = PAYLOAD_MAX_BYTES
"""Bytes of all chunks but the last: the largest value that the topic admits."""


class PayloadCorrupt(BadInput):
    """Chunks that are not the payload that the reference describes."""

    def __init__(self, ref: PayloadRef, problem: str) -> None:
        self.ref = ref
        super().__init__(
            f"payload {place_of(ref)}: {problem}: what was computed from it is not to be trusted; discard its "
            "trajectory (payload_lost), or read from a copy of the topic that is whole"
        )


def place_of(ref: PayloadRef) -> str:
    """Where a payload lies, for people: topic:partition@offset, and how many more chunks."""
    more = f" and {len(ref.offsets) - 1} more" if len(ref.offsets) > 1 else ""
    return f"{ref.topic}:{ref.partition}@{ref.offsets[0]}{more}"


def split(data: bytes, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """The chunks of a payload, in order; an empty payload is refused, since a reference has at least one byte."""
    if not data:
        raise BadInput("a payload is empty: publish none instead of an empty one")
    return [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]


def join(chunks: Sequence[bytes], ref: PayloadRef) -> bytes:
    """The payload of chunks in the order of `ref.offsets`. Raises PayloadCorrupt when it is not the one described."""
    if len(chunks) != len(ref.offsets):
        raise PayloadCorrupt(ref, f"{len(chunks)} chunks where the reference names {len(ref.offsets)}")
    data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    if len(data) != ref.size:
        raise PayloadCorrupt(ref, f"{len(data)} bytes where the reference says {ref.size}")
    found = hashlib.sha256(data).hexdigest()
    if found != ref.sha256:
        raise PayloadCorrupt(ref, f"sha256 is {found}, the reference says {ref.sha256}")
    return data
