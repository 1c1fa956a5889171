"""A bundle in memory: what one rank recorded of one optimizer step or rollout."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rollbook.replay.bundle.model import Expected, Index, Manifest
from rollbook.replay.bundle.tensorfile import Tensor


@dataclass(frozen=True, slots=True)
class Bundle:
    """Read, checked and complete. `tensors` are flat, [tokens], samples in index order; `terms` are float64 [samples],
    where they were recorded (see terms.py)."""

    path: Path
    rank: int
    expected_ranks: tuple[int, ...]
    manifest: Manifest
    index: Index
    expected: Expected
    tensors: Mapping[str, Tensor]
    terms: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def bundle_id(self) -> str:
        return self.index.bundle_id


@dataclass(frozen=True, slots=True)
class Cohort:
    """The bundles of all ranks of one step, in rank order; a single bundle is a cohort of one."""

    path: Path
    bundle_id: str
    bundles: tuple[Bundle, ...]
