"""Checks the arrays that callers hand over and brings them to the contract's types, naming the field that is wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rollbook.schemas.codec import ContractViolation
from rollbook.schemas.digests import FloatArray, IntArray, Mask
from rollbook.schemas.types import called

Number: TypeAlias = float | np.floating[Any] | np.integer[Any]
"""What callers have at hand: Python's numbers or numpy's."""

Whole: TypeAlias = int | np.integer[Any]

_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True)
class Field:
    """A place in a record, for errors that name it."""

    record_type: str
    path: str

    def __truediv__(self, name: str) -> "Field":
        return Field(self.record_type, f"{self.path}.{name}")

    def violation(self, problem: str) -> ContractViolation:
        return ContractViolation(self.record_type, self.path, problem)

    @contextmanager
    def built_here(self) -> Iterator[None]:
        """Violations of the part that is built in the block name their place in the whole record."""
        try:
            yield
        except ContractViolation as inner:
            raise ContractViolation(self.record_type, f"{self.path}.{inner.field}", inner.problem) from None


def token_ids(field: Field, values: npt.ArrayLike) -> IntArray:
    """Token ids [T] as int32."""
    array = _one_dimensional(field, values)
    if array.size and array.dtype.kind not in "iu":
        raise field.violation(f"token ids are {array.dtype}, they must be integers")
    if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
        raise field.violation("a token id does not fit int32")
    return array.astype(np.int32)


def mask_array(field: Field, values: npt.ArrayLike, length: int) -> Mask:
    """A mask [T] as bools."""
    array = _one_dimensional(field, values)
    if len(array) != length:
        raise field.violation(f"{len(array)} elements for {length} response tokens")
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        raise field.violation("its elements must be bools, or 0 and 1")
    return array.astype(np.bool_)


def reals(field: Field, values: npt.ArrayLike, length: int) -> FloatArray:
    """Real values [T] as float32, whatever they are."""
    array = _one_dimensional(field, values)
    if len(array) != length:
        raise field.violation(f"{len(array)} elements for {length} response tokens")
    if array.size and array.dtype.kind not in "fiu":
        raise field.violation(f"its elements are {array.dtype}, they must be real numbers")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def active_reals(field: Field, values: npt.ArrayLike, mask: Mask) -> FloatArray:
    """Real values [T] as float32; at active positions they must be finite, also as float32."""
    array = reals(field, values, len(mask))
    wrong = np.flatnonzero(mask & ~np.isfinite(array))
    if wrong.size:
        place = int(wrong[0])
        raise field.violation(f"position {place} is active and {array[place]}: it must be finite in float32")
    return array


def _one_dimensional(field: Field, values: npt.ArrayLike) -> npt.NDArray[np.generic]:
    if values is None or isinstance(values, str | bytes):
        raise field.violation(f"it is {called(values)}, and must be a flat list or array of numbers")
    try:
        array = np.asarray(_on_the_host(values))
    except (ValueError, TypeError, RuntimeError):  # ragged; or of another library, which says why in many lines
        raise field.violation(f"it is {called(values)} that numpy takes for no flat array of numbers") from None
    if array.ndim != 1:
        raise field.violation(f"its shape is {array.shape}, it must be flat")
    return array


def _on_the_host(values: Any) -> Any:
    """A tensor as what numpy takes: without its gradient, off its device, and wider where numpy has no such type."""
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    return tensor.float() if "bfloat16" in str(tensor.dtype) or "float8" in str(tensor.dtype) else tensor


def real(value: Any) -> Any:
    """A number of numpy's or a tensor of one as Python's, which the contract is strict about."""
    if isinstance(value, np.generic) or (getattr(value, "shape", None) == () and hasattr(value, "item")):
        return value.item()
    return value
