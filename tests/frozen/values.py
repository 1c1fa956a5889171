"""What values a field of a model may have, as JSON Schema says it, without words: bounds, lengths, patterns, choices
and defaults. Of what is in another model nothing is said, since its fields have entries of their own."""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from rollbook.tests.frozen.table import Entry

_WORDS = ("title", "description", "$defs", "default")


def values_of(info: FieldInfo) -> Entry:
    """Of one field."""
    annotated: Any = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    schema = TypeAdapter(annotated).json_schema()
    default = {} if info.is_required() else {"default": _default(info)}
    return {"value": _plain(schema, schema.get("$defs", {})), **default}


def _plain(schema: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_plain(one, named) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return _plain(named[name], named) if "enum" in named[name] else "object"
    if schema.get("type") == "object" and "properties" in schema:
        return "object"
    return {name: _plain(one, named) for name, one in schema.items() if name not in _WORDS}


def _default(info: FieldInfo) -> Any:
    value = info.get_default(call_default_factory=True)
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else json.loads(json.dumps(value, default=str))


def objects_of(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models in a type, and how deep: [] of a list, {} of an object by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
        return
    of: Any = getattr(annotation, "__origin__", None)
    mark = {tuple: "[]", dict: "{}"}.get(of, "")
    for inner in get_args(annotation):
        if not (isinstance(inner, type) and issubclass(inner, StrEnum)):
            for suffix, found in objects_of(inner):
                yield mark + suffix, found
