"""One rank under replay: its selected samples, what the chain has recomputed, and what was recorded of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.engine.selection import Positions
from rollbook.replay.stages.batch import Batch, Chain, batch_of, token_positions
from rollbook.replay.stages.stage import Output, Unit
from rollbook.replay.stages.table import TOKEN_PAYLOADS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """`positions` is None when every sample is replayed; `ends` is the end of each sample in a flat array of tokens."""

    bundle: Bundle
    positions: Positions | None
    batch: Batch
    chain: Chain
    sample_ids: tuple[str, ...]
    ends: Ints

    def recorded(self, output: Output) -> NDArray[Any] | None:
        """The recorded values of the selected samples, flat, float32 or float64; None where it was not recorded."""
        if output.payload is not None:
            tensor = self.bundle.tensors.get(output.payload)
            return None if tensor is None else self._selected(tensor, output.unit)
        if output.term is not None:
            values = self.bundle.terms.get(output.term)
            return None if values is None else self._selected(values, output.unit)
        if output.expected is not None:
            found = output.expected(self.bundle.expected)
            return None if found is None else self._selected(np.asarray(found, np.float64).reshape(-1), output.unit)
        assert output.index is not None
        return np.asarray([output.index(sample) for sample in self.batch.samples], dtype=np.float64)

    def has(self, output: Output) -> bool:
        """Whether an output was recorded, or need not have been."""
        if output.optional or output.index is not None:
            return True
        if output.payload is not None:
            return output.payload in self.bundle.tensors
        return output.expected is not None and output.expected(self.bundle.expected) is not None

    def _selected(self, values: NDArray[Any], unit: Unit) -> NDArray[Any]:
        if self.positions is None or unit is Unit.SCALAR:
            return values
        if unit is Unit.TOKEN:
            return values[token_positions(self.bundle.index.samples, self.positions)]
        return values[list(self.positions)]


def run_of(bundle: Bundle, positions: Positions | None, xp: Any) -> Run:
    """The samples at `positions`, ready for the first stage, in arrays of the library `xp`."""
    batch = batch_of(bundle, positions, TOKEN_PAYLOADS, xp)
    lengths = [sample.response_length for sample in batch.samples]
    return Run(
        bundle=bundle,
        positions=positions,
        batch=batch,
        chain=Chain(batch),
        sample_ids=tuple(sample.sample_id for sample in batch.samples),
        ends=np.cumsum(np.asarray(lengths, dtype=np.int64)),
    )
