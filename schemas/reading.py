"""Avro's binary form to records, by functions made once from a model: what is read again and again.

Such a function takes what is right at first sight, bytes and constraints together, and makes the record without fields
in between. In all else it raises, whatever it meets: whoever is asked then, fastavro and the model, says what is wrong,
if anything is. So a check here may be stricter than the contract, and never laxer.
"""

import re
import struct
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import count
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from rollbook.schemas import types
from rollbook.schemas.types import Part

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int, int]]
"""From the bytes and where the body begins: the record, where its first field ended, and where the record ended."""


class Doubt(Exception):
    """Not right at first sight."""


class Unsupported(Exception):
    """A model with what is not known here: it has no such function."""


def reader(model: type[Part]) -> Read:
    """What reads a record under the model's own schema. Raises Unsupported."""
    text = _Text()
    lines = list(text.fields(model, "record"))
    body = "\n".join(f"    {line}" for line in ["after_first = 0", *lines, "return record, after_first, at"])
    exec(f"def read(data, at):\n{body}", text.names)  # of our own models alone
    read: Read = text.names["read"]
    return read


class _Text:
    """The text of a reader, and what it names."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"Doubt": Doubt, "long": _long, "double": struct.Struct("<d").unpack_from}
        self.names |= {"hexadecimal": "0123456789abcdef", "is_run_id": _RUN_ID.fullmatch, "infinity": float("inf")}
        self._numbers = count()

    def fields(self, model: type[Part], into: str) -> Iterator[str]:
        """A record of a model, after what its own validators say of it."""
        decorators = model.__pydantic_decorators__
        if decorators.field_validators or any(one.info.mode != "after" for one in decorators.model_validators.values()):
            raise Unsupported(model.__name__)
        given = []
        for name, info in model.model_fields.items():
            value = f"value{next(self._numbers)}"
            given.append(f"{name}={value}")
            yield from self._value(info, value)
            if into == "record" and len(given) == 1:
                yield "after_first = at"
        made = f"make_{model.__name__}"
        self.names[made] = model.trusted
        yield f"{into} = {made}({', '.join(given)})"
        for name, validator in decorators.model_validators.items():
            check = f"check_{model.__name__}{name}"
            self.names[check] = validator.func
            yield f"{check}({into})"

    def _value(self, info: FieldInfo, into: str) -> Iterator[str]:
        kind = info.annotation
        if get_origin(kind) in (Union, UnionType) and not info.metadata:
            yield from self._optional(kind, into)
        elif get_origin(kind) is tuple:
            yield from self._array(kind, info.metadata, into)
        elif isinstance(kind, type) and issubclass(kind, Part) and not info.metadata:
            yield from self.fields(kind, into)
        elif isinstance(kind, type) and issubclass(kind, StrEnum) and not info.metadata:
            self.names[kind.__name__] = tuple(kind)
            yield from (*_NUMBER, f"{into} = {kind.__name__}[number >> 1]", "if number & 1: raise Doubt")
        else:
            try:
                yield from _SCALARS[_told(info)](into)
            except KeyError:
                raise Unsupported(str(info)) from None

    def _optional(self, kind: Any, into: str) -> Iterator[str]:
        [inner] = [one for one in get_args(kind) if one is not NoneType]
        yield from ("number = data[at]", "at += 1", "if number == 0:", f"    {into} = None", "elif number == 2:")
        yield from (f"    {line}" for line in self._value(FieldInfo.from_annotation(inner), into))
        yield from ("else:", "    raise Doubt")

    def _array(self, kind: Any, limits: list[Any], into: str) -> Iterator[str]:
        """Of one block, as it is written; of none where it is empty."""
        one = f"value{next(self._numbers)}"
        yield from (*_NUMBER, "if number & 1: raise Doubt", f"{into} = []", "if number:")
        yield "    for _ in range(number >> 1):"
        yield from (f"        {line}" for line in self._value(FieldInfo.from_annotation(get_args(kind)[0]), one))
        yield from (f"        {into}.append({one})", "    if data[at]: raise Doubt", "    at += 1")
        for limit in limits:
            if hasattr(limit, "min_length"):
                yield f"if len({into}) < {limit.min_length}: raise Doubt"
            elif hasattr(limit, "max_length"):
                yield f"if len({into}) > {limit.max_length}: raise Doubt"
            else:
                raise Unsupported(str(limit))
        yield f"{into} = tuple({into})"


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A number of several bytes, as it stands (before zigzag), whose first byte lies before `at`; and what follows."""
    number, shift = data[at - 1] & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Doubt
    if number >> 64:
        raise Doubt
    return number, at


_NUMBER = ("number = data[at]", "at += 1", "if number > 127: number, at = long(data, at)")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


def _text(wrong: str) -> Callable[[str], Iterator[str]]:
    """A text; one that ends behind the bytes is seen by the end of the record."""

    def lines(into: str) -> Iterator[str]:
        yield from (*_NUMBER, "end = at + (number >> 1)", f"{into} = data[at:end].decode()", "at = end")
        yield f"if number & 1 or {wrong.format(into)}: raise Doubt"

    return lines


def _bytes(into: str) -> Iterator[str]:
    yield from (*_NUMBER, "end = at + (number >> 1)", f"{into} = data[at:end]", "at = end")
    yield "if number & 1: raise Doubt"


def _digest(into: str) -> Iterator[str]:
    yield from (f"{into} = data[at + 2:at + 66].decode()", "at += 66")
    yield f"if len({into}) != 64 or {into}.strip(hexadecimal) or data[at - 66:at - 64] != b'\\x80\\x01': raise Doubt"


def _count(lowest: int) -> Callable[[str], Iterator[str]]:
    def lines(into: str) -> Iterator[str]:
        yield from (*_NUMBER, f"{into} = number >> 1", f"if number & 1 or {into} < {lowest}: raise Doubt")

    return lines


def _whole(into: str) -> Iterator[str]:
    yield from (*_NUMBER, f"{into} = (number >> 1) ^ -(number & 1)")


def _flag(into: str) -> Iterator[str]:
    yield from (f"{into} = data[at] == 1", "if data[at] > 1: raise Doubt", "at += 1")


def _double(right: str) -> Callable[[str], Iterator[str]]:
    def lines(into: str) -> Iterator[str]:
        yield from (f"{into} = double(data, at)[0]", "at += 8", f"if not {right.format(into)}: raise Doubt")

    return lines


def _told(info: FieldInfo) -> str:
    """What is asked of a scalar, so that two can be compared."""
    return f"{info.annotation} {info.metadata}"


_SCALARS: dict[str, Callable[[str], Iterator[str]]] = {
    _told(FieldInfo.from_annotation(kind)): lines
    for kind, lines in (
        (types.Text, _text("len({0}) > 4096")),
        # What is printable has no control characters; what is neither is for the model.
        (types.Id, _text("not 0 < len({0}) <= 256 or not {0}.isprintable()")),
        (types.RunId, _text("not is_run_id({0})")),
        (types.Digest, _digest),
        (types.Bytes, _bytes),
        (types.Count, _count(0)),
        (types.Positive, _count(1)),
        (int, _whole),
        (types.Flag, _flag),
        (types.Finite, _double("-infinity < {0} < infinity")),
        (types.NonNegative, _double("0.0 <= {0} < infinity")),
        (types.AboveZero, _double("0.0 < {0} < infinity")),
        (types.Share, _double("0.0 <= {0} <= 1.0")),
        (types.PartialShare, _double("0.0 < {0} < 1.0")),
    )
}
