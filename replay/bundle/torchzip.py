"""The container of a `.pt` file: a zip of stored entries laid out exactly as torch lays it out.

Read by hand rather than by `zipfile`: one bounded pass, nothing inflated, nothing copied, and no tolerance (comments,
prefixes, duplicate names, compressed or overlapping entries) that would let two readers see two different tensors.
Written byte for byte as torch 2.13 writes it, so a bundle that is read and written again keeps its digests.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_DESCRIPTOR = struct.Struct("<4s3I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_STORED = 0
_UTF8_WITH_DESCRIPTOR = 0x0808
_UTF8_EMPTY = 0x0800
_FLAGS = (0, 0x0008, 0x0800, 0x0808)
"""A descriptor behind the data, names in UTF-8; encryption, patches and the rest are other people's zip files."""
_IS_FOLDER = 0x10
_MAX_ENTRIES = 16
MAX_STORAGE_BYTES = 0xFFFFFFFF
_ALIGNMENT = 64
_DESCRIPTOR_BYTES = (0, 12, 16, 20, 24)
"""What may follow an entry: nothing, or its checksum and sizes, with or without a signature, in two widths."""
# What torch's own hash of the fixed entry names of a one-tensor file comes to, as libstdc++ computes it.
_ENTRY_NAMES_HASH = "15728199511854643026"


class NotATensorFile(ValueError):
    """The bytes are not a `.pt` file of one plain tensor; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    data: memoryview


def read_entries(data: bytes) -> tuple[Entry, ...]:
    """The entries of the archive, each a view into `data`, checked against its CRC."""
    if len(data) < _END.size:
        raise NotATensorFile("shorter than the smallest zip archive (truncated?)")
    sig, disk, cd_disk, here, count, cd_size, cd_offset, comment = _END.unpack_from(data, len(data) - _END.size)
    if sig != b"PK\x05\x06" or comment or disk or cd_disk:
        raise NotATensorFile("no zip end record at its end (truncated, or not a .pt file)")
    if here != count or not 0 < count <= _MAX_ENTRIES:
        raise NotATensorFile(f"{count} zip entries where a tensor file has at most {_MAX_ENTRIES}")
    if cd_offset + cd_size > len(data) - _END.size:
        raise NotATensorFile("the zip directory lies outside the file")
    _check_tail(data, count, cd_size, cd_offset)
    found = list(_entries(data, count, cd_offset, cd_offset + cd_size))
    _check_layout(found, cd_offset)
    entries = tuple(entry for entry, _ in found)
    names = [entry.name for entry in entries]
    if len(set(names)) != len(names):
        raise NotATensorFile("two zip entries of one name")
    return entries


def _check_tail(data: bytes, count: int, cd_size: int, cd_offset: int) -> None:
    """Between the directory and the end there is nothing, or torch's record of the same in the format for large files,
    which other readers go by."""
    at = cd_offset + cd_size
    tail = data[at : len(data) - _END.size]
    if not tail:
        return
    if len(tail) != _END64.size + _LOCATOR64.size:
        raise NotATensorFile("bytes between the zip directory and the end of the file")
    record = _END64.unpack_from(tail)
    locator = _LOCATOR64.unpack_from(tail, _END64.size)
    if (record[0], *record[4:]) != (b"PK\x06\x06", 0, 0, count, count, cd_size, cd_offset):
        raise NotATensorFile("the two zip end records contradict one another")
    if record[1] != _END64.size - 12 or locator != (b"PK\x06\x07", 0, at, 1):
        raise NotATensorFile("the zip end locator is damaged")


def _check_layout(found: Sequence[tuple[Entry, range]], cd_offset: int) -> None:
    """One entry after the other from the first byte on, with room for nothing but what describes an entry."""
    at = 0
    for place in sorted((place for _, place in found), key=lambda place: place.start):
        if place.start - at not in ((0,) if at == 0 else _DESCRIPTOR_BYTES):
            raise NotATensorFile("zip entries overlap, or bytes lie between them")
        at = place.stop
    if cd_offset - at not in _DESCRIPTOR_BYTES:
        raise NotATensorFile("bytes between the zip entries and the directory")


def _entries(data: bytes, count: int, start: int, end: int) -> Iterator[tuple[Entry, range]]:
    at = start
    for _ in range(count):
        if at + _CENTRAL.size > end:
            raise NotATensorFile("the zip directory is cut short")
        head = _CENTRAL.unpack_from(data, at)
        sig, _, _, flags, method, _, _, crc, packed, size, name_size, extra, comment, disk, _, attributes, offset = head
        if sig != b"PK\x01\x02":
            raise NotATensorFile("the zip directory is damaged")
        if flags not in _FLAGS or disk or attributes & _IS_FOLDER:
            raise NotATensorFile("a zip entry that is encrypted, a folder, or on another disk")
        if method != _STORED or packed != size:
            raise NotATensorFile("a compressed zip entry; torch stores tensors plainly")
        raw_name = data[at + _CENTRAL.size : at + _CENTRAL.size + name_size]
        content = _content(data, raw_name, offset, size, crc, start)
        yield Entry(_decoded(raw_name), content.data), range(offset, content.end)
        at += _CENTRAL.size + name_size + extra + comment
    if at != end:
        raise NotATensorFile("the zip directory does not end where it says")


@dataclass(frozen=True, slots=True)
class _Content:
    data: memoryview
    end: int


def _content(data: bytes, name: bytes, offset: int, size: int, crc: int, limit: int) -> _Content:
    if offset + _LOCAL.size > limit:
        raise NotATensorFile("a zip entry lies outside the file")
    head = _LOCAL.unpack_from(data, offset)
    name_end = offset + _LOCAL.size + head[9]
    start = name_end + head[10]
    if head[0] != b"PK\x03\x04" or head[3] != _STORED or data[offset + _LOCAL.size : name_end] != name:
        raise NotATensorFile("a zip entry's own header contradicts the directory")
    if start + size > limit:
        raise NotATensorFile("a zip entry runs past the end of the file")
    content = memoryview(data)[start : start + size]
    if zlib.crc32(content) != crc:
        raise NotATensorFile("a zip entry's checksum does not match its bytes")
    return _Content(content, start + size)


def _decoded(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise NotATensorFile("a zip entry's name is not UTF-8") from None


def write_entries(root: str, pickle: bytes, storage: bytes | memoryview) -> bytes:
    """The archive that `torch.save(tensor, "<root>.pt")` writes for this pickle program and storage."""
    contents: list[tuple[str, bytes | memoryview]] = [
        ("data.pkl", pickle),
        (".format_version", b"1"),
        (".storage_alignment", str(_ALIGNMENT).encode()),
        ("byteorder", b"little"),
        ("data/0", storage),
        ("version", b"3\n"),
    ]
    checksums = [zlib.crc32(content) for _, content in contents]
    contents.append((".data/serialization_id", _serialization_id(checksums)))
    checksums.append(zlib.crc32(contents[-1][1]))
    out: list[bytes | memoryview] = []
    directory: list[bytes] = []
    cursor = 0
    for (leaf, content), crc in zip(contents, checksums, strict=True):
        name = f"{root}/{leaf}".encode()
        flags = _UTF8_WITH_DESCRIPTOR if len(content) else _UTF8_EMPTY
        padding = -(cursor + _LOCAL.size + len(name) + 4) % _ALIGNMENT
        extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
        local = _LOCAL.pack(b"PK\x03\x04", 0, flags, _STORED, 0, 0, 0, 0, 0, len(name), len(extra))
        tail = _DESCRIPTOR.pack(b"PK\x07\x08", crc, len(content), len(content)) if len(content) else b""
        size = len(content)
        directory.append(
            _CENTRAL.pack(b"PK\x01\x02", 0, 0, flags, 0, 0, 0, crc, size, size, len(name), 0, 0, 0, 0, 0, cursor) + name
        )
        out += [local, name, extra, content, tail]
        cursor += len(local) + len(name) + len(extra) + size + len(tail)
    return b"".join([*out, *directory, *_end(len(directory), sum(map(len, directory)), cursor)])


def _end(count: int, size: int, offset: int) -> Iterator[bytes]:
    yield _END64.pack(b"PK\x06\x06", _END64.size - 12, 0x031E, 45, 0, 0, count, count, size, offset)
    yield _LOCATOR64.pack(b"PK\x06\x07", 0, offset + size, 1)
    yield _END.pack(b"PK\x05\x06", 0, 0, count, count, size, offset, 0)


def _serialization_id(checksums: Sequence[int]) -> bytes:
    """torch's fingerprint of a file: the hash of its entry names, then its checksums folded one into the other."""
    mask = (1 << 64) - 1
    seed = 0
    for crc in checksums:
        seed ^= (crc + 0x9E3779B9 + ((seed << 6) & mask) + (seed >> 2)) & mask
    return f"{_ENTRY_NAMES_HASH}{seed:020d}".encode()
