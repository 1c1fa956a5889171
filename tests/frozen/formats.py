"""The keys of the bundle formats: in which file, of which type, required or with which default.

What a key means is in the recorded bundles (`bundles.py`) and in the goldens of each convention; here are their names
and values, and the names of the conventions that a bundle can state.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from rollbook.replay.bundle.model import (
    CohortComplete,
    Complete,
    Expected,
    FormatVersion,
    Grown,
    Index,
    Manifest,
    RankComplete,
)
from rollbook.replay.bundle.terms import TermsFile
from rollbook.replay.dialects.table import ADVANTAGES, LOSSES
from rollbook.tests.frozen.table import Entry, Table

FIRST, GROWN = "1.0.0", "1.1.0"
FILES: Mapping[str, type[BaseModel]] = {
    "manifest.json": Manifest,
    "index.json": Index,
    "expected.json": Expected,
    "COMPLETE": Complete,
    "COMPLETE.N": RankComplete,
    "COMPLETE of ranks": CohortComplete,
    "rollbook-terms.json": TermsFile,
}
_WORDS = ("title", "description", "$defs")


def formats() -> Mapping[str, Callable[[], Entry]]:
    """Every key by the format that it came with, and every name of a convention."""
    found: dict[str, Callable[[], Entry]] = {}
    for file, model in FILES.items():
        for version, key, entry in _keys(model, FIRST):
            found[f"{version} {file} {key}"] = partial(dict, entry)
    named = (("advantages", ADVANTAGES), ("loss", LOSSES))
    for kind, conventions in named:
        for one in conventions:
            found[f"{GROWN} convention of {kind}: {one.framework} {one.version} {one.name}"] = dict
    return found


def _keys(model: type[BaseModel], version: str, above: str = "") -> Iterator[tuple[str, str, Entry]]:
    """Those of an object and of all that lies in it, and whether it is closed to others."""
    said = {name: model.model_config.get(name) for name in ("extra", "strict", "allow_inf_nan")}
    yield version, above or ".", {"object": said}
    added = model.ADDED if issubclass(model, Grown) else frozenset[str]()
    for name, info in model.model_fields.items():
        key = f"{above}.{info.alias or name}".removeprefix(".")
        since = GROWN if name in added else version
        yield since, key, _entry(info)
        for suffix, inner in _objects(info.annotation):
            yield from _keys(inner, since, key + suffix)


def _entry(info: FieldInfo) -> Entry:
    annotated: Any = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    schema = TypeAdapter(annotated).json_schema()
    # Which versions there are is told by the entries of each.
    value = (
        "format" if get_args(info.annotation) == get_args(FormatVersion) else _plain(schema, schema.get("$defs", {}))
    )
    default = {} if info.is_required() else {"default": _default(info)}
    return {"value": value, **default}


def _plain(schema: Any, named: Mapping[str, Any]) -> Any:
    """What values there may be, without words; nothing of what is in an object, since its keys have entries."""
    if isinstance(schema, list):
        return [_plain(one, named) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return _plain(named[name], named) if "enum" in named[name] else "object"
    if schema.get("type") == "object" and "properties" in schema:
        return "object"
    return {name: _plain(one, named) for name, one in schema.items() if name not in (*_WORDS, "default")}


def _default(info: FieldInfo) -> Any:
    value = info.get_default(call_default_factory=True)
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else json.loads(json.dumps(value, default=str))


def _objects(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The objects in a type, and how deep: [] of a list, {} of an object by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
        return
    of: Any = getattr(annotation, "__origin__", None)
    mark = {tuple: "[]", dict: "{}"}.get(of, "")
    for inner in get_args(annotation):
        if not (isinstance(inner, type) and issubclass(inner, StrEnum)):
            for suffix, found in _objects(inner):
                yield mark + suffix, found


FORMATS = Table("formats", formats)
