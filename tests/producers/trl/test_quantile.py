"""The tokens of the highest entropy are the same for the recording, for replay and for torch."""

import numpy as np
import pytest

from rollbook.producers.trl.scalars import _highest
from rollbook.replay.kernels.entropy import highest

torch = pytest.importorskip("torch")


def test_one_quantile_for_all() -> None:
    random = np.random.default_rng(5)
    for case in range(400):
        values = np.abs(random.normal(0, 1.5, random.integers(1, 40))).astype(np.float32)
        values = values.round(1) if case % 2 else values  # equal ones at the edge, too
        share = (0.1, 0.2, 0.4, 0.5, 0.8)[case % 5]
        kept = values >= float(torch.quantile(torch.tensor(values), 1 - share))
        found = highest(values[None, :], np.ones((1, len(values)), np.bool_), share)
        assert np.array_equal(found[0], kept)
        assert np.array_equal(_highest(values.astype(np.float64), share), values[kept])
