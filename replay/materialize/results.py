"""The scalar results of a recording, whole and split by row. Pure."""

from collections.abc import Mapping
from math import fsum

import numpy as np

from rollbook.replay.bundle.convention import ValueLoss
from rollbook.replay.bundle.model import Config, PolicyLoss
from rollbook.replay.bundle.tensorfile import Tensor
from rollbook.replay.materialize.evidence import Recording
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.replay.materialize.tensors import names_value_loss
from rollbook.replay.stages.conventional import names_loss

_SCALARS = ("loss", "pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")
_TERMS = _SCALARS[1:]
_VALUE, _VALUE_CLIPPED = "value_loss", "value_clipfrac"
# How far a sum of float32 terms may be off, whatever the order of its additions.
_SUM_ATOL, _SUM_RTOL = 1e-6, 1e-5


def policy_loss(recording: Recording, config: Config) -> PolicyLoss:
    """Raises CannotWrite where one is missing, or where they are divided by what no named convention says."""
    step = recording.step
    is_explained = config.conventions is not None and config.conventions.loss is not None
    if step.normalizer != 1 and not is_explained:
        raise CannotWrite(
            NotWritten.NOT_REPRESENTABLE,
            f"{recording.place}: normalizer {step.normalizer!r}, but format 1.0.0 holds plain sums over rows: name the "
            "convention of the loss in conventions",
        )
    results = _by_name(recording)
    if missing := [name for name in _SCALARS if name not in results]:
        raise CannotWrite(
            NotWritten.INCOMPLETE_RECORDING, f"{recording.place}: results lack {', '.join(missing)}: record them"
        )
    return PolicyLoss(**{name: results[name] for name in _SCALARS})


def value_loss(recording: Recording, config: Config) -> ValueLoss | None:
    """That of the critic, where its convention is named. Raises CannotWrite where it is missing then."""
    if not names_value_loss(config):
        return None
    results = _by_name(recording)
    if _VALUE not in results:
        raise CannotWrite(NotWritten.INCOMPLETE_RECORDING, f"{recording.place}: results lack {_VALUE}: record it")
    return ValueLoss(value_loss=results[_VALUE], value_clipfrac=results.get(_VALUE_CLIPPED))


def row_terms(recording: Recording, config: Config) -> Mapping[str, Tensor]:
    """The results split by row, where the trainer recorded them; padding rows contribute nothing to a sum. Under a
    named convention a result is no sum of them."""
    step = recording.step
    kept = np.array([not row.padding for row in step.rows], np.bool_)
    results = {result.name: result.value for result in step.results}
    known = (*_TERMS, *((_VALUE, _VALUE_CLIPPED) if names_value_loss(config) else ()))
    sums = () if names_loss(config) else _TERMS
    found: dict[str, Tensor] = {}
    for terms in step.row_terms:
        if terms.name not in known:
            continue
        values = np.asarray(terms.values, np.float64)
        place = f"{recording.place}: row_terms {terms.name}"
        if terms.name in found:
            raise CannotWrite(NotWritten.DISAGREEMENT, f"{place} are there twice")
        if len(values) != len(step.rows):
            raise CannotWrite(NotWritten.DISAGREEMENT, f"{place} has {len(values)} values for {len(step.rows)} rows")
        total = fsum(values)
        allowed = _SUM_ATOL + _SUM_RTOL * float(np.abs(values).sum())
        if terms.name in sums and abs(total - results.get(terms.name, total)) > allowed:
            raise CannotWrite(
                NotWritten.DISAGREEMENT, f"{place} add up to {total!r}, results have {results[terms.name]!r}"
            )
        if values[~kept].any():
            raise CannotWrite(NotWritten.DISAGREEMENT, f"{place} has a value other than 0 for a row that is padding")
        found[terms.name] = values[kept]
    return found


def _by_name(recording: Recording) -> Mapping[str, float]:
    results = {result.name: result.value for result in recording.step.results}
    if len(results) != len(recording.step.results):
        raise CannotWrite(NotWritten.INCOMPLETE_RECORDING, f"{recording.place}: results name one twice")
    return results
