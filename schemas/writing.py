"""Records to Avro's binary form, by functions made once from a schema.

The ledger writes a decision for each record it reads and a row for each that it changes. A writer that knows the types
beforehand takes 0.27 of the time of one that looks at the schema for each value; one that is a single function, made as
Python text, takes two thirds of that of one that calls a function a field. The bytes are fastavro's.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from rollbook.schemas.errors import BadInput

Write: TypeAlias = Callable[[list[bytes], Any], None]
"""Appends a value's bytes."""

_PAST_TABLE = 1 << 12


def writer(schema: Any) -> Write:
    """What writes records of a parsed schema."""
    text = _Text()
    lines = ["def write(out, value):", "    put = out.append", *_deeper(text.value(schema, "value"))]
    exec("\n".join(lines), text.names)  # of our own schemas alone
    write: Write = text.names["write"]
    return write


class _Text:
    """The text of a writer, and what it names. A value is an expression; what is in it again is told apart by depth."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"small": _SMALL, "varint": _varint, "double": struct.Struct("<d").pack}
        self._known: dict[str, Any] = {}
        """Types that were defined further up, by name."""

    def value(self, schema: Any, value: str, depth: int = 0) -> Iterator[str]:
        """The lines that put a value."""
        if isinstance(schema, list):
            yield from self._optional(schema, value, depth)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _PLAIN:
            yield from _PLAIN[kind].format(value).split("; ")
        elif kind == "array":
            yield from self._array(schema["items"], value, depth)
        elif kind == "record":
            self._known[schema["name"]] = schema
            yield from self._record(schema["fields"], value, depth)
        elif kind == "enum":
            self._known[schema["name"]] = schema
            places = f"places_of_{schema['name'].rpartition('.')[2]}"
            self.names[places] = {symbol: _varint(place) for place, symbol in enumerate(schema["symbols"])}
            yield f"put({places}[{value}])"
        else:
            yield from self.value(self._known[kind], value, depth)

    def _record(self, fields: Any, value: str, depth: int) -> Iterator[str]:
        yield f"fields{depth} = {value}.__dict__"  # a model's own attributes are looked up by far slower
        for field in fields:
            yield f"value{depth} = fields{depth}[{field['name']!r}]"
            yield from self.value(field["type"], f"value{depth}", depth + 1)

    def _optional(self, schema: Any, value: str, depth: int) -> Iterator[str]:
        null, other = schema
        assert null == "null", "the contract has no other unions"
        yield from (f"if {value} is None:", "    put(b'\\x00')", "else:", "    put(b'\\x02')")
        yield from _deeper(self.value(other, value, depth))

    def _array(self, items: Any, value: str, depth: int) -> Iterator[str]:
        yield f"if {value}:"
        yield from _deeper(iter((f"number = len({value})", _PUT_SIZE, f"for one{depth} in {value}:")))
        yield from _deeper(_deeper(self.value(items, f"one{depth}", depth + 1)))
        yield "put(b'\\x00')"


def _deeper(lines: Iterator[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def _varint(number: int) -> bytes:
    """Zigzag, then seven bits a byte, the lowest first (Avro 1.11, "Binary encoding")."""
    if not -(1 << 63) <= number < 1 << 63:  # only a record that nobody checked has it
        bits = number.bit_length()
        raise BadInput(f"a whole number of {bits} bits does not fit into 64: make records by their constructors")
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL = [_varint(number) for number in range(_PAST_TABLE)]
_PUT_SIZE = f"put(small[number] if number < {_PAST_TABLE} else varint(number))"
_PLAIN = {
    "string": f"text = {{}}.encode(); number = len(text); {_PUT_SIZE}; put(text)",
    "bytes": f"number = len({{0}}); {_PUT_SIZE}; put({{0}})",
    "long": f"number = {{}}; put(small[number] if 0 <= number < {_PAST_TABLE} else varint(number))",
    "boolean": "put(b'\\x01' if {} else b'\\x00')",
    "double": "put(double({}))",
}
"""The lines that put a value of a plain type."""
