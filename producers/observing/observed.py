"""One update of a learner that is only observed: it says what the training does, waits for nothing, refuses nothing."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from rollbook.producers.arrays import size_of
from rollbook.producers.clients.trainer import Trainer
from rollbook.producers.observing.facts import Done, Facts, ObservedRow, snapshot
from rollbook.producers.observing.observer import Observer
from rollbook.producers.updates.holdings import UNUSED, check_listed
from rollbook.producers.updates.recording import StepArrays
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.update import Disposition


class ObservedUpdate:
    """An update as a context manager, made by `ObservingTrainer.update`; its calls are those of `Update`.

    Leaving the block without an exception commits the steps that were taken; an exception before `start` aborts, and
    one after it leaves the update open, since its rows may be in the weights. Every call returns at once.
    """

    def __init__(self, observer: Observer, facts: Facts) -> None:
        self._observer = observer
        self._facts = facts
        self._steps: list[tuple[str, ...]] = []
        self._not_trained: dict[str, tuple[str, Disposition]] = {}
        self._started = False
        self._over = False

    @property
    def update_id(self) -> str:
        return self._facts.update_id

    def reserve(self, trajectory_ids: Collection[str], policy: PolicyRef) -> None:
        """These rows are taken from the trainer's own queue, by a learner with this policy."""
        with self._quietly():
            check_listed(trajectory_ids)
            ids = tuple(trajectory_ids)
            self._not_trained.update(dict.fromkeys(ids, (UNUSED, Disposition.RELEASE)))
            self._tell(lambda trainer: self._facts.reserve(trainer, ids, policy))

    def admit(self, rows: Sequence[ObservedRow], policy: PolicyRef, *, keep_log_probs: bool = False) -> None:
        """Show the drift of rows, for the ledger to judge afterwards; `keep_log_probs` publishes the current ones."""
        with self._quietly():
            taken = [row.snapshot() for row in rows]
            size = sum(row.size for row in taken)
            self._tell(lambda trainer: self._facts.admit(trainer, taken, policy, keep=keep_log_probs), size)

    def start(self) -> None:
        """Rows enter the weights from here on."""
        self._started = True
        self._tell(self._facts.start)

    def step(self, trajectory_ids: Collection[str]) -> int:
        """An optimizer step with these rows; returns its step id."""
        with self._quietly():
            check_listed(trajectory_ids)
            self._steps.append(tuple(trajectory_ids))
        return len(self._steps) - 1

    def drop(
        self, trajectory_ids: Collection[str], reason: str, *, disposition: Disposition = Disposition.RELEASE
    ) -> None:
        """Rows that were taken and will not be trained on."""
        with self._quietly():
            check_listed(trajectory_ids)
            self._not_trained.update(dict.fromkeys(trajectory_ids, (reason, disposition)))

    def record_step(self, step_id: int, step: StepArrays) -> None:
        """Queue the recording of an optimizer step, for replay."""
        with self._quietly():
            copied = snapshot(step)
            size = sum(map(size_of, copied.arrays.values()))
            self._tell(lambda trainer: self._facts.record(trainer, step_id, copied), size)

    def commit(self) -> None:
        """The steps are in the weights; leaving the block says so too. Recordings are sealed after it."""
        if not self._over:
            self._over = self._facts.is_over = True
            done = Done(tuple(self._steps), dict(self._not_trained))
            self._tell(lambda trainer: self._facts.commit(trainer, done))

    def __enter__(self) -> "ObservedUpdate":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._facts.is_over = True
        if error is None:
            self.commit()
        elif not self._started and not self._over:
            self._over = True
            text = f"{type(error).__name__} at the learner"
            self._tell(lambda trainer: self._facts.abort(trainer, text))

    def _tell(self, tell: Callable[[Trainer], None], size: int = 0) -> None:
        self._observer.tell(tell, size)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Whatever was handed over, the training goes on."""
        try:
            yield
        except Exception as error:
            problem = f"update {self.update_id} is recorded without an event ({type(error).__name__}: {error})"
            self._observer.lose(BadInput(f"{problem}: hand over what the call asks for"))
