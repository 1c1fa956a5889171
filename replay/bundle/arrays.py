"""Arrays of a trainer, whatever library they are of, as the host's numpy arrays.

Told by what they can do and not by their type, so that nothing here imports torch.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

ArrayLike = Any
"""A torch tensor on any device, a numpy array, or a sequence of numbers."""


_NUMBERS = "fiubV"
"""Kinds of dtype; V are the narrow floats that numpy itself does not have, such as bfloat16."""


class NotWhole(ValueError):
    """A number where a whole one belongs."""


def snapshot(values: ArrayLike) -> ArrayLike:
    """A copy that later changes in place leave as it is, without gradient, on the device where the original is: a
    training thread never waits for a device here."""
    if hasattr(values, "detach"):
        return values.detach().clone()
    return np.array(values)


def nbytes(values: ArrayLike) -> int:
    """How much a snapshot takes."""
    if hasattr(values, "element_size"):
        return int(values.element_size()) * int(values.numel())
    return int(np.asarray(values).nbytes)


def floats(values: ArrayLike) -> NDArray[np.float32]:
    """float32, flat, on the host; what is narrower (bfloat16) is widened."""
    if hasattr(values, "detach"):
        if values.is_complex():  # whose imaginary part torch would drop with a mere warning
            raise TypeError
        values = values.detach().float().cpu().numpy()
    return np.array(_numeric(np.asarray(values)), np.float32).ravel()


def numbers(values: ArrayLike) -> list[float]:
    """As Python's numbers, exactly: a float32 becomes the double of the same value."""
    return [float(value) for value in _host(values).ravel()]


def integers(values: ArrayLike) -> list[int]:
    """Raises NotWhole."""
    found = _host(values).ravel()
    whole = found.astype(np.int64)
    if not np.array_equal(whole, found):
        raise NotWhole
    return [int(value) for value in whole]


def number(value: ArrayLike) -> float:
    """A scalar, also one in an array; raises ValueError for more than one."""
    return float(_host(value).reshape(()))


def _host(values: ArrayLike) -> NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().double().cpu().numpy() if values.is_floating_point() else values.detach().cpu().numpy()
    return _numeric(np.asarray(values))


def _numeric(values: NDArray[Any]) -> NDArray[Any]:
    """Raises TypeError for what numpy would make numbers of: texts, dates, complex numbers, objects."""
    if values.size and values.dtype.kind not in _NUMBERS:
        raise TypeError
    return values
