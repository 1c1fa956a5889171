"""Single-object encoding: every record comes back as it was, and nothing else is taken for one."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.schemas import codec
from rollbook.schemas.avro_types import text_of
from rollbook.schemas.codec import (
    ContractViolation,
    UndecodableRecord,
    decode,
    decode_as,
    encode,
    unwrap,
)
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.common import Header, PolicyRef, Source, SourceKind
from rollbook.schemas.records.ledger import Position
from rollbook.schemas.records.policy import PolicyCommitted
from rollbook.schemas.records.reward import RewardFailed, RewardFailure
from rollbook.schemas.registry import RECORDS
from rollbook.schemas.types import INT63_MAX, Part
from rollbook.tests.schemas.strategies import records

by_name = pytest.mark.parametrize("model", RECORDS, ids=lambda model: model.__name__)
quick = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
few = settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def _header(event_id: str = "event-1", occurred_at: int = 1) -> Header:
    source = Source(kind=SourceKind.COORDINATOR, id="c")
    return Header(run_id="r", event_id=event_id, occurred_at=occurred_at, source=source)


def _committed(header: Header, version: int = 1, artifact_hash: str = "h") -> PolicyCommitted:
    return PolicyCommitted(header=header, policy=PolicyRef(version=version, artifact_hash=artifact_hash))


@by_name
@quick
@given(st.data())
def test_every_record_comes_back_as_it_was(model: type[Part], data: st.DataObject) -> None:
    record = data.draw(records(model))
    encoded = encode(record)
    assert decode(encoded) == record
    assert encode(decode(encoded)) == encoded
    assert type(decode_as(model, encoded)) is model


@by_name
@quick
@given(st.data())
def test_it_is_written_as_fastavro_writes_it(model: type[Part], data: st.DataObject) -> None:
    record = data.draw(records(model))
    assert encode(record) == _raw(model, record.model_dump())


@by_name
@quick
@given(st.data())
def test_the_published_schema_alone_reads_it(model: type[Part], data: st.DataObject) -> None:
    """What a consumer without this package does: strip ten bytes, read with the `.avsc`."""
    record = data.draw(records(model))
    schema = fastavro.parse_schema(json.loads(text_of(model)), named_schemas={})
    assert fastavro.schemaless_reader(io.BytesIO(encode(record)[10:]), schema, None) == json_like(record)


def json_like(record: Part) -> Any:
    """The record as plain values, sequences as lists."""
    return _plain(record.model_dump())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


@by_name
@few
@given(st.data())
def test_no_part_of_a_record_is_a_record(model: type[Part], data: st.DataObject) -> None:
    encoded = encode(data.draw(records(model)))
    for length in range(len(encoded)):
        with pytest.raises(UndecodableRecord):
            decode(encoded[:length])
    with pytest.raises(UndecodableRecord, match=f"left over after a whole {model.__name__}"):
        decode(encoded + b"\0")


@pytest.mark.parametrize("spoilt", [b"\xc3\x02", b"\xc2\x01", b"\0\0"])
def test_another_marker_is_another_encoding(spoilt: bytes) -> None:
    encoded = encode(_committed(_header()))
    with pytest.raises(UndecodableRecord, match="C3 01"):
        decode(spoilt + encoded[2:])


def test_an_unknown_fingerprint_is_named() -> None:
    with pytest.raises(UndecodableRecord, match="unknown schema fingerprint 0123456789abcdef"):
        decode(b"\xc3\x01" + bytes.fromhex("0123456789abcdef") + b"body")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=60), st.sampled_from(RECORDS))
def test_bytes_behind_a_known_fingerprint_are_a_record_or_refused(body: bytes, model: type[Part]) -> None:
    prefix = encode(_committed(_header()))[:2] + codec._writer_of(model)[0][2:]
    try:
        record = decode(prefix + body)
    except (UndecodableRecord, ContractViolation):
        return
    assert isinstance(record, model)


@pytest.mark.parametrize("length", [2**31, 2**40, 2**62])
def test_a_length_beyond_the_record_costs_no_memory(length: int) -> None:
    zigzag, out = length << 1, b""
    while zigzag > 127:
        out += bytes([zigzag & 127 | 128])
        zigzag >>= 7
    encoded = encode(Position(next_offset=0, transactional_id="id"))
    with pytest.raises(UndecodableRecord):
        decode(encoded[:11] + out + bytes([zigzag]) + b"id")


def test_a_record_of_another_type_is_refused_with_both_names() -> None:
    with pytest.raises(
        UndecodableRecord, match="expected a Position, found a PolicyCommitted: is this the right topic"
    ):
        decode_as(Position, encode(_committed(_header())))


# --- content


def test_the_content_digest_leaves_out_the_header_and_nothing_else() -> None:
    first = unwrap(encode(_committed(_header()))).content
    assert unwrap(encode(_committed(_header("event-2", 99)))).content == first
    assert unwrap(encode(_committed(_header(), version=2))).content != first
    assert unwrap(encode(_committed(_header(), artifact_hash="i"))).content != first


def test_two_types_with_the_same_body_have_different_contents() -> None:
    ids = ["t", "u"]
    failed = RewardFailed(header=_header(), trajectory_id="t", reason=RewardFailure.TIMEOUT, retriable=True)
    contents = {unwrap(encode(record)).content for record in (failed, _committed(_header()))}
    assert len(contents) == len(ids)


# --- what Avro takes but the contract refuses


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"policy": {"version": -1, "artifact_hash": "h"}}, "policy.version"),
        ({"policy": {"version": 1, "artifact_hash": ""}}, "policy.artifact_hash"),
        ({"policy": {"version": 1, "artifact_hash": "h" * 257}}, "policy.artifact_hash"),
        ({"policy": {"version": 1, "artifact_hash": "h\n"}}, "policy.artifact_hash"),
        ({"header": {"run_id": "~r"}}, "header.run_id"),
        ({"header": {"run_id": "r\n"}}, "header.run_id"),
        ({"header": {"run_id": "r" * 129}}, "header.run_id"),
        ({"header": {"occurred_at": -1}}, "header.occurred_at"),
    ],
)
def test_the_decoder_names_the_field(fields: dict[str, Any], named: str) -> None:
    plain = _committed(_header()).model_dump()
    for name, value in fields.items():
        plain[name] = plain[name] | value
    with pytest.raises(ContractViolation) as caught:
        decode(_raw(PolicyCommitted, plain))
    assert caught.value.field == named
    assert str(caught.value).startswith(f"PolicyCommitted: field {named}: ")


def _raw(model: type[Part], plain: Any) -> bytes:
    """Written by fastavro, which takes what no record can hold."""
    out = io.BytesIO()
    prefix, _ = codec._writer_of(model)
    schema = fastavro.parse_schema(json.loads(text_of(model)), named_schemas={})
    out.write(prefix)
    fastavro.schemaless_writer(out, schema, plain, disable_tuple_notation=True)
    return out.getvalue()


def test_every_error_of_the_codec_is_one_a_user_can_meet() -> None:
    assert issubclass(UndecodableRecord, RollbookError)
    assert issubclass(ContractViolation, RollbookError)
    assert UndecodableRecord("x").exit_code == ContractViolation("x", "f", "p").exit_code == 2


def test_integers_keep_all_63_bits() -> None:
    record = Position(next_offset=INT63_MAX, transactional_id="id")
    assert decode(encode(record)) == record


def test_a_part_that_is_no_record_of_its_own_cannot_be_encoded() -> None:
    with pytest.raises(TypeError, match="Header is not a record of the contract"):
        encode(_header())
