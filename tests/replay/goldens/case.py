"""The recorded cases of other frameworks' own code as arrays, and what recomputing one came to."""

import gzip
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

Arrays = Mapping[str, Any]
Outputs = Mapping[str, Any]


class Refusal(Exception):
    """The recomputation refuses its input, as the library did where a case records `raises`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded call. `inputs`: float64 or float32, bool or int64 arrays of one library; `outputs`: as recorded."""

    id: str
    function: str
    params: Mapping[str, Any]
    inputs: Arrays
    outputs: Outputs
    raises: bool

    def get(self, name: str, default: Any = None) -> Any:
        return self.params.get(name, default)


Adapter = Callable[[Case], Outputs]


def read(path: Path) -> Any:
    with gzip.open(path) as file:
        return json.load(file)


def numbers(value: Any) -> Any:
    """Lists with "NaN", "Infinity" and null among the numbers as an array, rows of different lengths one after the
    other; other values as they are."""
    if isinstance(value, list):
        found = [numbers(item) for item in value]
        return np.concatenate(found) if len({np.shape(item) for item in found}) > 1 else np.array(found)
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value.replace("Infinity", "inf"))
    return math.nan if value is None else value


def case_of(raw: Mapping[str, Any], xp: Any, width: Any = np.float64) -> Case:
    dtypes = raw.get("input_dtypes") or dict.fromkeys(_WHOLE, "int64")
    gradients = {name.removeprefix("grad_") for name in raw.get("outputs") or {} if name.startswith("grad_")}
    return Case(
        id=raw["id"],
        function=raw["function"],
        params=raw.get("params") or {},
        inputs={
            name: array(value, dtypes.get(name, "float32"), xp, width, name in gradients)
            for name, value in raw["inputs"].items()
        },
        outputs=raw.get("outputs") or {},
        raises="raises" in raw,
    )


_WHOLE = ("mask", "group_index")
"""Inputs of whole numbers, where a case does not say."""


def array(value: Any, dtype: str, xp: Any, width: Any, gradient: bool = False) -> Any:
    if dtype == "object":
        return value
    found = np.asarray(numbers(value))
    if dtype.startswith("float"):
        found = found.astype(width)
    if xp is np:
        return found
    tensor = torch.tensor(found)
    return tensor.requires_grad_() if gradient and tensor.is_floating_point() else tensor


def labels(keys: list[str], like: Any) -> Any:
    """Names of groups as int64 numbers of the library of `like`."""
    found = np.unique(np.asarray(keys), return_inverse=True)[1].astype(np.int64)
    return found if isinstance(like, np.ndarray) else torch.tensor(found)


def plain(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
