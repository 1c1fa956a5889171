"""Reads of a decision what is counted, from its bytes, without making the record.

The codec takes 17 us for an average decision, fastavro alone 23, which would keep a dashboard from catching up with a
long log: here the beginning takes 1 us, and a row another. The price is code that is written for speed: no calls, plain
tuples, names as bytes. It reads the one schema that `is_lean` tells, and strings shorter than 64 bytes; all else is for
the codec (`of_fields`). A test holds both against each other.
"""

import re
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from rollbook.processors.decision_schema import DECISION_SCHEMAS
from rollbook.schemas.codec import MARKER, PREFIX_LENGTH, UndecodableRecord, unwrap
from rollbook.schemas.records.decision import Decision, Outcome

OUTCOMES = tuple(one.value for one in Outcome)
"""By their place in the schema."""
_PLACES = {name: place for place, name in enumerate(OUTCOMES)}
_PREFIX = MARKER + bytes.fromhex(DECISION_SCHEMAS[1])
_OUTCOMES = len(OUTCOMES)
_MOST = 2**63
_double = struct.Struct("<d")

Head = tuple[bytes, int, int, bytes, int, int, bytes, int]
"""run, sequence, offset of the record, its type, outcome (place in `OUTCOMES`), violation, reason, where it ends."""
Row = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes]
"""trajectory, reason, state before, state after, lag, mean |current - behavior| in nats, offset of its Generated; empty
where there is none. `number` and `ratio` read what are numbers."""


class NotLean(Exception):
    """Bytes that only the codec can read, if anything can."""


class Rest(NamedTuple):
    """What stands behind the beginning, up to the rows."""

    detail: bytes
    subject_kind: bytes
    subject_id: bytes
    subject_hash: bytes
    update: bytes
    learner: bytes
    missing: tuple[bytes, ...]
    mismatched: tuple[bytes, ...]
    rows: list[Row]


def is_lean(value: bytes) -> bool:
    """Whether `head` and `rest` may be tried on this."""
    return value[:PREFIX_LENGTH] == _PREFIX


def head(data: bytes) -> Head:
    """The beginning. Raises NotLean, or IndexError where the bytes end."""
    n = data[10]
    end = 11 + (n >> 1)
    run = data[11:end]
    sequence, at = data[end], end + 1
    if sequence & 0x80:
        sequence, at = _long(data, at, sequence)
    while data[at] & 0x80:  # the partition
        at += 1
    at += 1
    offset = data[at]
    at += 1
    if offset & 0x80:
        offset, at = _long(data, at, offset)
    at += 66  # a digest of 64 characters behind its length of two bytes
    m = data[at]
    at += 1
    end = at + (m >> 1)
    record_type = data[at:end]
    n |= m | (m := data[end])
    at = end + 1 + (m >> 1)  # the event id
    outcome = data[at] >> 1
    violation = 1 if data[at + 1] else 0  # any byte but 0 is true, to the codec too
    if outcome >= _OUTCOMES or sequence > _MOST or offset > _MOST:
        raise NotLean
    n |= (m := data[at + 2])
    if n & 0x80:
        raise NotLean
    at += 3
    end = at + (m >> 1)
    return run, sequence >> 1, offset >> 1, record_type, outcome, violation, data[at:end], end


def rest(data: bytes, at: int) -> Rest:
    """What stands behind the beginning. Raises NotLean, or IndexError where the bytes end."""
    kind = name = update = learner = b""
    digest = b""
    long = n = data[at]
    end = at + 1 + (n >> 1)
    detail = data[at + 1 : end]
    at = end + 1
    if data[end]:
        long |= (n := data[at])
        end = at + 1 + (n >> 1)
        kind = data[at + 1 : end]
        long |= (n := data[end])
        at = end + 1 + (n >> 1)
        name = data[end + 1 : at]
        digest, at = _text(data, at)
    else:
        at = end + 1
    at += 1
    if data[at - 1]:
        long |= (n := data[at])
        end = at + 1 + (n >> 1)
        update = data[at + 1 : end]
        at = end
    at += 1
    if data[at - 1]:
        long |= (n := data[at])
        end = at + 1 + (n >> 1)
        learner = data[at + 1 : end]
        while data[end] & 0x80:
            end += 1
        at = end + 1
    at += 1
    if data[at - 1]:
        while data[at] & 0x80:
            at += 1
        _, at = _text(data, at + 1)
    if long & 0x80:
        raise NotLean
    for _ in range(2):  # the versions of configuration and fold
        while data[at] & 0x80:
            at += 1
        at += 1
    missing, at = _texts(data, at)
    mismatched, at = _texts(data, at)
    return Rest(detail, kind, name, digest, update, learner, missing, mismatched, _rows(data, at))


def fact(data: bytes, at: int) -> Row | None:
    """The row of a decision about one row, without its figures; None where there is not just one, or one that only
    `rest` can read. May raise IndexError. Most decisions are about a single fact."""
    if data[at]:  # a detail
        return None
    long = 0
    at += 2
    if data[at - 1]:
        at += 1 + (data[at] >> 1)
        long = data[at]
        at += 1 + (long >> 1)
        if data[at]:
            return None
        at += 1
    if data[at] or data[at + 1]:  # an update, a learner
        return None
    at += 3
    if data[at - 1]:
        while data[at] & 0x80:
            at += 1
        at += 1
        long |= (n := data[at])
        if n & 0x80:
            _, at = _text(data, at)
            long = 0
        else:
            at += 1 + (n >> 1)
    while data[at] & 0x80:  # the versions of configuration and fold
        at += 1
    at += 1
    while data[at] & 0x80:
        at += 1
    at += 1
    if data[at] or data[at + 1] or data[at + 2] != 2:  # workers, and a single row
        return None
    at += 3
    long |= (n := data[at])
    end = at + 1 + (n >> 1)
    name = data[at + 1 : end]
    long |= (n := data[end])
    at = end + 1 + (n >> 1)
    reason = data[end + 1 : at]
    before = after = b""
    at += 1
    if data[at - 1]:
        long |= (n := data[at])
        end = at + 1 + (n >> 1)
        before = data[at + 1 : end]
        at = end
    at += 1
    if data[at - 1]:
        long |= (n := data[at])
        after = data[at + 1 : at + 1 + (n >> 1)]
    return None if long & 0x80 else (name, reason, before, after, b"", b"", b"")


def number(raw: bytes) -> int | None:
    """A field that is a whole number."""
    if not raw:
        return None
    n = raw[0]
    if n & 0x80:
        n, _ = _long(raw, 1, n)
    return (n >> 1) ^ -(n & 1)


def ratio(raw: bytes) -> float | None:
    """A field that is a float."""
    return _double.unpack(raw)[0] if raw else None


def raw_number(value: int | None) -> bytes:
    """The bytes of a whole number."""
    if value is None:
        return b""
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _rows(data: bytes, at: int) -> list[Row]:
    """By a pattern: regular expressions read a row in half the time that steps of Python take."""
    count = data[at]
    at += 1
    if not count:
        return []
    if count & 0x80:
        count, at = _long(data, at, count)
    length = data[at]
    if count & 1 or length & 0x81:  # a block that states its length, which no writer of ours makes; a long name
        raise NotLean
    block, row = _patterns(length >> 1)
    found = block.match(data, at)
    end = at if found is None else found.end()
    rows: list[Row] = row.findall(data, at, end)
    if len(rows) != count >> 1 or data[end]:  # names of unequal length, say
        raise NotLean
    return rows


_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"


@lru_cache(maxsize=64)
def _patterns(length: int) -> tuple["re.Pattern[bytes]", "re.Pattern[bytes]"]:
    """Those of a block of rows, and of a row, whose trajectories have names of so many bytes. An optional field is 0,
    or 2 and its value; names of ours are lower-case letters behind their length."""
    named, counted = rb"\x00|\x02.([a-z_]+)", rb"\x00|\x02(" + _NUMBER + rb")"
    skipped = (rb"\x00|\x02" + _NUMBER,) * 2
    fields = (named, named, *skipped, counted, rb"\x00|\x02.[a-z_]+", rb"\x00|\x02(.{8})", counted, skipped[0])
    row = rb"\x%02x(.{%d}).([a-z_]+)" % (2 * length, length) + b"".join(b"(?:%b)" % one for one in fields)
    return re.compile(b"(?:%b)*" % row, re.DOTALL), re.compile(row, re.DOTALL)


def name_and_number(data: bytes) -> tuple[bytes, int]:
    """The first two fields of a snapshot, in every version of its schema. Raises IndexError where the bytes end."""
    name, at = _text(data, PREFIX_LENGTH)
    found = data[at]
    return name, (_long(data, at + 1, found)[0] if found & 0x80 else found) >> 1


def whole(data: bytes, at: int) -> Rest:
    """As `rest`, by the codec where that cannot (`at` is 0 where the codec has read the beginning). Raises
    UndecodableRecord."""
    try:
        if at:
            return rest(data, at)
    except (NotLean, IndexError):
        pass
    return of_fields(data)[1]


def beginning(data: bytes) -> Head:
    """As `head`, by the codec where that cannot. Raises UndecodableRecord."""
    try:
        if is_lean(data):
            return head(data)
    except (NotLean, IndexError):
        pass
    return of_fields(data)[0]


def of_fields(data: bytes) -> tuple[Head, Rest]:
    """The same through the codec, of any schema. Raises UndecodableRecord."""
    decoded = unwrap(data)
    if decoded.model is not Decision:
        raise UndecodableRecord(f"a {decoded.model.__name__} where decisions are")
    fields = decoded.fields
    subject = fields["subject"] or {"kind": "", "id": "", "artifact_hash": ""}
    learner = fields["learner"]
    return (
        (
            fields["run_id"].encode(),
            fields["sequence"],
            fields["source"]["offset"],
            fields["record_type"].encode(),
            _PLACES[fields["outcome"]],
            int(fields["violation"]),
            fields["reason"].encode(),
            0,
        ),
        Rest(
            fields["detail"].encode(),
            subject["kind"].encode(),
            subject["id"].encode(),
            subject["artifact_hash"].encode(),
            (fields["update_id"] or "").encode(),
            b"" if learner is None else learner["learner_id"].encode(),
            tuple(one.encode() for one in fields["missing_workers"]),
            tuple(one.encode() for one in fields["mismatched_workers"]),
            [_row(one) for one in fields["items"]],
        ),
    )


def _row(fields: dict[str, Any]) -> Row:
    drift = fields["mean_abs_log_ratio"]
    return (
        fields["trajectory_id"].encode(),
        fields["reason"].encode(),
        (fields["state_before"] or "").encode(),
        (fields["state_after"] or "").encode(),
        raw_number(fields["lag"]),
        b"" if drift is None else _double.pack(drift),
        raw_number(fields["generated_offset"]),
    )


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    n = data[at]
    at += 1
    if n & 0x80:
        n, at = _long(data, at, n)
    end = at + (n >> 1)
    return data[at:end], end


def _texts(data: bytes, at: int) -> tuple[tuple[bytes, ...], int]:
    if not data[at]:
        return (), at + 1
    found: list[bytes] = []
    while count := data[at]:
        at += 1
        if count & 0x80:
            count, at = _long(data, at, count)
        if count & 1:
            raise NotLean
        for _ in range(count >> 1):
            text, at = _text(data, at)
            found.append(text)
    return tuple(found), at + 1


def _long(data: bytes, at: int, first: int) -> tuple[int, int]:
    """What a first byte with bytes behind it stands for, not yet unfolded (zigzag), and where they end."""
    value, shift = first & 0x7F, 7
    while (byte := data[at]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1
