"""Weights as a hashed file: the same weights are the same bytes, and nothing else is served."""

import hashlib
from pathlib import Path

import pytest
import torch

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.model import new_model
from rollbook.infra.demo.learning.weights import WeightsFile, load_weights, save_weights
from rollbook.schemas.errors import EnvironmentFault

CONFIG = DemoConfig()


def test_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    model = new_model(CONFIG)
    file = save_weights(model, tmp_path / "0.npz")
    loaded = load_weights(file, CONFIG).state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in model.state_dict().items())


def test_the_hash_is_of_the_files_bytes_and_follows_from_the_weights(tmp_path: Path) -> None:
    first = save_weights(new_model(CONFIG), tmp_path / "a.npz")
    again = save_weights(new_model(CONFIG), tmp_path / "b.npz")
    other = save_weights(new_model(DemoConfig(seed=1)), tmp_path / "c.npz")
    assert first.sha256 == hashlib.sha256(first.path.read_bytes()).hexdigest()
    assert first.sha256 == again.sha256 != other.sha256
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz", "c.npz"]


def test_other_bytes_than_announced_are_not_loaded(tmp_path: Path) -> None:
    file = save_weights(new_model(CONFIG), tmp_path / "0.npz")
    content = bytearray(file.path.read_bytes())
    content[len(content) // 2] ^= 1
    file.path.write_bytes(content)
    with pytest.raises(EnvironmentFault, match="announced was"):
        load_weights(file, CONFIG)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"gone\.npz cannot be read"):
        load_weights(WeightsFile(tmp_path / "gone.npz", "0" * 64), CONFIG)
