"""The history of one trajectory, from its generation to its end."""

from dataclasses import dataclass

from rollbook.infra.looking.groups import Survivorship, survivorship
from rollbook.infra.looking.named import names_trajectory
from rollbook.infra.looking.noted import Noted, among, note
from rollbook.infra.looking.refold import Step
from rollbook.processors.ledger.store import Run
from rollbook.processors.lifecycle import NONE
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import PendingFact, TrajectoryState

FORGOTTEN = "forgotten"
"""The state of what the ledger has let go; it never comes back."""


@dataclass(frozen=True, slots=True)
class TrajectoryPage:
    """A trajectory: what is known of it last, what became of its group, and its history."""

    kind: str
    id: str
    state: str
    known: TrajectoryState | None
    raw_reward: float | None
    """None where it has no reward; a failure is no reward of 0."""
    waiting: PendingFact | None
    group: Survivorship | None
    """Its group now, those that failed among them."""
    history: tuple[Noted, ...]


class TrajectoryWatch:
    """Notes every record that changed the trajectory, judged it, or named it in vain."""

    def __init__(self, trajectory_id: str) -> None:
        self._id = trajectory_id
        self._known: TrajectoryState | None = None
        self._before: TrajectoryState | None = None
        self._waited: PendingFact | None = None
        self._history: list[Noted] = []

    def before(self, run: Run) -> None:
        """The trajectory as it stands."""
        self._before = run.trajectories.get(self._id)
        self._waited = run.pending.get(self._pending)

    def after(self, step: Step) -> None:
        """What became of it."""
        now = step.run.trajectories.get(self._id)
        waits = step.run.pending.get(self._pending)
        decision = step.decision
        named = next((item for item in decision.items if item.trajectory_id == self._id), None)
        # A duplicate repeats the first answer, which says nothing of now.
        item = None if decision.outcome is Outcome.DUPLICATE else named
        released = [fact for fact in decision.released if fact.subject_id == self._id]
        changed = now != self._before or waits != self._waited
        told = named is not None or released or decision.detail == self._id  # the detail of not_held and the like
        if changed or told or names_trajectory(step, self._id):
            before = self._state(self._before)
            after = self._state(now) if now is not None or self._before is None else FORGOTTEN
            revision = None if now is None else now.revision
            took = among(step, self._id, "trajectories", "facts") if changed and item is None else ()
            self._history.append(
                note(
                    step,
                    before,
                    after,
                    trajectory_id=self._id,
                    revision=revision,
                    released=released,
                    item=item,
                    among=took,
                )
            )
        self._known = now or self._before or self._known

    def page(self, run: Run) -> TrajectoryPage | None:
        """The page at the end of the run's log; None when no record ever named it."""
        if not self._history:
            return None
        return TrajectoryPage(
            kind="trajectory",
            id=self._id,
            state=self._history[-1].after,
            known=self._known,
            raw_reward=None,
            waiting=run.pending.get(self._pending),
            group=None if self._known is None else survivorship(run, (self._known.group_id,)),
            history=tuple(self._history),
        )

    @property
    def _pending(self) -> str:
        return f"trajectory {self._id}"

    def _state(self, trajectory: TrajectoryState | None) -> str:
        if trajectory is not None:
            return trajectory.status.value
        return NONE if self._known is None else FORGOTTEN
