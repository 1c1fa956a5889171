"""Derives the Avro schema of a record from its model: the models are the source, `avro/*.avsc` the published contract.

`python -m rollbook.schemas.avro_types` writes the files; a test fails when they differ from the models.
"""

import json
import types
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from rollbook.schemas.types import Part

NAMESPACE = "rollbook"
FOLDER = Path(__file__).parent / "avro"
Schema: TypeAlias = Any
_SCALARS: dict[type, str] = {str: "string", int: "long", float: "double", bool: "boolean", bytes: "bytes"}


def schema_of(model: type[Part]) -> dict[str, Schema]:
    """The Avro record of a model, each named type whole where it first occurs and by name afterwards."""
    schema = _record(model, set())
    assert isinstance(schema, dict)
    return {"type": schema["type"], "name": schema["name"], "namespace": NAMESPACE, **schema}


def _record(model: type[Part], seen: set[str]) -> Schema:
    if model.__name__ in seen:
        return f"{NAMESPACE}.{model.__name__}"
    seen.add(model.__name__)
    fields = []
    for name, info in model.model_fields.items():
        if not info.description:
            raise TypeError(f"{model.__name__}.{name} has no description")
        field: dict[str, Schema] = {"name": name, "doc": info.description, "type": _type(info.annotation, seen)}
        if not info.is_required():
            field["default"] = _default(info.get_default(call_default_factory=True))
        fields.append(field)
    return {"type": "record", "name": model.__name__, "doc": _doc(model), "fields": fields}


def _type(annotation: Any, seen: set[str]) -> Schema:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type(get_args(annotation)[0], seen)
    if origin in (Union, types.UnionType):
        inner = [arg for arg in get_args(annotation) if arg is not types.NoneType]
        assert len(inner) == 1, f"only optional unions are in the contract: {annotation}"
        return ["null", _type(inner[0], seen)]
    if origin is tuple:
        return {"type": "array", "items": _type(get_args(annotation)[0], seen)}
    if isinstance(annotation, type):
        if annotation in _SCALARS:
            return _SCALARS[annotation]
        if issubclass(annotation, StrEnum):
            return _enum(annotation, seen)
        if issubclass(annotation, Part):
            return _record(annotation, seen)
    raise TypeError(f"no Avro type for {annotation!r}")


def _enum(enum: type[StrEnum], seen: set[str]) -> Schema:
    if enum.__name__ in seen:
        return f"{NAMESPACE}.{enum.__name__}"
    seen.add(enum.__name__)
    return {"type": "enum", "name": enum.__name__, "doc": _doc(enum), "symbols": [member.value for member in enum]}


def _default(value: Any) -> Schema:
    if isinstance(value, tuple):
        assert not value, "only empty lists can be defaults"
        return []
    if isinstance(value, Part):
        return {name: _default(getattr(value, name)) for name in type(value).model_fields}
    return value.value if isinstance(value, StrEnum) else value


def _doc(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def text_of(model: type[Part]) -> str:
    """The file's content: the schema as people read it."""
    return json.dumps(schema_of(model), indent=2, ensure_ascii=False) + "\n"


def write_all(folder: Path = FOLDER) -> list[Path]:
    """Write one `.avsc` a record and return the paths."""
    from rollbook.schemas.registry import RECORDS

    folder.mkdir(exist_ok=True)
    paths = []
    for model in RECORDS:
        path = folder / f"{model.__name__}.avsc"
        path.write_text(text_of(model), encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    for written in write_all():
        print(written.name)
