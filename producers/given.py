"""What a caller hands over, checked for its kind before anything looks into it: a mistake here is theirs, and is named
as theirs, not met as an AttributeError deep in a client."""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from rollbook.infra.settings import Settings
from rollbook.producers.arrays import Field
from rollbook.schemas.errors import BadInput
from rollbook.schemas.types import INT63_MAX, ContractViolation, Part, called
from rollbook.schemas.wording import an

Number = np.integer[Any] | np.floating[Any]
_LONGEST_S = 1_000_000.0
"""Eleven days: who says for ever means no less, and a thread cannot wait for longer than a clock can tell."""
_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


def a(kind: type[_T], value: _T, record_type: str, field: str) -> _T:
    """The value, if it is of its kind. Raises ContractViolation."""
    if not isinstance(value, kind):
        raise ContractViolation(record_type, field, f"it is {called(value)}, and must be {an(kind.__name__)}")
    return value


def mapped(values: Mapping[str, _T], place: Field) -> Iterable[tuple[str, _T]]:
    """Values by name. Raises ContractViolation."""
    if not isinstance(values, Mapping):
        raise place.violation(f"it is {called(values)}, and must be a dict of values by name")
    return values.items()


def listed(values: Iterable[_T], record_type: str, field: str) -> tuple[_T, ...]:
    """Several, as a tuple. Raises ContractViolation for one alone: a text would be taken for a list of its letters, a
    record for one of its fields."""
    if isinstance(values, str | bytes | Part) or not isinstance(values, Iterable):
        raise ContractViolation(record_type, field, f"it is {called(values)}, and must be a list: put it in one")
    return tuple(values)


def settings(value: Settings) -> Settings:
    """Where the cluster is. Raises BadInput."""
    if not isinstance(value, Settings):
        raise BadInput(f"settings is {called(value)}, and must be a Settings: give Settings.from_env()")
    return value


def seconds(value: float | Number, name: str) -> float:
    """How long to wait, also for ever. Raises BadInput."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= math.inf:
        told = str(value) if is_number else called(value)
        raise BadInput(f"{name} is {told}, and must be seconds from 0 on: give a number")
    return min(float(value), _LONGEST_S)


def one_of(kind: type[_E], value: _E, name: str) -> _E:
    """A member of an enumeration, also by its value. Raises BadInput."""
    try:
        return kind(value)
    except ValueError:
        told = value if isinstance(value, str) else called(value)
        raise BadInput(f"{name} is {told[:100]}: give one of {', '.join(kind)}") from None


def whole(value: int | np.integer[Any], name: str) -> int:
    """A whole number, from 0, as records hold it. Raises BadInput."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= INT63_MAX:
        is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
        told = called(value) if not is_number else "too large" if value > INT63_MAX else str(value)
        raise BadInput(f"{name} is {told}: give a whole number from 0 on")
    return int(value)
