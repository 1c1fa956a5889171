"""The published schemas: equal to the models, documented, and of the fingerprints that every Avro computes."""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import avro.schema
import pytest

from rollbook.schemas.avro_types import text_of
from rollbook.schemas.codec import MARKER, PREFIX_LENGTH, _writers
from rollbook.schemas.records.common import Header
from rollbook.schemas.registry import LIFECYCLE, RECORDS
from rollbook.schemas.types import Part

AVRO = files("rollbook.schemas") / "avro"
by_name = pytest.mark.parametrize("model", RECORDS, ids=lambda model: model.__name__)


def _published(model: type[Part]) -> Any:
    return json.loads((AVRO / f"{model.__name__}.avsc").read_text(encoding="utf-8"))


@by_name
def test_the_file_is_what_the_model_says(model: type[Part]) -> None:
    text = (AVRO / f"{model.__name__}.avsc").read_text(encoding="utf-8")
    assert text == text_of(model), "run python -m rollbook.schemas.avro_types"


def test_there_is_one_file_a_record_and_no_other() -> None:
    names = {file.name for file in AVRO.iterdir() if file.name != "shipped"}
    assert names == {f"{model.__name__}.avsc" for model in RECORDS}


@by_name
def test_each_type_and_field_is_documented(model: type[Part]) -> None:
    for place, node in _nodes(_published(model), model.__name__):
        assert node.get("doc", "").rstrip().endswith((".", ")")), f"{place} has no documentation"


def _nodes(schema: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Every named type and field."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _nodes(branch, place)
    elif isinstance(schema, dict):
        if schema["type"] in ("record", "enum"):
            yield place, schema
        elif schema["type"] == "array":
            yield from _nodes(schema["items"], place)
        for field in schema.get("fields", []):
            yield f"{place}.{field['name']}", field
            yield from _nodes(field["type"], f"{place}.{field['name']}")


@pytest.mark.parametrize("model", LIFECYCLE, ids=lambda model: model.__name__)
def test_a_lifecycle_record_begins_with_its_header(model: type[Part]) -> None:
    first = _published(model)["fields"][0]
    assert (first["name"], first["type"]["name"]) == ("header", Header.__name__)


# --- fingerprints


def _canonical(schema: Any, namespace: str = "") -> Any:
    """Parsing canonical form (Avro specification, "Transforming into Parsing Canonical Form")."""
    if isinstance(schema, list):
        return [_canonical(branch, namespace) for branch in schema]
    if isinstance(schema, str):
        return schema
    namespace = schema.get("namespace", namespace)
    kept: dict[str, Any] = {}
    if "name" in schema:
        kept["name"] = f"{namespace}.{schema['name']}"
    kept["type"] = schema["type"]
    if "fields" in schema:
        kept["fields"] = [
            {"name": field["name"], "type": _canonical(field["type"], namespace)} for field in schema["fields"]
        ]
    for name in ("symbols", "items"):
        if name in schema:
            kept[name] = schema[name] if name == "symbols" else _canonical(schema[name], namespace)
    return kept


def _crc64_avro(data: bytes) -> int:
    """Rabin fingerprint, bit by bit (Avro specification, "Schema Fingerprints")."""
    empty = 0xC15D213AA4D7A795
    value = empty
    for byte in data:
        table = (value ^ byte) & 0xFF
        for _ in range(8):
            table = (table >> 1) ^ (empty & -(table & 1))
        value = (value >> 8) ^ table
    return value


def _fingerprint(schema: Any) -> bytes:
    text = json.dumps(_canonical(schema), separators=(",", ":"), ensure_ascii=False)
    return _crc64_avro(text.encode()).to_bytes(8, "little")


def test_the_fingerprint_of_the_specifications_example() -> None:
    assert _crc64_avro(b'"int"') == 0x7275D51A3F395C8F


@by_name
def test_a_fingerprint_is_what_the_specification_computes(model: type[Part]) -> None:
    assert [found for found, writer in _writers().items() if writer.model is model and writer.is_current] == [
        _fingerprint(_published(model))
    ]


@by_name
def test_apache_avro_computes_the_same_fingerprint(model: type[Part]) -> None:
    assert avro.schema.parse(text_of(model)).fingerprint("CRC-64-AVRO") == _fingerprint(_published(model))


def test_no_two_versions_of_any_records_share_a_fingerprint() -> None:
    assert len(_writers()) == len(RECORDS) + len(list((AVRO / "shipped").iterdir()))
    assert len(MARKER) + 8 == PREFIX_LENGTH
