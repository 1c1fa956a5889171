"""What a caller hands over, checked for its kind before anything looks into it: a mistake here is theirs, and is named
as theirs, not met as an AttributeError deep in a client."""

from collections.abc import Iterable
from typing import TypeVar

from rollbook.infra.settings import Settings
from rollbook.schemas.errors import BadInput
from rollbook.schemas.types import ContractViolation, called

_T = TypeVar("_T")


def a(kind: type[_T], value: _T, record_type: str, field: str) -> _T:
    """The value, if it is of its kind. Raises ContractViolation."""
    if not isinstance(value, kind):
        raise ContractViolation(record_type, field, f"it is {called(value)}, and must be {_one(kind)}")
    return value


def _one(kind: type) -> str:
    return f"an {kind.__name__}" if kind.__name__[0] in "AEIOU" else f"a {kind.__name__}"


def listed(values: Iterable[_T], record_type: str, field: str) -> tuple[_T, ...]:
    """Several, as a tuple. Raises ContractViolation for one alone: a text would be taken for a list of its letters."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ContractViolation(record_type, field, f"it is {called(values)}, and must be a list: put it in one")
    return tuple(values)


def settings(value: Settings) -> Settings:
    """Where the cluster is. Raises BadInput."""
    if not isinstance(value, Settings):
        raise BadInput(f"settings is {called(value)}, and must be a Settings: give Settings.from_env()")
    return value
