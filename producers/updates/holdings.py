"""What an update holds and may train on, as the decisions that were read say it. Pure.

A row may enter an optimizer step only when the decision on `UpdateStarted` listed it and, with the drift gate, its
`Admit` was answered ok: `step` is where that is enforced.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from types import MappingProxyType

from rollbook.processors.reasons import Reason
from rollbook.producers.errors import NotTrainable
from rollbook.schemas.records.decision import ItemDecision
from rollbook.schemas.records.ledger import TrajectoryStatus
from rollbook.schemas.records.update import CommitStep, Disposition, DroppedItem
from rollbook.schemas.types import called

_TAKEN = frozenset({Reason.RESERVED.value, Reason.IDEMPOTENT_RETRY.value})
UNRESERVED = "trained_unreserved"
"""How an update names rows that it has without a reservation; the log never sees it."""
UNUSED = "unused"
"""Why a row was dropped that was held at the end and never stepped."""


class Holdings:
    """The rows of one update. `needs_admission`: the run's drift gate is required."""

    def __init__(self, update_id: str, rollout_id: int, *, needs_admission: bool) -> None:
        self._update_id = update_id
        self._rollout_id = rollout_id
        self._needs_admission = needs_admission
        self._held: dict[str, ItemDecision] = {}
        self._admitted: dict[str, ItemDecision] = {}
        self._refused: dict[str, ItemDecision] = {}
        self._listed: frozenset[str] | None = None
        self._steps: list[CommitStep] = []
        self._dropped: dict[str, DroppedItem] = {}

    @property
    def held(self) -> tuple[ItemDecision, ...]:
        """What the ledger says this update holds, in the order it was reserved."""
        return tuple(self._held.values())

    @property
    def admitted(self) -> MappingProxyType[str, ItemDecision]:
        """Answers to Admit that were ok, by trajectory."""
        return MappingProxyType(self._admitted)

    @property
    def refused(self) -> MappingProxyType[str, ItemDecision]:
        """The last refusal of a trajectory, by a Reserve or an Admit."""
        return MappingProxyType(self._refused)

    @property
    def trainable(self) -> tuple[str, ...]:
        """Trajectories that may enter an optimizer step now."""
        return tuple(trajectory_id for trajectory_id in self._held if self._obstacle(trajectory_id) is None)

    @property
    def stepped(self) -> frozenset[str]:
        """Rows that may be in the weights."""
        return frozenset(trajectory_id for step in self._steps for trajectory_id in step.trajectory_ids)

    def resume(
        self, held: Sequence[ItemDecision], admitted: Sequence[ItemDecision], refused: Sequence[ItemDecision]
    ) -> None:
        """Go on from what another process was answered."""
        self._held = {item.trajectory_id: item for item in held}
        self._admitted = {item.trajectory_id: item for item in admitted}
        self._refused = {item.trajectory_id: item for item in refused}

    def reserved(self, items: Sequence[ItemDecision]) -> None:
        """Take in the answer to a Reserve."""
        for item in items:
            if item.reason in _TAKEN:
                self._held[item.trajectory_id] = item
            else:
                self._refused[item.trajectory_id] = item

    def judged(self, items: Sequence[ItemDecision]) -> None:
        """Take in the answer to an Admit: what was refused and is no longer reserved has left the update."""
        for item in items:
            if item.reason == Reason.OK:
                self._admitted[item.trajectory_id] = item
                continue
            self._refused[item.trajectory_id] = item
            if item.state_after != TrajectoryStatus.RESERVED or item.reason == Reason.NOT_RESERVED:
                self._held.pop(item.trajectory_id, None)

    def started(self, items: Sequence[ItemDecision]) -> None:
        """Take in the answer to UpdateStarted: it lists what is held, and nothing can be added."""
        self._listed = frozenset(item.trajectory_id for item in items)
        self._held = {
            item.trajectory_id: self._held.get(item.trajectory_id, item) for item in items
        }  # a row that the ledger does not list is not ours, whatever we thought

    def unreserved(self, trajectory_ids: Collection[str]) -> None:
        """Take rows without an answer: the caller answers for them."""
        check_listed(trajectory_ids)
        items = [ItemDecision(trajectory_id=one, reason=UNRESERVED) for one in trajectory_ids]
        self.resume(items, items, ())
        self._listed = frozenset(self._held)

    def step(self, trajectory_ids: Collection[str]) -> CommitStep:
        """The next optimizer step trains on these. Raises NotTrainable, naming the first that must not."""
        check_listed(trajectory_ids)
        if not trajectory_ids:
            raise NotTrainable(
                f"step {len(self._steps)} of update {self._update_id} has no rows: leave the optimizer step out"
            )
        twice = [one for one, times in Counter(trajectory_ids).items() if times > 1]
        if twice:
            raise NotTrainable(
                f"trajectory {twice[0]} is named twice in step {len(self._steps)} of update {self._update_id}: name it "
                "once, however many rows of it the step has"
            )
        for trajectory_id in trajectory_ids:
            obstacle = self._obstacle(trajectory_id)
            if obstacle is not None:
                raise NotTrainable(
                    f"trajectory {trajectory_id} must not enter step {len(self._steps)} of update {self._update_id}: "
                    f"{obstacle}; train only on update.trainable"
                )
        step = CommitStep(rollout_id=self._rollout_id, step_id=len(self._steps), trajectory_ids=tuple(trajectory_ids))
        self._steps.append(step)
        return step

    def drop(self, trajectory_ids: Collection[str], reason: str, disposition: Disposition) -> None:
        """Held rows that will not be trained on. Raises NotTrainable for one that is not held or was stepped."""
        check_listed(trajectory_ids)
        stepped = self.stepped
        for trajectory_id in trajectory_ids:
            if trajectory_id not in self._held:
                problem = "the update does not hold it"
            elif trajectory_id in stepped:
                problem = "it was trained on already"
            else:
                item = DroppedItem(trajectory_id=trajectory_id, reason=reason, disposition=disposition)
                self._dropped[trajectory_id] = item
                continue
            raise NotTrainable(f"trajectory {trajectory_id} cannot be dropped from {self._update_id}: {problem}")

    def settle(self) -> tuple[tuple[CommitStep, ...], tuple[DroppedItem, ...]]:
        """Steps and dropped rows of the Commit: together exactly what is held. Rows never stepped are released."""
        stepped = self.stepped
        left = [trajectory_id for trajectory_id in self._held if trajectory_id not in stepped]
        dropped = tuple(
            self._dropped.get(trajectory_id)
            or DroppedItem(trajectory_id=trajectory_id, reason=UNUSED, disposition=Disposition.RELEASE)
            for trajectory_id in left
        )
        return tuple(self._steps), dropped

    def _obstacle(self, trajectory_id: str) -> str | None:
        if trajectory_id in self._dropped:
            return "it was dropped"
        if self._listed is None:
            return "the update is not started: call update.start() and read its decision first"
        refusal = self._refused.get(trajectory_id)
        if trajectory_id not in self._held:
            return f"the update does not hold it ({refusal.reason})" if refusal else "the update does not hold it"
        if trajectory_id not in self._listed:
            return "the decision on UpdateStarted does not list it"
        if self._needs_admission and trajectory_id not in self._admitted:
            return f"its Admit was refused ({refusal.reason})" if refusal else "no Admit of it was answered ok"
        return None


def check_listed(trajectory_ids: Collection[str]) -> None:
    """Raises NotTrainable for one id where a list of them is asked for, a text being a collection of its letters, and
    for a list of something else."""
    if isinstance(trajectory_ids, str):
        raise NotTrainable(f"trajectory ids are wanted as a list, and {trajectory_ids!r} is a text: put it in a list")
    if not isinstance(trajectory_ids, Collection):
        raise NotTrainable(f"trajectory ids are wanted as a list, and this is {called(trajectory_ids)}: give a list")
    others = [one for one in trajectory_ids if not isinstance(one, str)]
    if others:
        raise NotTrainable(f"a trajectory id is a str, and one of these is {called(others[0])}: give its trajectory_id")
