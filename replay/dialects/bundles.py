"""What a bundle holds for a search: its rewards and advantages, its log-probs and loss, as rows of equal length."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.bundle import Bundle, Cohort
from rollbook.replay.bundle.model import StageId
from rollbook.replay.dialects.estimate import Rewarded, placed_at_end
from rollbook.replay.dialects.loss import Bounds, Policies
from rollbook.replay.dialects.search import LossGiven, Match, Tolerance, rank_advantages, rank_losses
from rollbook.schemas.errors import BadInput

_MOST_CELLS = 2**26
"""Rows of very different lengths would be mostly padding."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Subject:
    """One recorded result under every convention, nearest first; without `matches`, `lacks` says what is missing."""

    name: str
    matches: tuple[Match, ...] = ()
    lacks: str = ""

    @property
    def recognised(self) -> bool:
        return any(match.matches for match in self.matches)


@dataclass(frozen=True, slots=True)
class RankDialects:
    rank: int
    advantages: Subject
    pg_loss: Subject

    @property
    def subjects(self) -> tuple[Subject, Subject]:
        return self.advantages, self.pg_loss


def dialects_of(cohort: Cohort) -> tuple[RankDialects, ...]:
    """Each rank by itself. Raises BadInput where its rows are too uneven to be laid side by side."""
    return tuple(RankDialects(bundle.rank, _advantages(bundle), _pg_loss(bundle)) for bundle in cohort.bundles)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the tokens of each sample lie in a matrix [samples, longest]: bool; and which of them count."""

    there: NDArray[np.bool_]
    mask: NDArray[np.bool_]

    def of(self, flat: Any) -> Floats:
        found = np.zeros(self.there.shape)
        found[self.there] = np.asarray(flat)
        return found


def _rows(bundle: Bundle) -> _Rows:
    samples = bundle.index.samples
    lengths = np.array([sample.response_length for sample in samples])
    if lengths.size * int(lengths.max()) > _MOST_CELLS:
        raise BadInput(
            f"{bundle.path}: {lengths.size} samples of up to {lengths.max()} tokens are too uneven to search; "
            "capture a smaller step"
        )
    there = np.arange(int(lengths.max()))[None, :] < lengths[:, None]
    mask = np.zeros(there.shape, dtype=np.bool_)
    mask[there] = np.frombuffer(b"".join(sample.loss_mask for sample in samples), dtype=np.bool_)
    return _Rows(there, mask)


def _advantages(bundle: Bundle) -> Subject:
    name = "advantages"
    if StageId.ADVANTAGE_ESTIMATE not in bundle.manifest.stage_contracts:
        return Subject(name, lacks="the bundle has no contract for advantage.estimate")
    if "advantages" not in bundle.tensors:
        return Subject(name, lacks="the bundle records no advantages")
    samples = bundle.index.samples
    groups = [sample.group_index for sample in samples]
    if None in groups:
        return Subject(name, lacks="the bundle records no groups")
    rows = _rows(bundle)
    values = bundle.tensors.get("values")
    raw = np.array([sample.raw_reward for sample in samples], dtype=np.float64)
    given = Rewarded(
        placed_at_end(raw, rows.mask),
        rows.mask,
        np.array(groups, dtype=np.int64),
        values=None if values is None else rows.of(values),
    )
    recorded = rows.of(bundle.tensors["advantages"])
    return Subject(name, rank_advantages(given, recorded, _tolerance(bundle, StageId.ADVANTAGE_ESTIMATE)))


_LOSS_TENSORS = ("log_probs", "old_log_probs", "advantages")


def _pg_loss(bundle: Bundle) -> Subject:
    name, recorded = "pg_loss", bundle.expected.loss_policy
    if recorded is None:
        return Subject(name, lacks="the bundle records no loss")
    if missing := _missing(bundle, _LOSS_TENSORS):
        return Subject(name, lacks=f"the bundle records no {', '.join(missing)}")
    rows, config = _rows(bundle), bundle.index.config
    new, old, advantages = (rows.of(bundle.tensors[tensor]) for tensor in _LOSS_TENSORS)
    given = LossGiven(Policies(new, old, advantages, rows.mask), Bounds(low=config.eps_clip, high=config.eps_clip_high))
    return Subject(name, rank_losses(given, recorded.pg_loss, _tolerance(bundle, StageId.LOSS_POLICY)))


def _missing(bundle: Bundle, names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in bundle.tensors]


def _tolerance(bundle: Bundle, stage: StageId) -> Tolerance:
    found = bundle.manifest.comparison_policy.tolerances.get(stage)
    return Tolerance() if found is None else Tolerance(found.atol, found.rtol)
