"""The schemas that records were ever written under: what makes bytes mean something, for ever.

An entry is a record's schema by its fingerprint, in canonical form, with what that leaves out and a reader needs: the
defaults, which an earlier record is read with. The words of the current schemas may be mended; the files of earlier
ones are kept to the byte.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from fastavro.schema import fingerprint, to_parsing_canonical_form

from rollbook.processors.decision_schema import DECISION_SCHEMAS
from rollbook.processors.lifecycle_schema import read_since
from rollbook.schemas.avro_types import FOLDER
from rollbook.schemas.codec import shipped_schemas
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.registry import LIFECYCLE
from rollbook.schemas.types import Part
from rollbook.tests.frozen.table import Entry, Table

_LIFECYCLE = frozenset(model.__name__ for model in LIFECYCLE)


def since(record: str, schema: str) -> int | None:
    """The fold version since which a schema is read or written; none where it does not hang on one."""
    if record == Decision.__name__:
        return next((version for version, of in DECISION_SCHEMAS.items() if of == schema), None)
    return read_since(schema) if record in _LIFECYCLE else None


def schema_written(model: type[Part]) -> str:
    """The fingerprint of the schema that records of a model are written under today."""
    text = json.loads((FOLDER / f"{model.__name__}.avsc").read_text(encoding="utf-8"))
    return fingerprint(to_parsing_canonical_form(text), "CRC-64-AVRO")


def schemas() -> Mapping[str, Callable[[], Entry]]:
    """Every schema and every file of an earlier one."""
    found: dict[str, Callable[[], Entry]] = {
        f"{raw['name']} {schema}": partial(_schema, raw, schema) for schema, raw in shipped_schemas()
    }
    for path in FOLDER.glob("shipped/*"):
        found[f"shipped/{path.name}"] = partial(_file, path.read_bytes())
    return found


def _schema(raw: Any, schema: str) -> Entry:
    return {
        "since_fold_version": since(raw["name"], schema),
        "canonical": to_parsing_canonical_form(raw),
        "defaults": dict(_defaults(raw, raw["name"])),
    }


def _file(content: bytes) -> Entry:
    return {"sha256": hashlib.sha256(content).hexdigest()}


def _defaults(schema: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, list):
        for branch in schema:
            yield from _defaults(branch, place)
    elif isinstance(schema, dict):
        yield from _defaults(schema.get("items"), place)
        for field in schema.get("fields", ()):
            inner = f"{place}.{field['name']}"
            if "default" in field:
                yield inner, field["default"]
            yield from _defaults(field["type"], inner)


SCHEMAS = Table("schemas", schemas)
