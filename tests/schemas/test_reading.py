"""What is read at once is what fastavro and the model make of the same bytes; where these refuse, nothing is."""

import io
import json
from collections.abc import Iterator
from math import inf, nan
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field, field_validator, model_validator

from rollbook.schemas import codec, reading
from rollbook.schemas.avro_types import text_of
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, encode, unwrap, validate
from rollbook.schemas.registry import RECORDS
from rollbook.schemas.types import INT63_MAX, MAX_ITEMS, Count, Part
from rollbook.tests.benchmarks.long_run import LongRun
from rollbook.tests.processors.log import Log
from rollbook.tests.schemas.strategies import records

by_name = pytest.mark.parametrize("model", RECORDS, ids=lambda model: model.__name__)
few = settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

HEX = "0123456789abcdef" * 4
TEXTS = [
    *("", "a", "x" * 128, "x" * 129, "x" * 256, "x" * 257, "x" * 4096, "x" * 4097, "\u00e9" * 256, "\U0001f600" * 256),
    *("\x1f", "a\x7f", "\x00", "a\n", "\n", " ", "a b", "\u00a0", "\u200b", "\u2028", "-a", "a/b:c._-", "a:", "\u0661"),
    *(HEX, HEX[1:], HEX + "0", HEX[1:] + "g", HEX.upper(), HEX[1:] + "\n", HEX[1:] + "\u0661", " " + HEX[1:]),
]
NUMBERS = [-(2**63), -1, 0, 1, 63, 64, 2**31, 2**62, INT63_MAX, MAX_ITEMS, MAX_ITEMS + 1]
DOUBLES = [nan, inf, -inf, -0.0, 0.0, -1e-300, 5e-324, 0.5, 1.0, 1.0000000000000002, 1e308]


def _judged(data: bytes) -> tuple[Part, str] | None:
    try:
        decoded = unwrap(data)
        return validate(decoded), decoded.content
    except (UndecodableRecord, ContractViolation):
        return None


def _check(data: bytes) -> bool:
    """Whether it is read at once; then it is the same."""
    found = codec.read(data)
    if found is None:
        return False
    judged = _judged(data)
    assert judged is not None, f"{data!r} is refused"
    assert repr(found) == repr(judged)  # of a negative zero, too
    assert found[0] == judged[0]
    assert list(vars(found[0])) == list(vars(judged[0]))
    assert encode(found[0]) == encode(judged[0])
    return True


def test_all_that_a_run_has_is_read_at_once() -> None:
    log = Log()
    for _ in LongRun(log, groups=4, single=True).versions(2):
        pass
    assert all(_check(record.value or b"") for record in log.records)
    assert all(_check(decision) for decision in log.decisions)
    assert all(_check(row) for _, row in log.ledger.changes() if row is not None)


@by_name
def test_every_model_has_a_reader(model: type[Part]) -> None:
    reading.reader(model)


class Bounded(Part):
    number: Count = Field(lt=7)


class Checked(Part):
    number: Count

    @field_validator("number")
    @classmethod
    def _is_odd(cls, number: int) -> int:
        return number


class ToldBefore(Part):
    number: Count

    @model_validator(mode="before")
    @classmethod
    def _is_told(cls, told: object) -> object:
        return told


@pytest.mark.parametrize("model", [Bounded, Checked, ToldBefore])
def test_what_is_asked_otherwise_than_here_is_known_has_none(model: type[Part]) -> None:
    with pytest.raises(reading.Unsupported):
        reading.reader(model)


@by_name
@few
@given(st.data())
def test_it_is_the_same_record(model: type[Part], data: st.DataObject) -> None:
    _check(encode(data.draw(records(model))))


@by_name
@few
@given(st.data())
def test_spoilt_bytes_are_not_taken_for_a_record(model: type[Part], data: st.DataObject) -> None:
    whole = encode(data.draw(records(model)))
    for at in range(codec.PREFIX_LENGTH, min(len(whole), 600)):
        for byte in (0, 1, 2, 3, 0x0A, 0x7F, 0x80, 0xFF, whole[at] ^ 1, whole[at] ^ 0x80):
            _check(whole[:at] + bytes([byte]) + whole[at + 1 :])
        assert not _check(whole[:at])
        _check(whole[:at] + b"\x80" + whole[at:])
    assert not _check(whole + b"\0")


@by_name
@few
@given(st.data())
def test_each_value_at_its_bounds_and_beyond(model: type[Part], data: st.DataObject) -> None:
    schema = fastavro.parse_schema(json.loads(text_of(model)), named_schemas={})
    record = data.draw(records(model))
    prefix = encode(record)[: codec.PREFIX_LENGTH]
    for changed in _changed(record.model_dump()):
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, schema, changed, disable_tuple_notation=True)
        except (ValueError, TypeError, OverflowError):
            continue  # what the schema has no bytes for
        _check(prefix + out.getvalue())


def _changed(value: Any) -> Iterator[Any]:
    """The value with one scalar or list in it changed; of lists only the first."""
    if isinstance(value, dict):
        for name, inner in value.items():
            for changed in _changed(inner):
                yield value | {name: changed}
    elif isinstance(value, tuple):
        yield ()
        if value:
            yield from ((changed, *value[1:]) for changed in _changed(value[0]))
            yield value * 65
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from NUMBERS
    elif isinstance(value, float):
        yield from DOUBLES
    elif isinstance(value, str):
        yield from TEXTS


def test_a_number_of_many_bytes_ends() -> None:
    with pytest.raises(reading.Doubt):
        reading._long(b"\x80" * 1_000_000, 1)
    with pytest.raises(reading.Doubt):
        reading._long(b"\xff" * 9 + b"\x7f", 1)
    assert reading._long(b"\xff" * 9 + b"\x01", 1) == (2**64 - 1, 10)
