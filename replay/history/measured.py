"""A container file that tells what its blocks would unpack to before whoever reads it unpacks them whole."""

import zlib
from typing import IO

from rollbook.schemas.errors import BadInput

MOST_BYTES = 64 * 1024 * 1024
"""A block of ours unpacks to 256 KiB and one record, which is at most 8 MiB: more was made to fill memory."""
_NO_BLOCK = 16
"""Counts, sizes and marks between the blocks are read in pieces of at most so many bytes."""


class Measured:
    """The file as a reader of containers wants it. From `begin` on each block that it hands out was unpacked in pieces
    first, and kept nothing of. Raises BadInput for one above the bound."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        self._measures = False

    def begin(self) -> None:
        """The header was read; what follows are blocks."""
        self._measures = True

    def read(self, size: int) -> bytes:
        at = self._file.tell()
        data = self._file.read(size)
        if self._measures and len(data) > _NO_BLOCK and _unpacks_to_more(data):
            raise BadInput(
                f"{self._name} has a block at byte {at:,} that unpacks to more than {MOST_BYTES // 1024**2} MiB, "
                "which no export has: do not trust the file, and export the history again"
            )
        return data

    def tell(self) -> int:
        return self._file.tell()


def _unpacks_to_more(data: bytes) -> bool:
    piece, inflater, left = 1024 * 1024, zlib.decompressobj(-zlib.MAX_WBITS), MOST_BYTES
    while data and left >= 0 and not inflater.eof:  # fastavro leaves a piece of the checksum behind it
        try:
            left -= len(inflater.decompress(data, piece))
        except zlib.error:
            return False  # no block, or a changed one: its reader says so
        data = inflater.unconsumed_tail
    return left < 0
