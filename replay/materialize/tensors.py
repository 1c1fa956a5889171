"""The arrays of a recording as the payloads of a bundle: without padding rows, and finite. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from rollbook.replay.bundle.model import Config, StageId
from rollbook.replay.bundle.tensorfile import Tensor
from rollbook.replay.materialize.checks import Row
from rollbook.replay.materialize.evidence import Recording
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.replay.stages.table import STAGES
from rollbook.schemas.digests import floats_of, mask_of
from rollbook.schemas.records.payload import ArrayName

_REQUIRED = (ArrayName.OLD_LOG_PROBS, ArrayName.LOG_PROBS, ArrayName.ENTROPY, ArrayName.ADVANTAGES)
_WITH_KL = (ArrayName.REF_LOG_PROBS, ArrayName.KL)
_OPTIONAL = (*_WITH_KL, ArrayName.RETURNS)
_DISTANCE = (ArrayName.OLD_LOG_PROBS.value, ArrayName.REF_LOG_PROBS.value, ArrayName.KL.value)
_REWARDS = (ArrayName.ADVANTAGES.value, ArrayName.RETURNS.value)
_PAYLOADS = {ArrayName.BEHAVIOR_LOG_PROBS: "rollout_log_probs"}
_ARRAYS = {payload: name for name, payload in _PAYLOADS.items()}
"""What is called otherwise in a bundle."""


def token_tensors(recording: Recording, rows: Sequence[Row], config: Config) -> Mapping[str, Tensor]:
    """Every array that a stage needs under the bundle's config, and some that are written where they are there. Raises
    CannotWrite where one is missing or has another length."""
    recorded = {array.name: array.data for array in recording.step.arrays}
    required = _required(config)
    for name in required:
        if name not in recorded:
            raise CannotWrite(
                NotWritten.INCOMPLETE_RECORDING, f"{recording.place} has no array {name.value}: record it"
            )
    tokens = sum(len(row.loss_mask) for row in recording.step.rows)
    kept = np.zeros(tokens, np.bool_)
    for row in rows:
        kept[row.start : row.end] = True
    tensors = {}
    for name in dict.fromkeys((*required, *_OPTIONAL)):
        if (data := recorded.get(name)) is None:
            continue
        if len(data) != 4 * tokens:
            raise CannotWrite(
                NotWritten.DISAGREEMENT,
                f"{recording.place}: array {name.value} has {len(data)} bytes, its rows have {tokens} tokens",
            )
        tensors[_PAYLOADS.get(name, name.value)] = floats_of(data)[kept]
    return _finite_where_masked(tensors, rows)


def _required(config: Config) -> tuple[ArrayName, ...]:
    """A critic's loss alone needs what only some trainings have."""
    stages = [stage for name, stage in STAGES.items() if name is not StageId.LOSS_VALUE or names_value_loss(config)]
    needed = [_ARRAYS.get(name) or ArrayName(name) for stage in stages for name in stage.payloads(config)]
    return tuple(dict.fromkeys((*_REQUIRED, *(_WITH_KL if config.kl_coef != 0 else ()), *needed)))


def names_value_loss(config: Config) -> bool:
    return config.conventions is not None and config.conventions.value_loss is not None


def _finite_where_masked(tensors: dict[str, Tensor], rows: Sequence[Row]) -> Mapping[str, Tensor]:
    """A bundle holds finite values only, a recording anything where its mask is 0: there 0 is written for what is not
    finite, so that each stage gives again what stands there (the distance of 0 to 0 is 0, an advantage is its row's
    reward). Active values are left as they are, for the format to refuse."""
    if all(np.isfinite(tensor).all() for tensor in tensors.values()):
        return tensors
    masked = ~np.concatenate([mask_of(row.row.loss_mask) for row in rows])
    rewards = np.repeat([row.row.reward for row in rows], [len(row.row.loss_mask) for row in rows])
    distance = [tensors[name] for name in _DISTANCE if name in tensors]
    unknown = ~np.logical_and.reduce([np.isfinite(tensor) for tensor in distance])
    found = {}
    for name, tensor in tensors.items():
        noise = masked & (unknown if name in _DISTANCE else ~np.isfinite(tensor))
        found[name] = np.where(noise, rewards.astype(np.float32) if name in _REWARDS else np.float32(0), tensor)
    return found
