"""Records of the contract with other values in some of their fields, written by their own schema: they decode, and what
is wrong with them, if anything, is what they say."""

import io
import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache, partial
from random import Random
from typing import Any

import fastavro

from rollbook.schemas.codec import MARKER, PREFIX_LENGTH, shipped_schemas

_LONGS = (0, 0, 1, 1, 2, 3, 7, -1, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 2, 2**63 - 1, -(2**63))
_DOUBLES = (0.0, -0.0, 1.0, 0.5, -1.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf"))
_STRINGS = (
    "", "a", "é", "\u202e", "\x00", "\n", "\x1b[31m", "~partition-0", "../x", "[]", '"', "n" * 256, "n" * 257,
    "n" * 4097, "0" * 64, "f" * 64, "F" * 64, "dropped", " ", "\U0001f600", "a/b:c",
)  # fmt: skip
_BYTES = (b"", b"\x00", b"\x01", b"\x02\x00", b"\x00\x00\xc0\x7f", b"\x00\x00\x80\xff", b"abc", bytes(400))
_MOST_ITEMS = 40

Place = tuple[Callable[[Any], None], Any, Any]
"""What puts another value there, the value, its schema."""


@cache
def _schemas() -> dict[bytes, tuple[Any, dict[str, Any]]]:
    """Each with the types that it names."""
    found = {}
    for name, raw in shipped_schemas():
        named: dict[str, Any] = {}
        schema = fastavro.parse_schema({"namespace": "rollbook", **raw}, named_schemas=named)
        found[bytes.fromhex(name)] = (schema, named)
    return found


def changed(rng: Random, data: bytes) -> bytes:
    """A record with up to three other values; what is none stays as it is."""

    def edit(record: Any, schema: Any, named: dict[str, Any]) -> None:
        for _ in range(rng.choice((1, 1, 2, 3))):
            places = list(_places(record, schema, named))
            put, value, of = rng.choice(places)
            put(_other(rng, value, of, named, places))

    return _edited(data, edit)


def keyed_changed(rng: Random, data: bytes) -> bytes:
    """The same of a record behind a key, whose length is in the first two bytes."""
    start = 2 + int.from_bytes(data[:2], "big")
    return data[:start] + changed(rng, data[start:])


def rewritten(data: bytes, edit: Callable[[Any], None]) -> bytes:
    """A record whose fields were edited in place."""
    return _edited(data, lambda record, *_: edit(record))


def _edited(data: bytes, edit: Callable[[Any, Any, dict[str, Any]], None]) -> bytes:
    """What is no record, or would be none, stays as it is."""
    known = _schemas().get(data[2:PREFIX_LENGTH])
    if data[:2] != MARKER or known is None:
        return data
    schema, named = known
    try:
        record = fastavro.schemaless_reader(io.BytesIO(data[PREFIX_LENGTH:]), schema, None)
    except Exception:  # a record only in its first bytes
        return data
    edit(record, schema, named)
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, schema, record)
    except (ValueError, struct.error, OverflowError, UnicodeEncodeError):
        return data
    return data[:PREFIX_LENGTH] + out.getvalue()


def _places(value: Any, schema: Any, named: dict[str, Any]) -> Iterator[Place]:
    """Every field and item, however deep."""
    schema = _known(schema, named)
    if isinstance(schema, list):
        branch = _branch(value, schema, named)
        if branch is not None:
            yield from _places(value, branch, named)
    elif isinstance(schema, dict) and schema["type"] == "record":
        for field in schema["fields"]:
            name = field["name"]
            yield partial(value.__setitem__, name), value[name], field["type"]
            yield from _places(value[name], field["type"], named)
    elif isinstance(schema, dict) and schema["type"] == "array":
        for at, item in enumerate(value[:_MOST_ITEMS]):
            yield partial(value.__setitem__, at), item, schema["items"]
            yield from _places(item, schema["items"], named)


def _known(schema: Any, named: dict[str, Any]) -> Any:
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _branch(value: Any, union: list[Any], named: dict[str, Any]) -> Any:
    for one in union:
        if (one == "null") == (value is None):
            return _known(one, named)
    return None


def _other(rng: Random, value: Any, schema: Any, named: dict[str, Any], places: list[Place]) -> Any:
    """Another value of the schema: an odd one, or one of the same kind from elsewhere in the record."""
    schema = _known(schema, named)
    if isinstance(schema, list):
        branches = [one for one in schema if one != "null"]
        return None if rng.random() < 0.4 else _other(rng, value, branches[0], named, places)
    kind = schema["type"] if isinstance(schema, dict) else schema
    alike = [found for _, found, of in places if type(found) is type(value) and _known(of, named) == schema]
    if alike and rng.random() < 0.5:
        return deepcopy(rng.choice(alike))
    match kind:
        case "array":
            return _other_list(rng, list(value or ()), schema["items"], named, places)
        case "record":
            return {
                field["name"]: _other(rng, None, field["type"], named, places) for field in schema["fields"]
            } if value is None or rng.random() < 0.2 else value  # fmt: skip
        case "enum":
            return rng.choice(schema["symbols"])
        case "boolean":
            return rng.random() < 0.5
        case "int":
            return rng.choice((0, 1, -1, 2**31 - 1, -(2**31)))
        case "long":
            near = (value + 1, value - 1) if isinstance(value, int) and abs(value) < 2**62 else ()
            return rng.choice((*_LONGS, *near, *near))
        case "double" | "float":
            return rng.choice(_DOUBLES)
        case "bytes":
            return rng.choice((*_BYTES, value[:-1], value + b"\x01", value * 2)) if value else rng.choice(_BYTES)
        case _:
            return rng.choice((*_STRINGS, f"{value}x", str(value)[:-1])) if value else rng.choice(_STRINGS)


def _other_list(rng: Random, items: list[Any], schema: Any, named: dict[str, Any], places: list[Place]) -> list[Any]:
    fresh = [_other(rng, items[0] if items else None, schema, named, places)]
    shuffled = rng.sample(items, len(items))
    return rng.choice(([], items[:1], items[:-1], items * 2, items + items[:1], shuffled, items + fresh, fresh))
