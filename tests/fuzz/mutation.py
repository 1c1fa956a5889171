"""Changes of any bytes, with and without regard to what they say. Follows from the generator alone."""

import re
from collections.abc import Callable, Sequence
from random import Random

LONGEST = 1 << 18
"""What grows beyond is cut: longer input finds the same faults later."""
_NUMBERS = (
    b"0", b"-1", b"1", b"00", b"127", b"128", b"255", b"65535", b"65536", b"2147483647", b"2147483648", b"4294967296",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"1e400", b"1e-400", b"0.1", b"NaN",
    b"Infinity", b"-0", b"1_0", "٣".encode(), b"9" * 400,
)  # fmt: skip
_TEXTS = (
    b"", b"\x00", b"\n", b"\r\n", b"\t", b"\x1b[31m", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x01", b"\xed\xa0\x80",
    "\u202e".encode(), "é".encode(), "\U0001f600".encode(), "\u2028".encode(), b"%00", b"%s", b"../", b"/etc/passwd",
    b"null", b"true", b"[]", b"{}", b'""', b"\\u0000", b"\\ud800", b"[" * 3000, b'{"a":' * 1500, b"a" * 300, b"~", b"=",
    b":", b",", b"-", b"@", b"#", b'"', b"'", b";", b" ",
)  # fmt: skip
_DIGITS = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_CHUNK = (1, 1, 1, 2, 4, 8, 16, 64, 256, 1024)


def mutated(rng: Random, data: bytes, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """The input with one to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        data = rng.choice(_CHANGES)(rng, data, pool, words)
    return data[:LONGEST]


def _place(rng: Random, data: bytes) -> int:
    return rng.randint(0, len(data))


def _piece(rng: Random, data: bytes) -> tuple[int, int]:
    start = _place(rng, data)
    return start, min(len(data), start + rng.choice(_CHUNK))


def _flip(rng: Random, data: bytes, _: Sequence[bytes], __: Sequence[bytes]) -> bytes:
    if not data:
        return b"\x00"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _other_byte(rng: Random, data: bytes, _: Sequence[bytes], __: Sequence[bytes]) -> bytes:
    if not data:
        return bytes([rng.randrange(256)])
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))]) + data[at + 1 :]


def _cut(rng: Random, data: bytes, _: Sequence[bytes], __: Sequence[bytes]) -> bytes:
    start, end = _piece(rng, data)
    return data[:start] + data[end:]


def _truncate(rng: Random, data: bytes, _: Sequence[bytes], __: Sequence[bytes]) -> bytes:
    return data[: _place(rng, data)] if rng.random() < 0.7 else data[_place(rng, data) :]


def _repeat(rng: Random, data: bytes, _: Sequence[bytes], __: Sequence[bytes]) -> bytes:
    start, end = _piece(rng, data)
    return data[:start] + data[start:end] * rng.choice((2, 2, 3, 50)) + data[end:]


def _move(rng: Random, data: bytes, _: Sequence[bytes], __: Sequence[bytes]) -> bytes:
    start, end = _piece(rng, data)
    rest = data[:start] + data[end:]
    to = _place(rng, rest)
    return rest[:to] + data[start:end] + rest[to:]


def _insert(rng: Random, data: bytes, _: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + rng.choice((*_TEXTS, *words, *words, rng.randbytes(rng.choice(_CHUNK[:7])))) + data[at:]


def _overwrite(rng: Random, data: bytes, _: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    at, new = _place(rng, data), rng.choice((*_TEXTS, *words, *words))
    return data[:at] + new + data[at + len(new) :]


def _number(rng: Random, data: bytes, _: Sequence[bytes], __: Sequence[bytes]) -> bytes:
    found = list(_DIGITS.finditer(data))
    if not found:
        return data + rng.choice(_NUMBERS)
    at = rng.choice(found)
    return data[: at.start()] + rng.choice(_NUMBERS) + data[at.end() :]


def _varint(rng: Random, data: bytes, _: Sequence[bytes], __: Sequence[bytes]) -> bytes:
    """What Avro takes for a length, a count or a number."""
    value, out, at = rng.choice((1, 2, 63, 64, 2**31, 2**32, 2**62, 2**63 - 1, 2**64 - 1, 2**70)), bytearray(), 0
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    at = _place(rng, data)
    return data[:at] + bytes(out) + data[at + rng.choice((0, 1, len(out))) :]


def _splice(rng: Random, data: bytes, pool: Sequence[bytes], _: Sequence[bytes]) -> bytes:
    other = rng.choice(pool)
    start, end = _piece(rng, other)
    at, to = _piece(rng, data)
    return data[:at] + other[start:end] + data[to:]


def _cross(rng: Random, data: bytes, pool: Sequence[bytes], _: Sequence[bytes]) -> bytes:
    other = rng.choice(pool)
    return data[: _place(rng, data)] + other[_place(rng, other) :]


def _swap_lines(rng: Random, data: bytes, _: Sequence[bytes], __: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


_CHANGES: tuple[Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes], ...] = (
    _flip, _flip, _other_byte, _other_byte, _cut, _cut, _truncate, _repeat, _move, _insert, _insert, _overwrite,
    _number, _number, _varint, _splice, _splice, _cross, _swap_lines,
)  # fmt: skip
