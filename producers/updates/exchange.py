"""The commands of one update, one at a time: none is sent while the decision on the one before is unread."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rollbook.producers.errors import OutOfOrder, Refused, StartAnew
from rollbook.producers.reading.loading import LoadedTrajectory
from rollbook.producers.redaction.policy import Redaction
from rollbook.producers.sending.command import Command
from rollbook.producers.sending.outbox import Outbox, PayloadBytes
from rollbook.schemas.records.common import Header, LearnerRef, Lifecycle, PayloadRef
from rollbook.schemas.records.decision import Decision, ItemDecision, Outcome
from rollbook.schemas.records.update import Commit, UpdateStarted

FEEDS = (
    "Generated",
    "GenerationFailed",
    "RewardReady",
    "RewardFailed",
    "Discarded",
    "Commit",
    "Abort",
    "LearnerStarted",
    "PolicyPrepared",
    "Activate",
)
"""Records whose acceptance can make a group claimable."""

TakeIn = Callable[[Decision], None]
"""What an answer means to the asker."""


class Desk(Protocol):
    """What an update needs of its trainer."""

    @property
    def run_id(self) -> str:
        """The run."""

    @property
    def learner(self) -> LearnerRef:
        """The learner in its epoch."""

    @property
    def outbox(self) -> Outbox:
        """Where recordings go."""

    @property
    def redaction(self) -> Redaction:
        """What may leave the process."""

    @property
    def own_updates(self) -> int:
        """Updates that this learner's weights contain."""

    def header(self) -> Header:
        """A fresh header."""

    def ask(self, command: Command) -> Decision:
        """Send a command and read its decision. Raises Refused, DecisionTimeout, DeliveryFailed, QueueFull."""

    def send(self, command: Command) -> None:
        """Queue a command. Raises QueueFull."""

    def answer(self, command: Command) -> Decision:
        """The decision on a command that was sent. Raises Refused, DecisionTimeout, DeliveryFailed."""

    def deliver(self, payloads: Sequence[PayloadBytes]) -> tuple[PayloadRef, ...]:
        """Publish payloads and wait until they are there. Raises DeliveryFailed, QueueFull."""

    @property
    def may_proceed_unreserved(self) -> bool:
        """Whether the training may go on where no decision can be had."""

    def condemn(self, cause: StartAnew) -> None:
        """From here on this process must neither train nor export."""

    def check_trains(self) -> None:
        """Raises OutOfOrder in a process that has handed an update over: it only reserves."""

    def hand_over(self, update_id: str) -> str | None:
        """Another process trains on this update: none of this one's may be in the weights from here on. Returns the
        one that was handed over before it. Raises OutOfOrder between a step and its commit."""

    def changed_weights(self) -> None:
        """An optimizer step is about to be taken."""

    def committed(self, update_id: str) -> None:
        """The decision on the commit of an update was read."""

    def activity(self, record_types: Collection[str]) -> int:
        """A mark for `wait_for_activity`."""

    def wait_for_activity(self, record_types: Collection[str], since: int, deadline_s: float) -> bool:
        """Wait until a record of these types was accepted since the mark."""

    def read(self, items: Sequence[ItemDecision]) -> list[LoadedTrajectory]:
        """Load trajectories."""


class Exchange:
    """Asks the ledger on behalf of one update and keeps what was asked until its decision has been read."""

    def __init__(self, desk: Desk, update_id: str) -> None:
        self._desk = desk
        self._update_id = update_id
        self._unread: tuple[Command, TakeIn] | None = None
        self._weights_changed = False
        self._unsure = False
        self._refusal: Refused | None = None

    @property
    def unread(self) -> Lifecycle | None:
        """The command whose decision has not been read."""
        return None if self._unread is None else self._unread[0].record

    @property
    def may_be_started(self) -> bool:
        """Whether an unread decision may have started or committed the update."""
        return isinstance(self.unread, UpdateStarted | Commit)

    @property
    def unsure(self) -> bool:
        """Whether a command ever went without its answer: the ledger may hold what this process never heard of."""
        return self._unsure

    def weights_changed(self) -> None:
        """From here on any refusal means that weights and ledger disagree."""
        self._weights_changed = True

    def note(self, refusal: Refused) -> None:
        """A command in the background was refused; the training hears of it at its next call."""
        self._refusal = self._refusal or refusal
        if isinstance(refusal, StartAnew):
            self._desk.condemn(refusal)

    def check_all_read(self) -> None:
        """Raises OutOfOrder while a decision is unread, and what a command in the background was refused for."""
        if self._refusal is not None:
            self._judge(None, self._refusal)
            raise self._refusal
        if self.unread is not None:
            raise OutOfOrder(
                f"the decision on {type(self.unread).__name__} of update {self._update_id} is unread: call "
                "update.resend() to ask for it again, or leave the update's block"
            )

    def ask(self, record: Lifecycle, take_in: TakeIn) -> Decision:
        """Send a command and take in its decision."""
        self.check_all_read()
        self._unread = (Command(record), take_in)
        return self.resend()

    def resend(self) -> Decision:
        """Send the unread command (again) and take in the decision that counts among those on all its copies."""
        if self._unread is None:
            raise OutOfOrder(f"every decision of update {self._update_id} has been read: nothing is to be sent again")
        command, take_in = self._unread
        try:
            decision = self._desk.ask(command)
        except Refused as refusal:
            self._unread = None
            self._judge(command.record, refusal)
            raise
        except BaseException:
            self._unsure = True
            raise
        self._unread = None
        self._check_ours(command, decision)
        take_in(decision)
        return decision

    def forget(self) -> None:
        """Give up on the unread decision, because what comes next ends the update whatever it was."""
        self._unread = None

    def _judge(self, record: Lifecycle | None, refusal: Refused) -> None:
        if isinstance(refusal, StartAnew):
            return  # the desk knows already
        if self._weights_changed or isinstance(record, Commit):
            cause = StartAnew(f"{refusal} (the weights may already contain rows of this update)")
            self._desk.condemn(cause)
            raise cause from refusal

    def _check_ours(self, command: Command, decision: Decision) -> None:
        """A start or commit that repeats one is only ours if we sent it before; else somebody trains on the same."""
        again = decision.outcome is Outcome.DUPLICATE and command.copies == 1
        if again and isinstance(command.record, UpdateStarted | Commit):
            cause = StartAnew(
                f"{command.name} of update {self._update_id} was sent by another process already: the same handle or "
                "process image is in use twice"
            )
            self._desk.condemn(cause)
            raise cause
