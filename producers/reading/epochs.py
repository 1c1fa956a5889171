"""What the ledger knows of a learner and its run: the epoch, for a supervisor that starts the next process, what a
checkpoint contains, and whether the run gates."""

from dataclasses import dataclass

from rollbook.infra.settings import Settings
from rollbook.producers.reading.ledger_topic import read_states
from rollbook.schemas.records.ledger import CheckpointState, LearnerState, RunConfig, UpdateState, UpdateStatus
from rollbook.schemas.records.run import Enforcement

_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Contents:
    """The committed updates in a checkpoint's weights: how many, and the last of them."""

    updates: int = 0
    last_update_id: str | None = None


def current_epoch(settings: Settings, run_id: str, learner_id: str, *, deadline_s: float = _DEADLINE_S) -> int:
    """The learner's epoch as the ledger last committed it; 0 when it never started. Raises EnvironmentFault.

    It is what the next `Trainer.start` must expect. A process that lost the race (EpochConflict) must not use it to try
    again itself: whoever decides that a learner is to be taken over does.
    """
    for state in read_states(settings, run_id, frozenset({"learner"}), deadline_s=deadline_s):
        if isinstance(state, LearnerState) and state.learner_id == learner_id:
            return state.epoch
    return 0


def enforcement_of(settings: Settings, run_id: str, *, deadline_s: float = _DEADLINE_S) -> Enforcement | None:
    """Whether a run gates or observes; none while the ledger knows no such run. Raises EnvironmentFault."""
    states = read_states(settings, run_id, frozenset({"config"}), deadline_s=deadline_s)
    return next((state.enforcement for state in states if isinstance(state, RunConfig)), None)


def contents_of(settings: Settings, run_id: str, checkpoint_id: str, *, deadline_s: float = _DEADLINE_S) -> Contents:
    """What an accepted checkpoint contains: its learner's standing commits up to its last. Raises EnvironmentFault."""
    states = read_states(settings, run_id, frozenset({"checkpoint", "update"}), deadline_s=deadline_s)
    saved = next((s for s in states if isinstance(s, CheckpointState) and s.checkpoint_id == checkpoint_id), None)
    if saved is None:
        return Contents()
    contained = [
        state
        for state in states
        if isinstance(state, UpdateState)
        and state.status is UpdateStatus.COMMITTED
        and state.learner is not None
        and state.learner.learner_id == saved.learner_id
        and state.commit_order <= saved.commit_order
    ]
    last = max(contained, key=lambda update: update.commit_order, default=None)
    return Contents(len(contained), None if last is None else last.update_id)
