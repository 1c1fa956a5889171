"""The client of a trainer: starts as a learner, then makes updates, and saves what they led to."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import TypeVar

from rollbook.infra.settings import Settings
from rollbook.producers import given
from rollbook.producers.arrays import Whole, real
from rollbook.producers.clients.client import Client, Options
from rollbook.producers.errors import ClientBroken, OutOfOrder, PayloadLost, Refused, StartAnew, WrongEnforcement
from rollbook.producers.identity import new_id
from rollbook.producers.reading.decisions import DecisionReader
from rollbook.producers.reading.epochs import Contents, contents_of, enforcement_of
from rollbook.producers.reading.fetch import Fetcher
from rollbook.producers.reading.loading import LoadedTrajectory, load_trajectories
from rollbook.producers.reading.verdicts import Verdicts
from rollbook.producers.redaction.policy import Redaction
from rollbook.producers.sending.command import Command
from rollbook.producers.sending.outbox import Outbox, PayloadBytes
from rollbook.producers.updates.handle import UpdateHandle
from rollbook.producers.updates.renewal import RENEWALS_A_LEASE
from rollbook.producers.updates.update import Update
from rollbook.producers.updates.weights import Weights
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.records.common import Header, LearnerRef, PayloadRef, PolicyRef, Source, SourceKind
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.records.run import DriftGate, Enforcement
from rollbook.schemas.records.update import Checkpoint, CheckpointSaved, LearnerStarted

_LOAD_S = 60.0
_PAYLOADS_S = 30.0
_PAUSE_S = 1.0
_NAME_CHARACTERS = 160
_LOG = logging.getLogger("rollbook.producers")
T = TypeVar("T")


class OnUnavailable(StrEnum):
    """What a trainer does that gets no decision in time: raise, wait for as long as it takes, or raise and let the
    caller go on without (`Update.proceed_unreserved`)."""

    STOP = "stop"
    WAIT = "wait"
    PROCEED_UNRESERVED = "proceed_unreserved"


class Trainer(Client):
    """One incarnation of a learner, in a run that gates. `drift_gate` and `lease_ms` are what the run is configured
    with: with leases, each update is renewed in the background.

    After a fence, a refused Commit or a failure in a started update every call raises StartAnew: the process exports
    nothing and exits, and a new one reloads the learner's last checkpoint and starts anew.

    A process that hands an update over (`Update.handle`) has not the learner's weights any more, whatever becomes of
    it: it may reserve and hand over further ones, but starts and adopts none, and exports nothing, until it starts
    anew.
    """

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        learner_id: str,
        *,
        incarnation: str | None = None,
        drift_gate: DriftGate = DriftGate.REQUIRED,
        lease_ms: int = 0,
        on_unavailable: OnUnavailable = OnUnavailable.STOP,
        rank: int = 0,
        options: Options | None = None,
        enforcement: Enforcement = Enforcement.GATE,
        verdicts: Verdicts | None = None,
    ) -> None:
        source = Source(kind=SourceKind.TRAINER, id=learner_id)
        self._on_unavailable = given.one_of(OnUnavailable, on_unavailable, "on_unavailable")
        self._drift_gate = given.one_of(DriftGate, drift_gate, "drift_gate")
        self._enforcement = given.one_of(Enforcement, enforcement, "enforcement")
        self._lease_ms = given.whole(lease_ms, "lease_ms")
        self._rank = given.whole(rank, "rank")
        super().__init__(settings, run_id, source, options, commands=True, verdicts=verdicts)
        self._learner_id = learner_id
        self._incarnation = new_id() if incarnation is None else incarnation
        self._learner: LearnerRef | None = None
        self._condemned: StartAnew | None = None
        self._weights = Weights(learner_id)
        self._saving: Command | None = None
        self._saved = False
        self._fetcher: Fetcher | None = None

    def start(self, checkpoint: Checkpoint | None = None, *, expected_epoch: int = 0) -> Decision:
        """Take the learner over, with the weights of the checkpoint (none: the initial policy's), which are those of
        this process from here on.

        `expected_epoch` is the epoch that this process believes to follow; the first is 0. Raises EpochConflict when
        another process was faster: this one exits. Raises WrongEnforcement in a run that only observes.
        """
        is_fit = self._learner is not None or self._check_enforcement()
        record = LearnerStarted(
            header=self._header(),
            learner_id=self._learner_id,
            incarnation=self._incarnation,
            expected_epoch=expected_epoch,
            checkpoint=checkpoint,
        )
        decision = self.ask(Command(record))
        assert decision.learner is not None, "a decision on LearnerStarted names the epoch"
        if decision.learner != self._learner:  # and not the answer to a start that was answered before
            found = Contents()
            if checkpoint is not None:
                found = self._insist(lambda: contents_of(self._settings, self._run_id, checkpoint.id))
            self._weights.loaded(found)
            self._saving = None
        if not is_fit:  # the run was configured only meanwhile
            self._check_enforcement()
        self._learner = decision.learner
        return decision

    def update(self, rollout_id: Whole, *, update_id: str | None = None, renew_every_s: float | None = None) -> Update:
        """The update of a training iteration, to be used as a context manager; its id is never used again.

        While it is open it is renewed every `renew_every_s` (0: never; by default three times a lease).
        """
        return self._make_update(new_id() if update_id is None else update_id, real(rollout_id), renew_every_s)

    def adopt(self, handle: UpdateHandle, *, renew_every_s: float | None = None) -> Update:
        """Go on with an update that another process of this learner's epoch reserved and handed over.

        This one need not be started: it then acts for the handle's epoch, and its weights must be those that contain
        the handle's `own_updates`. Raises OutOfOrder for another's handle; where the update that was handed over before
        it was not adopted here, so that these weights lack it; and in a process that has handed one over itself.
        """
        self._check()
        given.a(UpdateHandle, handle, "Reserve", "handle")
        if handle.run_id != self._run_id or handle.learner.learner_id != self._learner_id:
            raise OutOfOrder(
                f"the handle is of learner {handle.learner.learner_id} in run {handle.run_id}, this trainer is "
                f"{self._learner_id} in {self._run_id}: adopt it where it belongs"
            )
        if self._learner is not None and self._learner != handle.learner:
            raise OutOfOrder(
                f"the handle is of epoch {handle.learner.epoch}, this trainer acts for epoch {self._learner.epoch}: a "
                "learner that starts anew ends what its older epoch reserved"
            )
        self._weights.adopt(handle, known=self._learner is not None)
        self._learner = handle.learner
        update = self._make_update(handle.update_id, handle.rollout_id, renew_every_s)
        update.resume(handle)
        return update

    def checkpoint_saved(self, checkpoint_id: str, digest: str, policy: PolicyRef) -> Decision:
        """Say that the weights as they are now are on disk under this id, so that a new process may start from them.

        `policy` is the learner's newest one. Raises OutOfOrder unless `may_export`. It may be called again with the
        same arguments, after DecisionTimeout or for the answer of before.
        """
        self._check()
        self.check_trains()
        if not self.may_export:
            raise OutOfOrder(
                f"the weights of {self._learner_id} may not be exported now: save between a commit that was read and "
                "the next step"
            )
        checkpoint = Checkpoint(id=checkpoint_id, digest=digest)
        command = self._same_save(checkpoint, policy) or Command(
            CheckpointSaved(
                header=self._header(),
                learner=self.learner,
                checkpoint=checkpoint,
                last_update_id=self.last_update_id,
                policy=policy,
                chain=self._decisions.chain,
            )
        )
        self._saving, self._saved = command, False
        try:
            decision = self.ask(command)
        except Refused:
            self._saving = None
            raise
        self._saved = True
        return decision

    def new_checkpoint_id(self) -> str:
        """A checkpoint id that never recurs; it names the learner and its epoch, so that two processes never write to
        the same place."""
        return f"{self._learner_id[:_NAME_CHARACTERS]}-e{self.learner.epoch}-{new_id()}"

    @property
    def learner(self) -> LearnerRef:
        """The learner in the epoch of this process. Raises OutOfOrder before `start`."""
        if self._learner is None:
            raise OutOfOrder(f"learner {self._learner_id} is not started: call trainer.start() and read its decision")
        return self._learner

    @property
    def own_updates(self) -> int:
        """Updates in this process's weights: those of its checkpoint, and those that it has committed."""
        return self._weights.own_updates

    @property
    def last_update_id(self) -> str | None:
        """The last of them in commit order; none: the initial policy's weights."""
        return self._weights.last_update_id

    @property
    def may_export(self) -> bool:
        """Whether the weights may leave as a policy or a checkpoint now.

        So it is from an accepted start to the first step, and from a commit whose decision was read to the next step;
        never from a process that handed an update over, which does not have the weights.
        """
        return self._learner is not None and self._condemned is None and self._weights.may_leave

    # What an update asks of its trainer (rollbook.producers.updates.exchange.Desk).

    @property
    def outbox(self) -> Outbox:
        return self._outbox

    @property
    def decisions(self) -> DecisionReader:
        return self._decisions

    @property
    def redaction(self) -> Redaction:
        return self._redaction

    def header(self) -> Header:
        return self._header()

    def ask(self, command: Command) -> Decision:
        self._check()
        again = True  # a caller that asks once more wants one more copy; who waits needs none while one is under way

        def attempt() -> Decision:
            nonlocal again
            if again or not command.is_under_way:
                self._send(command)
            again = False
            return self._read(command)

        try:
            return self._insist(attempt)
        except StartAnew as cause:
            self.condemn(cause)
            raise

    def send(self, command: Command) -> None:
        self._send(command)

    def answer(self, command: Command) -> Decision:
        return self._read(command)

    @property
    def may_proceed_unreserved(self) -> bool:
        return self._on_unavailable is OnUnavailable.PROCEED_UNRESERVED

    def condemn(self, cause: StartAnew) -> None:
        self._condemned = self._condemned or cause

    def check_trains(self) -> None:
        self._weights.check_trained_here()

    def hand_over(self, update_id: str) -> str | None:
        return self._weights.hand_over(update_id)

    def changed_weights(self) -> None:
        self._weights.step()

    def committed(self, update_id: str) -> None:
        self._weights.committed(update_id)

    def activity(self, record_types: Collection[str]) -> int:
        return self._decisions.activity(record_types)

    def wait_for_activity(self, record_types: Collection[str], since: int, deadline_s: float) -> bool:
        return self._decisions.wait_for_activity(record_types, since, deadline_s)

    def deliver(self, payloads: Sequence[PayloadBytes]) -> tuple[PayloadRef, ...]:
        def attempt() -> tuple[PayloadRef, ...]:
            return self._outbox.wait_for([self._outbox.payload(payload) for payload in payloads], _PAYLOADS_S)

        return self._insist(attempt)

    def read(self, items: Sequence[ItemDecision]) -> list[LoadedTrajectory]:
        if not items:
            return []
        fetcher = self._fetcher = self._fetcher or Fetcher(self._settings)
        partition = self._outbox.partition
        return self._insist(lambda: load_trajectories(fetcher, self._settings, partition, items, deadline_s=_LOAD_S))

    def close(self, deadline_s: float | None = None) -> None:
        try:
            super().close(deadline_s)
        finally:
            if self._fetcher is not None:
                self._fetcher.close()
                self._fetcher = None

    def _check_enforcement(self) -> bool:
        """Whether the ledger knows the run already. Raises WrongEnforcement."""
        found = self._insist(lambda: enforcement_of(self._settings, self._run_id))
        if found is not None and found is not self._enforcement:
            raise WrongEnforcement(self._run_id, found)
        return found is not None

    def _make_update(self, update_id: str, rollout_id: int, renew_every_s: float | None) -> Update:
        self._check()
        every_s = self._lease_ms / 1000 / RENEWALS_A_LEASE if renew_every_s is None else renew_every_s
        every_s = given.seconds(every_s, "renew_every_s")
        needs_admission = self._drift_gate is DriftGate.REQUIRED
        return Update(
            self, update_id, rollout_id, needs_admission=needs_admission, rank=self._rank, renew_every_s=every_s
        )

    def _same_save(self, checkpoint: Checkpoint, policy: PolicyRef) -> Command | None:
        """The last command, where it is for the same checkpoint: made anew, its chain would be another and so a
        conflict. Once it was answered, a checkpoint of other weights under the same id shall be one."""
        record = None if self._saving is None else self._saving.record
        if not isinstance(record, CheckpointSaved) or (record.checkpoint, record.policy) != (checkpoint, policy):
            return None
        return self._saving if not self._saved or record.last_update_id == self.last_update_id else None

    def _insist(self, attempt: Callable[[], T]) -> T:
        """The result of the attempt; where the trainer is to wait, as many attempts as it takes."""
        while True:
            try:
                return attempt()
            except (ClientBroken, PayloadLost):
                raise
            except EnvironmentFault as trouble:
                if self._on_unavailable is not OnUnavailable.WAIT:
                    raise
                _LOG.warning("learner %s waits: %s", self._learner_id, trouble)
                time.sleep(_PAUSE_S)

    def _check(self) -> None:
        self._connection.check()
        if self._condemned is not None:
            raise StartAnew(f"learner {self._learner_id} is over in this process ({self._condemned})")
