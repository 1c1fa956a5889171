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
_MOST_BY_ROUNDING = 0.25
"""A log-prob is at most 0. What is computed in bfloat16, as a logit less the logarithm of a sum, may come out that far
above with logits of up to 128; what is further above is a probability, or has lost its sign."""


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
    array: npt.NDArray[Any] = _one_dimensional(field, values)
    if array.size and array.dtype.kind not in "iu":
        raise field.violation(f"its elements are {_told(array)}, they must be the tokenizer's integers")
    wrong = np.flatnonzero((array < 0) | (array > _INT32.max)) if array.size else array
    if wrong.size:
        place = int(wrong[0])
        raise field.violation(f"position {place} is {array[place]}: a token id is from 0 on, and fits int32")
    return array.astype(np.int32)


def mask_array(field: Field, values: npt.ArrayLike, length: int | None = None) -> Mask:
    """A mask [T] as bools; T may be any where none is given."""
    array = _one_dimensional(field, values, length)
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        raise field.violation("its elements must be bools, or 0 and 1")
    return array.astype(np.bool_)


def reals(field: Field, values: npt.ArrayLike, length: int | None = None) -> FloatArray:
    """Real values [T] as float32, whatever they are; T may be any where none is given."""
    array = _one_dimensional(field, values, length)
    if array.size and array.dtype.kind not in "fiu":
        raise field.violation(f"its elements are {_told(array)}, they must be real numbers")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def finite_reals(field: Field, values: npt.ArrayLike) -> FloatArray:
    """Real values [T] as float32, in which they must be finite."""
    array = reals(field, values)
    wrong = np.flatnonzero(~np.isfinite(array))
    if wrong.size:
        place = int(wrong[0])
        raise field.violation(f"position {place} is {array[place]}: it must be finite in float32")
    return array


def log_probs(field: Field, values: npt.ArrayLike, mask: Mask) -> FloatArray:
    """Log-probs [T] in nats as float32; at active positions they must be finite, also as float32, and above 0 by no
    more than rounding."""
    array = reals(field, values, len(mask))
    wrong = np.flatnonzero(mask & ~(np.isfinite(array) & (array <= _MOST_BY_ROUNDING)))
    if not wrong.size:
        return array
    place = int(wrong[0])
    if np.isfinite(array[place]):
        raise field.violation(
            f"position {place} is {array[place]:g}, above 0 by more than rounding ({_MOST_BY_ROUNDING}): it must be "
            "the logarithm of a probability, neither the probability nor the logarithm without its sign"
        )
    raise field.violation(f"position {place} is active and {array[place]}: it must be finite in float32")


def copied(values: npt.ArrayLike) -> npt.ArrayLike:
    """A copy that the caller cannot change any more, of whatever kind it is. What is no array stays what it is: the
    field's own check names it."""
    try:
        return np.asarray(_on_the_host(values)).copy()
    except Exception:
        return values


def size_of(values: npt.ArrayLike) -> int:
    """Bytes of an array; of what is none 0."""
    return int(getattr(values, "nbytes", 0))


def _one_dimensional(field: Field, values: npt.ArrayLike, length: int | None = None) -> npt.NDArray[np.generic]:
    if values is None or isinstance(values, str | bytes):
        raise field.violation(f"it is {called(values)}, and must be a flat list or array of numbers")
    try:
        array = np.asarray(_on_the_host(values))
    except Exception:  # ragged; or of another library, which may say anything, and does so in many lines
        raise field.violation(f"it is {called(values)} that numpy takes for no flat array of numbers") from None
    if array.ndim == 0:  # a set, a generator: numpy takes each for one thing
        raise field.violation(f"it is {called(values)}, and must be a flat list or array of numbers")
    if array.ndim != 1:
        raise field.violation(f"its shape is {array.shape}, it must be flat")
    if length is not None and len(array) != length:
        raise field.violation(f"{len(array)} elements for {length} response tokens")
    return array


def _told(array: npt.NDArray[Any]) -> str:
    return {"U": "texts", "S": "texts", "O": "not all numbers that numpy has a kind for"}.get(
        array.dtype.kind, str(array.dtype)
    )


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
