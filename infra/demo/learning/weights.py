"""Tensors as a hashed file: a policy's weights, which the trainer hands to the workers, and its checkpoints."""

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.model import TinyTransformer
from rollbook.schemas.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """Where they are, and the sha256 (hex) of the file's bytes: a policy's artifact hash, a checkpoint's digest."""

    path: Path
    sha256: str


def save_weights(model: TinyTransformer, path: Path) -> WeightsFile:
    """Write a model's weights: see `save_tensors`."""
    return save_tensors(model.state_dict(), path)


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> WeightsFile:
    """Write an .npz whose bytes follow from the tensors alone; the file appears whole or not at all."""
    # npz and not torch.save: its bytes do not depend on the torch version, and reading it back executes nothing.
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: tensor.numpy() for name, tensor in sorted(tensors.items())})
    content = buffer.getvalue()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return WeightsFile(path, hashlib.sha256(content).hexdigest())


def load_weights(file: WeightsFile, config: DemoConfig) -> TinyTransformer:
    """The model of a weights file. Raises EnvironmentFault like `load_tensors`."""
    model = TinyTransformer(config)
    model.load_state_dict(load_tensors(file))
    return model


def load_tensors(file: WeightsFile) -> dict[str, Tensor]:
    """The tensors. EnvironmentFault where the file is missing or is not the one that was announced."""
    try:
        content = file.path.read_bytes()
    except OSError as error:
        raise EnvironmentFault(
            f"weights {file.path} cannot be read ({error.strerror}): export the policy again"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise EnvironmentFault(
            f"weights {file.path} have sha256 {found}, announced was {file.sha256}: do not serve them, export again"
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
