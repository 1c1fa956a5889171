"""What the ledger writes into a checkpoint folder of TRL: which of the run's updates are in the saved weights.

TRL saves after any optimizer step, also within a generation buffer, whose update is open then. A checkpoint of the
ledger contains committed updates and nothing else, and the update cannot be committed early: a row that its next pass
trains on would be in two updates. So the checkpoint is of the commits before, and the folder says besides which steps
of the open update are in its weights (`OpenPart`). Who resumes from it starts from the commits, which gives all rows of
that update back, and then takes those that the weights have seen in an update of its own, before anything is generated:
so nobody trains on them again. The rest of the buffer TRL drops, and so does the ledger. What was recorded of these
steps lies in the folder, too: under the first update it is undone with it, and who died never sealed it.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from rollbook.producers.observing.facts import ObservedRow
from rollbook.schemas.codec import decode_as, encode
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.update import Checkpoint
from rollbook.schemas.types import Count, Id, Part, RunId, Text

NAME = "rollbook.json"
ROWS = "rollbook-rows.npz"
STEPS = "rollbook-steps.npz"
_FORMAT = 1
_LOG = logging.getLogger("rollbook.producers")


class NotOurs(BadInput):
    """A checkpoint folder that this run cannot be resumed from."""


class OpenPart(Part):
    """Steps of an update that was open when the weights were saved."""

    update_id: Id = Field(description="The update.")
    rollout_id: Count = Field(description="Its training iteration.")
    steps: tuple[tuple[Id, ...], ...] = Field(description="Trajectories of each optimizer step made so far.")


class Saved(Part):
    """The ledger's side of a checkpoint."""

    format: Count = Field(default=_FORMAT, description="Version of this file.")
    run_id: RunId = Field(description="The run.")
    learner_id: Id = Field(description="The learner.")
    checkpoint: Checkpoint = Field(description="Its id in the ledger, and the hash of the saved weights.")
    step: Count = Field(description="TRL's global_step.")
    policy: PolicyRef = Field(description="The policy of the last commit in them, which generated what is open.")
    next_rollout_id: Count = Field(description="Training iteration of the next generation buffer.")
    last_update: Text = Field(default="", description="The last update that was committed before; empty: none.")
    chain: Text = Field(default="", description="Chain head of the run as the learner had read it.")
    unreleased: tuple[Id, ...] = Field(default=(), description="Committed updates in them that no policy contains yet.")
    open: OpenPart | None = Field(default=None, description="What of the open update is in the weights.")


def write(folder: Path, saved: Saved, rows: Sequence[ObservedRow], steps: Sequence[StepRecording] = ()) -> None:
    """Put it into the folder; the file that makes it whole comes last. `rows`: what the open update holds; `steps`: its
    steps as each rank recorded them, or none."""
    (folder / STEPS).unlink(missing_ok=True)
    if steps:
        with (folder / STEPS).open("wb") as file:
            np.savez(file, *(np.frombuffer(encode(step), np.uint8) for step in steps))
    if saved.open is not None:
        with (folder / ROWS).open("wb") as file:
            np.savez(file, **_packed(rows))
    beside = folder / f"{NAME}.tmp"
    beside.write_text(saved.model_dump_json(indent=1), encoding="utf-8")
    beside.replace(folder / NAME)


def read(folder: Path) -> tuple[Saved, tuple[ObservedRow, ...]]:
    """What a folder says of itself, and the rows that its open update held. Raises NotOurs."""
    place = folder / NAME
    try:
        saved = Saved.model_validate_json(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotOurs(
            f"{place} is not there, so that the ledger cannot say what is in these weights: resume from a checkpoint "
            "that was saved with the ledger, or begin a new run from these weights"
        ) from None
    except (OSError, ValueError, ValidationError) as problem:
        raise NotOurs(f"{place} cannot be read ({type(problem).__name__}): resume from another checkpoint") from None
    if saved.format != _FORMAT:
        raise NotOurs(f"{place} has format {saved.format}, this version reads {_FORMAT}: use the version that wrote it")
    if saved.open is None:
        return saved, ()
    try:
        with np.load(folder / ROWS, allow_pickle=False) as arrays:
            rows = _unpacked(arrays)
    except Exception as problem:  # whatever the bytes are by now
        raise NotOurs(
            f"{folder / ROWS} cannot be read ({type(problem).__name__}): resume from another checkpoint"
        ) from None
    if {one for step in saved.open.steps for one in step} - {row.trajectory_id for row in rows}:
        raise NotOurs(f"{folder / ROWS} is not of {NAME} beside it: resume from another checkpoint")
    return saved, rows


def read_steps(folder: Path) -> tuple[StepRecording, ...]:
    """What was recorded of the steps of the open update; nothing where it cannot be read: a recording that is missing
    stops no training."""
    try:
        with np.load(folder / STEPS, allow_pickle=False) as arrays:
            return tuple(decode_as(StepRecording, arrays[name].tobytes()) for name in arrays.files)
    except FileNotFoundError:
        return ()
    except Exception as problem:  # whatever the bytes are by now
        _LOG.warning("%s cannot be read (%s): its steps are told without recordings", folder / STEPS, problem)
        return ()


def check(saved: Saved, folder: Path, *, run_id: str, learner_id: str, weights: PolicyRef) -> None:
    """Raises NotOurs unless the folder is of this run's learner, and the weights loaded from it are those saved.
    `weights`: as they are now, under TRL's global_step."""
    if (saved.run_id, saved.learner_id) != (run_id, learner_id):
        raise NotOurs(
            f"{folder} is of learner {saved.learner_id} in run {saved.run_id}, and {learner_id} in {run_id} shall be "
            "resumed from it: give the run and the learner that it is of"
        )
    if (saved.step, saved.checkpoint.digest) != (weights.version, weights.artifact_hash):
        raise NotOurs(
            f"the weights are not those that {folder} was saved with (step {weights.version}, saved at {saved.step}): "
            "resume from a folder that nothing else has written to"
        )


def _packed(rows: Sequence[ObservedRow]) -> dict[str, Any]:
    behavior = [row.log_probs for row in rows]
    return {
        "ids": np.array([row.trajectory_id for row in rows], np.str_),
        "lengths": np.array([len(values) for values in behavior], np.int64),
        "behavior": np.concatenate(behavior),
        "mask": np.concatenate([row.action_mask for row in rows]),
        "current": np.concatenate([np.asarray(row.current_log_probs, np.float32) for row in rows]),
    }


def _unpacked(arrays: Mapping[str, Any]) -> tuple[ObservedRow, ...]:
    bounds = np.cumsum(arrays["lengths"])[:-1]
    behavior, mask, current = (np.split(arrays[name], bounds) for name in ("behavior", "mask", "current"))
    ids = [str(one) for one in arrays["ids"]]
    return tuple(
        ObservedRow(one, [(values, active)], now)
        for one, values, active, now in zip(ids, behavior, mask, current, strict=True)
    )
