"""One process of the training: its micro-batches of the step under way, and its part in what all do together."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rollbook.producers.trl.facts import Completion, MicroStep
from rollbook.producers.trl.guard import Guard
from rollbook.producers.trl.ranks import Ranks
from rollbook.producers.trl.session import Session, Taken
from rollbook.schemas.records.common import PolicyRef


class Process(Guard):
    """Every process of the training calls the same methods at the same places. What goes wrong in one of them raises in
    all; in observe mode it ends the recording in all, and the training goes on."""

    def __init__(self, ranks: Ranks, *, observes: bool) -> None:
        super().__init__(observes=observes)
        self._ranks = ranks
        self._session: Session | None = None
        self._micro_steps: list[MicroStep] = []
        self._unread: Exception | None = None
        self._is_open = False

    @property
    def lost(self) -> int:
        """In observe mode: what the main process did not tell to the ledger."""
        return 0 if self._session is None else self._session.lost

    def begin(self, make: Callable[[], Session]) -> None:
        """The training begins; `make` is called in the main process."""

        def act(_: Sequence[None]) -> None:
            self._session = make()

        self._ranks.share(lambda: None, act)

    def take(self, read: Callable[[], Sequence[Completion]], tokens: float, steps_per_generation: int) -> Taken:
        """A generation buffer begins, of which `read` gives the rows of this process."""

        def act(parts: Sequence[Sequence[Completion]]) -> Taken:
            rows = [row for part in parts for row in part]
            return self._main.take(rows, tokens, steps_per_generation)

        self._micro_steps, self._unread = [], None
        taken = self._ranks.share(read, act)
        self._is_open = True
        return taken

    def mine(self, rows: Sequence[int], count: int) -> list[int]:
        """Those of a generation's rows that are among the `count` of this process, numbered from 0."""
        first = self.first_row(count)
        return [at - first for at in rows if first <= at < first + count]

    def first_row(self, count: int) -> int:
        """The number in the generation of the first of the `count` rows of this process."""
        return self._ranks.rank * count

    def forwarded(self, read: Callable[[], MicroStep]) -> None:
        """One micro-batch went through the loss. What goes wrong is told when all speak next: raised here, it would
        leave the others in the middle of a step."""
        try:
            self._micro_steps.append(read())
        except Exception as error:
            self._unread = error

    def stepping(self) -> None:
        """The optimizer is about to step. In observe mode nobody need agree to it."""
        if self._is_open and not self._observes:
            self._ranks.share(self._rows, lambda parts: self._main.stepping([row for part in parts for row in part]))

    def stepped(self, policy: Callable[[], PolicyRef] | None) -> None:
        """It has stepped. `policy`, where the generation buffer is used up: the weights that it made."""
        if not self._is_open:
            return

        def act(shares: Sequence[tuple[MicroStep, ...]]) -> None:
            if self._observes:
                self._main.stepping([row for share in shares for micro in share for row in micro.rows])
            self._main.stepped(shares)
            if policy is not None:
                self._main.finish(policy())

        self._ranks.share(self._share, act)
        self._micro_steps = []
        self._is_open = policy is None

    def before_saving(self) -> None:
        """The weights are about to be saved. Where the ledger has fenced the learner, nothing is."""
        if not self._observes:
            self._ranks.share(lambda: None, lambda _: self._main.before_saving())

    def saved(self, folder: Path, weights: Callable[[], PolicyRef]) -> None:
        """TRL has saved them."""
        self._ranks.share(lambda: None, lambda _: self._main.saved(folder, weights()))

    def finish(self, policy: Callable[[], PolicyRef]) -> None:
        """The training ends, or generates anew, within a generation buffer."""
        if self._is_open:
            self._is_open = False
            self._ranks.share(lambda: None, lambda _: self._main.finish(policy()))

    def settle(self) -> None:
        """The training has ended: all hear what became of its last update."""
        if not self._observes:
            self._ranks.share(lambda: None, lambda _: self._main.settle())

    def close(self, error: BaseException | None) -> None:
        """The training has ended, or has failed."""
        if self._session is not None:
            self._session.close(error)

    def _share(self) -> tuple[MicroStep, ...]:
        if self._unread is not None:
            raise self._unread
        return tuple(self._micro_steps)

    def _rows(self) -> list[int]:
        return [row for micro in self._share() for row in micro.rows]

    @property
    def _main(self) -> Session:
        assert self._session is not None, "only the main process acts, and only once it has begun"
        return self._session
