"""Avro single-object encoding of every record: 0xC3 0x01, the schema's CRC-64-AVRO fingerprint, the body.

The decoder finds the writer's schema by fingerprint among all versions ever shipped: `avro/*.avsc` (current) and
`avro/shipped/*.avsc` (earlier ones), and resolves it to the current one.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar, cast

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form
from pydantic import ValidationError

from rollbook.schemas import reading, writing
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import Header, Lifecycle
from rollbook.schemas.registry import RECORDS
from rollbook.schemas.types import ContractViolation, Part, violation

__all__ = [
    "ContractViolation",
    "Decoded",
    "UndecodableRecord",
    "decode",
    "decode_as",
    "encode",
    "encoder",
    "make",
    "read",
    "shipped_schemas",
    "unwrap",
    "validate",
]

MARKER = b"\xc3\x01"
PREFIX_LENGTH = len(MARKER) + 8
P = TypeVar("P", bound=Part)


class UndecodableRecord(BadInput):
    """Bytes that are no record of the contract."""


@dataclass(frozen=True, slots=True)
class _Writer:
    """A schema that was ever shipped, and how to read it into today's model."""

    schema: Any
    current: Any
    model: type[Part]
    header: Any
    rest: Any
    """Of a lifecycle record all but its header, which is read first: where it ends the content begins."""
    is_current: bool


class Decoded(NamedTuple):
    """A record as the wire had it, not yet validated. `content` is the sha256 over all but its header."""

    model: type[Part]
    fields: dict[str, Any]
    content: str

    def header(self) -> Header:
        """The header alone of a lifecycle record, or `ContractViolation`: it can be good where the rest is not."""
        return _valid(Header, self.fields["header"])


def make(model: type[P], **fields: object) -> P:
    """Build a record from untyped fields; raises `ContractViolation`, as the record's own constructor does."""
    return model(**cast(dict[str, Any], fields))


def encode(record: Part) -> bytes:
    """The record in single-object encoding."""
    prefix, write = _writer_of(type(record))
    out = [prefix]
    write(out, record)
    return b"".join(out)


def encoder(model: type[P], schema: str) -> Callable[[P], bytes]:
    """What writes records of a model under one of its schemas, also one of an earlier version, by its fingerprint as
    `shipped_schemas` has it; fields that it does not have are left out. Raises LookupError for a schema of no version.
    """
    prefix = bytes.fromhex(schema)
    writer = _writers().get(prefix)
    if writer is None or writer.model is not model:
        raise LookupError(f"{schema} is the schema of no {model.__name__} that was ever shipped")
    if writer.is_current:
        return encode
    begin, write = MARKER + prefix, writing.writer(writer.schema)

    def encode_earlier(record: P) -> bytes:
        out = [begin]
        write(out, record)
        return b"".join(out)

    return encode_earlier


def decode(data: bytes) -> Part:
    """The record in the bytes. Raises `UndecodableRecord` or `ContractViolation`."""
    found = _read(data)
    return validate(unwrap(data)) if found is None else found[0]


def read(data: bytes) -> tuple[Part, str] | None:
    """What `unwrap` and `validate` make of bytes, the record and its `content`, in half their time; None says nothing:
    where something is odd at first sight, they say what it is."""
    found = _read(data)
    return None if found is None else (found[0], _content(data, found[1]))


def _read(data: bytes) -> tuple[Part, int] | None:
    """The record, and where its content begins."""
    writer = _writers().get(data[2:PREFIX_LENGTH])
    if writer is None or not writer.is_current or data[:2] != MARKER or (quick := _reader_of(writer.model)) is None:
        return None
    try:
        record, after_first, end = quick(data, PREFIX_LENGTH)
    except Exception:  # whatever it is, those who are asked then find it again
        return None
    return (record, PREFIX_LENGTH if writer.header is None else after_first) if end == len(data) else None


def decode_as(model: type[P], data: bytes) -> P:
    """The record in the bytes, which must be of this type."""
    record = decode(data)
    if not isinstance(record, model):
        raise UndecodableRecord(
            f"expected a {model.__name__}, found a {type(record).__name__}: is this the right topic?"
        )
    return record


def validate(decoded: Decoded) -> Part:
    """The typed record, or `ContractViolation`."""
    return _valid(decoded.model, decoded.fields)


def _valid(model: type[P], fields: dict[str, Any]) -> P:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise violation(model, error) from None


def unwrap(data: bytes) -> Decoded:
    """Decode without validation. Raises `UndecodableRecord`."""
    if data[:2] != MARKER or len(data) < PREFIX_LENGTH:
        raise UndecodableRecord("not in Avro single-object encoding (it does not begin with C3 01 and a fingerprint)")
    writer = _writers().get(data[2:PREFIX_LENGTH])
    if writer is None:
        raise UndecodableRecord(f"unknown schema fingerprint {data[2:PREFIX_LENGTH].hex()}: not of any shipped version")
    body = io.BytesIO(data)
    body.seek(PREFIX_LENGTH)
    start = PREFIX_LENGTH
    fields: Any
    try:
        if writer.header is None or not writer.is_current:
            fields = fastavro.schemaless_reader(body, writer.schema, None if writer.is_current else writer.current)
        else:
            header = fastavro.schemaless_reader(body, writer.header, None)
            start = body.tell()
            fields = fastavro.schemaless_reader(body, writer.rest, None)
            fields["header"] = header
    except Exception as error:  # fastavro raises whatever its readers meet: any of it means bytes that do not fit
        raise UndecodableRecord(
            f"bytes do not fit the schema of {writer.model.__name__} ({type(error).__name__})"
        ) from None
    if body.read(1):
        raise UndecodableRecord(f"bytes are left over after a whole {writer.model.__name__}")
    if writer.header is not None and not writer.is_current:
        body.seek(PREFIX_LENGTH)
        fastavro.schemaless_reader(body, writer.header, None)
        start = body.tell()
    return Decoded(writer.model, fields, _content(data, start))


def _content(data: bytes, start: int) -> str:
    """sha256 over fingerprint and body without the header, so that a retry under a new event id is still equal."""
    digest = hashlib.sha256(data[2:PREFIX_LENGTH])
    digest.update(data[start:])
    return digest.hexdigest()


@cache
def _reader_of(model: type[Part]) -> reading.Read | None:
    """What reads the records of a model; none where it has what `reading` does not know."""
    try:
        return reading.reader(model)
    except reading.Unsupported:
        return None


@cache
def _writer_of(model: type[Part]) -> tuple[bytes, writing.Write]:
    """What records of a model begin with, and what writes them."""
    for prefix, writer in _writers().items():
        if writer.model is model and writer.is_current:
            return MARKER + prefix, writing.writer(writer.schema)
    raise TypeError(f"{model.__name__} is not a record of the contract")


def shipped_schemas() -> Iterator[tuple[str, Any]]:
    """Every schema ever shipped, after its fingerprint in hexadecimal, as records begin with it."""
    for raw, _ in _shipped():
        yield _fingerprint(raw), raw


def _shipped() -> Iterator[tuple[Any, bool]]:
    """The raw schemas, and whether each is the current one."""
    from importlib.resources import files  # at the first record: its import is one in thirty parts of all clients'

    folder = files("rollbook.schemas") / "avro"
    earlier = folder / "shipped"
    for file in earlier.iterdir() if earlier.is_dir() else ():
        yield json.loads(file.read_text(encoding="utf-8")), False
    for model in RECORDS:
        yield json.loads((folder / f"{model.__name__}.avsc").read_text(encoding="utf-8")), True


def _fingerprint(raw: Any) -> str:
    """fastavro's hexadecimal is little-endian already."""
    return fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO")


@lru_cache(maxsize=1)
def _writers() -> dict[bytes, _Writer]:
    """Every schema ever shipped, by fingerprint."""
    shipped = tuple(_shipped())
    models = {model.__name__: model for model in RECORDS}
    current = {raw["name"]: raw for raw, is_current in shipped if is_current}
    writers: dict[bytes, _Writer] = {}
    for raw, is_current in shipped:
        model = models[raw["name"]]
        is_lifecycle = issubclass(model, Lifecycle)
        header = _parse(raw["fields"][0]["type"]) if is_lifecycle else None
        rest = _parse({**raw, "fields": raw["fields"][1:]}) if is_lifecycle and is_current else None
        writer = _Writer(_parse(raw), _parse(current[raw["name"]]), model, header, rest, is_current)
        writers[bytes.fromhex(_fingerprint(raw))] = writer
    return writers


def _parse(raw: Any) -> Any:
    named: dict[str, Any] = {}
    raw = {"namespace": "rollbook", **raw}
    return fastavro.parse_schema(raw, named_schemas=named)
