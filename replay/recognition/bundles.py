"""What a bundle holds for a search: its rewards and advantages, its log-probs and loss, as rows of equal length.

What format 1.1.0 records of a run is input like the rest: the cohort's other members, gamma and lambda, the numbers of
a loss, importance corrections. The convention that a bundle names is not: it is held against what the search finds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.bundle import Bundle, Cohort
from rollbook.replay.bundle.convention import Conventions, NamedConvention, RewardOnly
from rollbook.replay.bundle.model import Sample, StageId
from rollbook.replay.dialects.cells import too_uneven
from rollbook.replay.dialects.estimate import Rewarded, placed_at_end
from rollbook.replay.dialects.stated import batches_of, payloads_of, stated_loss
from rollbook.replay.recognition.search import LossGiven, Match, Tolerance, rank_advantages, rank_losses
from rollbook.replay.stages.batch import measure_of
from rollbook.replay.stages.conventional import conventions_of
from rollbook.schemas.errors import BadInput

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Subject:
    """One recorded result under every convention, nearest first; without `matches`, `lacks` says what is missing.
    `named`: the convention under which the bundle says that it was computed."""

    name: str
    matches: tuple[Match, ...] = ()
    lacks: str = ""
    named: NamedConvention | None = None

    @property
    def recognised(self) -> bool:
        return any(match.matches for match in self.matches)

    @property
    def of_named(self) -> Match | None:
        """The named convention under the others; None where none is named, or where it was not compared."""
        wanted = self.named and (self.named.framework, self.named.version, self.named.name)
        return next((one for one in self.matches if (one.framework, one.version, one.name) == wanted), None)

    @property
    def agrees(self) -> bool | None:
        """Whether the named convention is nearest, alone or among others that cannot be told apart; None where nothing
        is named or nothing was compared."""
        if self.named is None or not self.matches:
            return None
        return self.of_named is not None and self.of_named.rank == 1

    @property
    def confirmed(self) -> bool:
        """Some convention gives what was recorded, and so does the named one, if any."""
        return self.recognised and (self.named is None or (self.of_named is not None and self.of_named.matches))


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
    if uneven := too_uneven(lengths.tolist()):
        raise BadInput(f"{bundle.path}: {uneven}: capture a smaller step")
    there = np.arange(int(lengths.max()))[None, :] < lengths[:, None]
    mask = np.zeros(there.shape, dtype=np.bool_)
    mask[there] = np.frombuffer(b"".join(sample.loss_mask for sample in samples), dtype=np.bool_)
    return _Rows(there, mask)


def _advantages(bundle: Bundle) -> Subject:
    name, conventions = "advantages", conventions_of(bundle.index.config)
    named = conventions.advantages
    if StageId.ADVANTAGE_ESTIMATE not in bundle.manifest.stage_contracts:
        return Subject(name, lacks="the bundle has no contract for advantage.estimate", named=named)
    if "advantages" not in bundle.tensors:
        return Subject(name, lacks="the bundle records no advantages", named=named)
    if any(sample.group_index is None for sample in bundle.index.samples):
        return Subject(name, lacks="the bundle records no groups", named=named)
    rows = _rows(bundle)
    given, recorded = _rewarded(bundle, rows, conventions)
    matches = rank_advantages(given, recorded, _tolerance(bundle, StageId.ADVANTAGE_ESTIMATE))
    return Subject(name, matches, named=named)


def _rewarded(bundle: Bundle, rows: _Rows, conventions: Conventions) -> tuple[Rewarded, Floats]:
    """The samples and, below them, the members of the cohort that the step did not consume: rows of a reward without
    a token that counts, which are measured against like the others and compared nowhere; and the advantages that were
    recorded. Samples that are not measured are left out."""
    samples, others = bundle.index.samples, bundle.index.cohort or ()
    everyone: tuple[Sample | RewardOnly, ...] = (*samples, *others)
    below = np.zeros((len(others), rows.mask.shape[1]))
    measure = measure_of(bundle.index.unmeasured or (), samples, others)
    counts = np.ones(len(everyone), dtype=np.bool_) if measure is None else np.asarray(measure.counts)
    raw = np.array([one.raw_reward for one in everyone], dtype=np.float64)[counts]
    mask = np.concatenate([rows.mask, below != 0])[counts]
    values = bundle.tensors.get("values")
    given = Rewarded(
        placed_at_end(raw, mask),
        mask,
        np.array([one.group_index for one in everyone], dtype=np.int64)[counts],
        values=None if values is None else np.concatenate([rows.of(values), below])[counts],
        gamma=conventions.gamma,
        lam=conventions.lam,
    )
    return given, np.concatenate([rows.of(bundle.tensors["advantages"]), below])[counts]


_LOSS_TENSORS = ("log_probs", "old_log_probs", "advantages")


def _pg_loss(bundle: Bundle) -> Subject:
    name, recorded, conventions = "pg_loss", bundle.expected.loss_policy, conventions_of(bundle.index.config)
    named = conventions.loss
    if recorded is None:
        return Subject(name, lacks="the bundle records no loss", named=named)
    if missing := _missing(bundle, (*_LOSS_TENSORS, *payloads_of(conventions))):
        return Subject(name, lacks=f"the bundle records no {', '.join(missing)}", named=named)
    rows, index = _rows(bundle), bundle.index
    batches = batches_of(index.samples, index.identity.micro_batch_ids, conventions.micro_batch_tokens, rows.mask)
    found = stated_loss(index.config, conventions, lambda tensor: rows.of(bundle.tensors[tensor]), rows.mask, batches)
    given = LossGiven(found.policies, found.bounds, found.totals, found.additions)
    matches = rank_losses(given, recorded.pg_loss, _tolerance(bundle, StageId.LOSS_POLICY))
    return Subject(name, matches, named=named)


def _missing(bundle: Bundle, names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in bundle.tensors]


def _tolerance(bundle: Bundle, stage: StageId) -> Tolerance:
    found = bundle.manifest.comparison_policy.tolerances.get(stage)
    return Tolerance() if found is None else Tolerance(found.atol, found.rtol)
