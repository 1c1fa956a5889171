"""The client of a trainer: starts as a learner, then makes updates."""

from collections.abc import Collection, Sequence

from rollbook.infra.settings import Settings
from rollbook.producers.client import Client, Options
from rollbook.producers.command import Command
from rollbook.producers.errors import OutOfOrder, StartAnew
from rollbook.producers.fetch import Fetcher
from rollbook.producers.identity import new_id
from rollbook.producers.loading import LoadedTrajectory, load_trajectories
from rollbook.producers.outbox import Outbox
from rollbook.producers.update import Update
from rollbook.schemas.records.common import Header, LearnerRef, Source, SourceKind
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.records.update import Checkpoint, LearnerStarted

_LOAD_S = 60.0


class Trainer(Client):
    """One incarnation of a learner. `drift_gate` is what the run is configured with.

    After a fence, a refused Commit or a failure in a started update every call raises StartAnew: the process exports
    nothing and exits, and a new one starts the learner anew.
    """

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        learner_id: str,
        *,
        incarnation: str | None = None,
        drift_gate: DriftGate = DriftGate.REQUIRED,
        rank: int = 0,
        options: Options | None = None,
    ) -> None:
        source = Source(kind=SourceKind.TRAINER, id=learner_id)
        super().__init__(settings, run_id, source, options, commands=True)
        self._learner_id = learner_id
        self._incarnation = new_id() if incarnation is None else incarnation
        self._drift_gate = drift_gate
        self._rank = rank
        self._learner: LearnerRef | None = None
        self._condemned: StartAnew | None = None
        self._own_updates = 0
        self._weights_settled = True
        self._fetcher: Fetcher | None = None

    def start(self, checkpoint: Checkpoint | None = None, *, expected_epoch: int = 0) -> Decision:
        """Take the learner over, with the weights of the checkpoint (none: the initial policy's).

        `expected_epoch` is the epoch that this process believes to follow; the first is 0. Raises EpochConflict when
        another process was faster: this one exits.
        """
        record = LearnerStarted(
            header=self._header(),
            learner_id=self._learner_id,
            incarnation=self._incarnation,
            expected_epoch=expected_epoch,
            checkpoint=checkpoint,
        )
        decision = self.ask(Command(record))
        assert decision.learner is not None, "a decision on LearnerStarted names the epoch"
        self._learner = decision.learner
        return decision

    def update(self, rollout_id: int, *, update_id: str | None = None) -> Update:
        """The update of a training iteration, to be used as a context manager; its id is never used again."""
        self._check()
        needs_admission = self._drift_gate is DriftGate.REQUIRED
        return Update(self, update_id or new_id(), rollout_id, needs_admission=needs_admission, rank=self._rank)

    @property
    def learner(self) -> LearnerRef:
        """The learner in the epoch of this process. Raises OutOfOrder before `start`."""
        if self._learner is None:
            raise OutOfOrder(f"learner {self._learner_id} is not started: call trainer.start() and read its decision")
        return self._learner

    @property
    def own_updates(self) -> int:
        """Updates that this process has committed."""
        return self._own_updates

    @property
    def may_export(self) -> bool:
        """Whether the weights may leave as a policy or a checkpoint now.

        So it is from an accepted start to the first step, and from a commit whose decision was read to the next step.
        """
        return self._learner is not None and self._condemned is None and self._weights_settled

    # What an update asks of its trainer (rollbook.producers.exchange.Desk).

    @property
    def outbox(self) -> Outbox:
        return self._outbox

    def header(self) -> Header:
        return self._header()

    def ask(self, command: Command) -> Decision:
        self._check()
        try:
            return self._ask(command)
        except StartAnew as cause:
            self.condemn(cause)
            raise

    def condemn(self, cause: StartAnew) -> None:
        self._condemned = self._condemned or cause

    def changed_weights(self) -> None:
        self._weights_settled = False

    def committed(self) -> None:
        self._own_updates += 1
        self._weights_settled = True

    def activity(self, record_types: Collection[str]) -> int:
        return self._decisions.activity(record_types)

    def wait_for_activity(self, record_types: Collection[str], since: int, deadline_s: float) -> bool:
        return self._decisions.wait_for_activity(record_types, since, deadline_s)

    def read(self, items: Sequence[ItemDecision]) -> list[LoadedTrajectory]:
        if not items:
            return []
        if self._fetcher is None:
            self._fetcher = Fetcher(self._settings)
        return load_trajectories(self._fetcher, self._settings, self._outbox.partition, items, deadline_s=_LOAD_S)

    def close(self, deadline_s: float | None = None) -> None:
        try:
            super().close(deadline_s)
        finally:
            if self._fetcher is not None:
                self._fetcher.close()
                self._fetcher = None

    def _check(self) -> None:
        self._connection.check()
        if self._condemned is not None:
            raise StartAnew(f"learner {self._learner_id} is over in this process ({self._condemned})")
