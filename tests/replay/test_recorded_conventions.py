"""Conventions on the wire, in bundles and in replay's tables: one thing, said in three places that must not drift."""

import types
from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Union, get_args, get_origin

from hypothesis import HealthCheck, given, settings
from pydantic import BaseModel

from rollbook.producers.redaction.convention_names import PUBLIC
from rollbook.replay.bundle import convention as of_bundle
from rollbook.replay.dialects.table import ADVANTAGES, LOSSES
from rollbook.replay.materialize.conventions import stated
from rollbook.replay.stages.criticloss import VALUE_LOSSES
from rollbook.schemas.records import convention as of_wire
from rollbook.schemas.types import Part
from rollbook.tests.schemas.strategies import records


def shape(model: type[BaseModel]) -> dict[str, Any]:
    """Names, kinds and defaults of a model's fields, in order; of a list, absent and empty are the same."""
    return {name: (_kind(field.annotation), _default(field)) for name, field in model.model_fields.items()}


def _kind(annotation: Any) -> Any:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        inner = next(arg for arg in get_args(annotation) if arg is not types.NoneType)
        found = _kind(inner)
        return found if isinstance(found, list) else ("optional", found)
    if origin is tuple:
        return [_kind(get_args(annotation)[0])]
    if issubclass(annotation, StrEnum):
        return tuple(annotation)
    return shape(annotation) if issubclass(annotation, BaseModel) else annotation


def _default(field: Any) -> Any:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return value.model_dump() if isinstance(value, BaseModel) else value or None


def test_the_wire_and_a_bundle_state_the_same_keys() -> None:
    assert shape(of_wire.Conventions) == shape(of_bundle.Conventions)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(records(of_wire.Conventions))
def test_whatever_the_wire_takes_a_bundle_states_word_for_word(recorded: Part) -> None:
    assert isinstance(recorded, of_wire.Conventions)
    found = stated(recorded)
    assert found is not None
    written = found.model_dump(mode="json")
    assert written == {name: value for name, value in recorded.model_dump(mode="json").items() if name in written}, (
        "what a bundle leaves out is not used"
    )
    left_out = set(of_wire.Conventions.model_fields) - set(written)
    assert not any(getattr(recorded, name) for name in left_out)


def test_conventions_without_a_word_are_those_of_format_1_0_0() -> None:
    assert stated(None) is None
    assert stated(of_wire.Conventions()) is None


def _known() -> Iterator[tuple[str, str, str]]:
    yield from ((one.framework, one.version, one.name) for one in ADVANTAGES)
    yield from ((one.framework, one.version, one.name) for one in LOSSES)
    yield from VALUE_LOSSES


def test_the_public_names_are_those_of_the_tables() -> None:
    known: dict[tuple[str, str], set[str]] = defaultdict(set)
    for framework, version, name in _known():
        known[framework, version].add(name)
    assert {place: set(names) for place, names in PUBLIC.items()} == known, (
        "bring producers/redaction/convention_names.py along"
    )
