"""A training that goes on from a checkpoint folder: what of the run still stands, and what its weights hold besides.

Versions only rise in a run, and TRL's `global_step` falls back to the checkpoint's. So the weights that the training
resumes with are a version above every one that the run has seen, and later ones are counted from there.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rollbook.infra.settings import Settings
from rollbook.producers.clients.trainer import Trainer
from rollbook.producers.errors import StartAnew
from rollbook.producers.identity import new_id
from rollbook.producers.observing.facts import Done, Facts, ObservedRow
from rollbook.producers.reading.ledger_topic import read_states
from rollbook.producers.sending.command import Command
from rollbook.producers.trl.run import LedgerRun
from rollbook.producers.trl.saved import NotOurs, OpenPart, Saved, check, read, read_steps
from rollbook.schemas.records.common import LearnerRef, PolicyRef
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.ledger import (
    CheckpointState,
    PolicyState,
    RunHead,
    TrajectoryState,
    TrajectoryStatus,
)
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.update import CheckpointSaved, Disposition, ReserveItem, ReserveMode
from rollbook.schemas.types import Part

DROPPED = "dropped_at_resume"
"""Why rows of a half-used generation buffer are not trained on: TRL generates anew."""
_READ_S = 60.0
_TAKEN = frozenset({TrajectoryStatus.RESERVED, TrajectoryStatus.CONSUMED})
_LOG = logging.getLogger("rollbook.producers")
T = TypeVar("T", bound=Part)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a checkpoint folder says, what its open update held, and what was recorded of its steps."""

    saved: Saved
    rows: tuple[ObservedRow, ...] = ()
    steps: tuple[StepRecording, ...] = ()


def resumed_from(folder: Path, run: LedgerRun, weights: PolicyRef) -> Resumed:
    """What a checkpoint folder of this run says, of the weights that TRL has loaded from it. Raises NotOurs."""
    saved, rows = read(folder)
    check(saved, folder, run_id=run.run_id, learner_id=run.learner_id, weights=weights)
    return Resumed(saved, rows, () if saved.open is None else read_steps(folder))


@dataclass(frozen=True)
class Standing:
    """What the ledger knows of the run after the learner has started anew. `policy` is the one of the checkpoint's last
    commit; `active` the one that workers should serve, which may hold what was undone."""

    policy: PolicyRef
    active: PolicyRef | None
    newest_version: int
    trajectories: Mapping[str, TrajectoryState] = field(repr=False)


def standing(settings: Settings, run_id: str, saved: Saved) -> Standing:
    """Read it. Raises NotOurs where the checkpoint's policy does not stand, EnvironmentFault."""
    states = read_states(settings, run_id, frozenset({"run", "policy", "trajectory"}), deadline_s=_READ_S)
    policies = _of(PolicyState, states)
    fit = [
        one
        for one in policies
        if one.artifact.hash == saved.policy.artifact_hash and not (one.orphaned or one.abandoned)
    ]
    if not fit:
        raise NotOurs(
            f"no policy of run {run_id} stands that has the weights of the last commit in checkpoint "
            f"{saved.checkpoint.id}: resume from an earlier checkpoint"
        )
    policy = max(fit, key=lambda one: one.version)
    return Standing(
        policy=PolicyRef(version=policy.version, artifact_hash=policy.artifact.hash),
        active=next((head.active for head in _of(RunHead, states)), None),
        newest_version=max(one.version for one in policies),
        trajectories={one.trajectory_id: one for one in _of(TrajectoryState, states)},
    )


def start_again(trainer: Trainer, settings: Settings, saved: Saved, epoch: int, *, observes: bool) -> Decision:
    """The learner's new epoch. An observed training that dies has told less than it saved: where the ledger has the
    last update of the checkpoint, it is told of the checkpoint now, on behalf of the epoch that saved it."""
    if observes and saved.last_update and not _is_known(settings, saved):
        # The decision on the contract, which was told again: before the first that is read there is no chain to note.
        trainer.decisions.wait_until(lambda: bool(trainer.decisions.chain), _READ_S)
        late = CheckpointSaved(
            header=trainer.header(),
            learner=LearnerRef(learner_id=saved.learner_id, epoch=epoch),
            checkpoint=saved.checkpoint,
            last_update_id=saved.last_update,
            policy=saved.policy,
            chain=trainer.decisions.chain,
        )
        trainer.ask(Command(late))
    return trainer.start(saved.checkpoint, expected_epoch=epoch)


def tell(decision: Decision, saved: Saved) -> None:
    """Say what the new start has undone: rows that the run trained on are free again."""
    changes = ", ".join(f"{change.predicate} {change.count}" for change in decision.mass_changes)
    _LOG.log(
        logging.WARNING if changes else logging.INFO,
        "run %s goes on from checkpoint %s at step %d: %s",
        saved.run_id,
        saved.checkpoint.id,
        saved.step,
        changes or "nothing was trained after it",
    )


def train_again(trainer: Trainer, resumed: Resumed, found: Standing) -> str | None:
    """Take the rows that the weights have seen of the update that was open when they were saved, in an update of its
    own; its id, none where nobody could train on them any more. Raises StartAnew where another learner has one."""
    part = resumed.saved.open
    if part is None:
        return None
    rows = _free(resumed.rows, found)
    _check_not_taken(part, found, resumed.saved)
    if not _stepped(part).intersection(row.trajectory_id for row in rows):
        return None
    with trainer.update(part.rollout_id, update_id=new_id()) as update:
        asked = list(dict.fromkeys([*(row.trajectory_id for row in rows), *_known(_in_recordings(resumed), found)]))
        items = [ReserveItem(trajectory_id=one, expected_revision=found.trajectories[one].revision) for one in asked]
        update.reserve(items, found.policy, mode=ReserveMode.AVAILABLE)
        held = {item.trajectory_id for item in update.held}
        current = {row.trajectory_id: row.current_log_probs for row in rows if row.trajectory_id in held}
        update.admit(current, found.policy, evidence=rows)
        update.start()
        trainable = set(update.trainable)
        for step in part.steps:
            if ids := [one for one in step if one in trainable]:
                update.step(ids)
        for recording in _recorded(resumed, found, trainable, asked):
            update.record_again(recording)
        left = [item.trajectory_id for item in update.held if item.trajectory_id not in _stepped(part)]
        update.drop(left, DROPPED, disposition=Disposition.DISCARD)
    return update.update_id


def tell_again(trainer: Trainer, resumed: Resumed, found: Standing) -> str | None:
    """The same as facts, in a run that observes."""
    part = resumed.saved.open
    if part is None:
        return None
    rows = [row for row in resumed.rows if row.trajectory_id in found.trajectories]
    if not _stepped(part).intersection(row.trajectory_id for row in rows):
        return None
    facts = Facts(new_id(), part.rollout_id, 0)
    ids = [row.trajectory_id for row in rows]
    facts.reserve(trainer, ids, found.policy)
    facts.admit(trainer, rows, found.policy, keep=True)
    facts.start(trainer)
    known = set(ids)
    steps = [tuple(one for one in step if one in known) for step in part.steps]
    for recording in _recorded(resumed, found, known, known):
        facts.record_again(trainer, recording)
    facts.commit(
        trainer,
        Done(tuple(step for step in steps if step), dict.fromkeys(ids, (DROPPED, Disposition.DISCARD))),
    )
    return facts.update_id


def _is_known(settings: Settings, saved: Saved) -> bool:
    states = read_states(settings, saved.run_id, frozenset({"checkpoint"}), deadline_s=_READ_S)
    return any(one.checkpoint_id == saved.checkpoint.id for one in _of(CheckpointState, states))


def _recorded(
    resumed: Resumed, found: Standing, trainable: Collection[str], asked: Collection[str]
) -> list[StepRecording]:
    """What was recorded of the steps that are told again, under the policy as the run numbers it now; nothing where the
    update cannot have all of their rows, or says nothing of one that the loss left out."""
    part = resumed.saved.open
    stepped = frozenset() if part is None else _stepped(part)
    whole = stepped <= set(trainable) and _in_recordings(resumed) <= set(asked)
    return [step.but(policy=found.policy) for step in resumed.steps] if whole else []


def _in_recordings(resumed: Resumed) -> frozenset[str]:
    """Also rows that the ledger refused: they stay in their step, and the decision on the update has to say so."""
    return frozenset(row.trajectory_id for step in resumed.steps for row in step.rows if not row.padding)


def _known(ids: Collection[str], found: Standing) -> list[str]:
    return sorted(one for one in ids if one in found.trajectories)


def _free(rows: Sequence[ObservedRow], found: Standing) -> list[ObservedRow]:
    """Those that somebody could train on."""
    known = found.trajectories
    return [
        row
        for row in rows
        if row.trajectory_id in known and known[row.trajectory_id].status is TrajectoryStatus.REWARDED
    ]


def _check_not_taken(part: OpenPart, found: Standing, saved: Saved) -> None:
    for trajectory_id in sorted(_stepped(part)):
        state = found.trajectories.get(trajectory_id)
        if state is not None and state.status in _TAKEN:
            raise StartAnew(
                f"the weights of checkpoint {saved.checkpoint.id} have been trained on trajectory {trajectory_id}, "
                f"which update {state.update_id} has taken since: resume from an earlier checkpoint"
            )


def _stepped(part: OpenPart) -> frozenset[str]:
    return frozenset(one for step in part.steps for one in step)


def _of(kind: type[T], states: Sequence[Part]) -> list[T]:
    return [one for one in states if isinstance(one, kind)]
