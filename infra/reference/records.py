"""The page of the records: every field with its type, out of the published Avro schemas."""

import json
from typing import Any

from rollbook.infra.reference.markdown import anchor, code, page, table
from rollbook.schemas.avro_types import schema_of
from rollbook.schemas.registry import LEDGER, LIFECYCLE, OTHERS, PAYLOADS
from rollbook.schemas.types import Part

_TOPICS: tuple[tuple[str, tuple[type[Part], ...]], ...] = (
    ("Records of lifecycle", LIFECYCLE),
    ("Records of payloads", PAYLOADS),
    ("Records of ledger", LEDGER),
    ("Records of decisions, freshness and dead-letters", OTHERS),
)


def records() -> str:
    """Every record and every part of one, each once."""
    blocks = []
    named: dict[str, dict[str, Any]] = {}
    for title, models in _TOPICS:
        blocks.append(f"## {title}")
        for model in models:
            schema: Any = schema_of(model)
            _collect(schema, named)
            del named[schema["name"]]
            blocks += _record(schema)
    blocks.append("## Parts")
    for name in sorted(named):
        blocks += _record(named[name]) if named[name]["type"] == "record" else _enum(named[name])
    return page(
        "Records",
        "From `schemas/records/`; the schemas are `schemas/avro/*.avsc`, the bytes are Avro single-object encoding. "
        "A type followed by `?` may be null. The contract also bounds lengths and values: see the models.",
        *blocks,
    )


def _collect(schema: Any, named: dict[str, dict[str, Any]]) -> None:
    """Every type that is defined anywhere within, by name."""
    if isinstance(schema, list):
        for one in schema:
            _collect(one, named)
    elif isinstance(schema, dict):
        if "name" in schema and "type" in schema and schema["type"] in ("record", "enum"):
            named[schema["name"]] = schema
        for one in schema.get("fields", ()):
            _collect(one["type"], named)
        if "items" in schema:
            _collect(schema["items"], named)


def _record(schema: dict[str, Any]) -> list[str]:
    rows = ((code(field["name"]), _type(field["type"]), _default(field), field["doc"]) for field in schema["fields"])
    return [f"### {schema['name']}", schema["doc"], table(("field", "type", "default", "meaning"), rows)]


def _enum(schema: dict[str, Any]) -> list[str]:
    return [f"### {schema['name']}", f"{schema['doc']} One of {', '.join(code(one) for one in schema['symbols'])}."]


def _type(schema: Any) -> str:
    if isinstance(schema, list):
        return f"{_type(next(one for one in schema if one != 'null'))}?"
    if isinstance(schema, str):
        name = schema.rpartition(".")[2]
        return schema if name == schema else _link(name)
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    return _link(schema["name"]) if "name" in schema else str(schema["type"])


def _link(name: str) -> str:
    return f"[{name}]({anchor(name)})"


def _default(field: dict[str, Any]) -> str:
    return code(json.dumps(field["default"])) if "default" in field else ""
