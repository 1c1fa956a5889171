"""The keys of the bundle formats: in which file, of which type, required or with which default.

What a key means is in the recorded bundles (`bundles.py`) and in the goldens of each convention; here are their names
and values, and the names of the conventions that a bundle can state.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import get_args

from pydantic import BaseModel
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
from rollbook.tests.frozen.values import objects_of, values_of

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
        for suffix, inner in objects_of(info.annotation):
            yield from _keys(inner, since, key + suffix)


def _entry(info: FieldInfo) -> Entry:
    # Which versions there are is told by the entries of each.
    is_version = get_args(info.annotation) == get_args(FormatVersion)
    return {**values_of(info), **({"value": "format"} if is_version else {})}


FORMATS = Table("formats", formats)
