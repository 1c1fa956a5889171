"""How an update's block is left: with a commit, an abort, or a learner that must start anew."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rollbook.producers.errors import ClientBroken, DecisionTimeout, DeliveryFailed, StartAnew, UpdateEnded
from rollbook.producers.updates.exchange import Desk, Exchange
from rollbook.producers.updates.holdings import Holdings
from rollbook.producers.updates.phase import OVER, Phase
from rollbook.producers.updates.recorders import Recorders
from rollbook.producers.updates.records import UpdateRecords
from rollbook.producers.updates.renewal import Renewal
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.update import AbortDisposition


class Leaving(ABC):
    """The ways out of `Update`, which has what is named here."""

    _desk: Desk
    _exchange: Exchange
    _holdings: Holdings
    _records: UpdateRecords
    _renewal: Renewal
    _recorders: Recorders
    _phase: Phase
    _update_id: str

    @abstractmethod
    def commit(self) -> Decision:
        """Say that the steps are in the weights."""

    @abstractmethod
    def resend(self) -> Decision:
        """Ask for the unread decision again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
            else:
                self._give_up(error)
        finally:
            self._renewal.end()

    def _finish(self) -> None:
        try:
            if self._phase is Phase.UNRESERVED:
                self._own_up()
            if self._exchange.may_be_started:
                self.resend()
            if self._phase is Phase.STARTED:
                self._commit_insistently()
            elif self._is_known:
                self._abort_quietly("left without being started")
        except BaseException as trouble:
            self._give_up(trouble)
            raise
        if self._phase is Phase.COMMITTED and self._recorders.used:
            self._recorders.seal()

    def _commit_insistently(self) -> None:
        try:
            self.commit()
        except (DecisionTimeout, DeliveryFailed) as trouble:
            if isinstance(trouble, ClientBroken):
                raise
            self.resend()  # whether the first copy arrived or not, the ledger answers both the same

    def _give_up(self, error: BaseException) -> None:
        if self._phase is Phase.UNRESERVED:
            self._own_up()
        if self._phase in OVER or isinstance(error, StartAnew):
            return
        if self._phase is Phase.STARTED or self._exchange.may_be_started:
            cause = self._condemn(f"it failed after it was started ({type(error).__name__}: {error})")
            if isinstance(error, Exception):
                raise cause from error
            error.add_note(str(cause))  # Ctrl-C and the like keep their meaning
            return
        try:
            if self._is_known:
                self._abort_quietly(f"{type(error).__name__} at the learner")
        except RollbookError as trouble:
            error.add_note(f"besides, update {self._update_id} could not be aborted: {trouble}")

    def _own_up(self) -> None:
        """Say what was trained on without an answer, and wait for none."""
        if not self._holdings.stepped:
            self._publish(self._records.abort("nothing was trained on", AbortDisposition.RELEASE))
            self._phase = Phase.ABORTED
            return
        steps, dropped = self._holdings.settle()
        self._publish(self._records.commit(steps, dropped, self._recorders.ranks, unreserved=True))
        self._phase = Phase.COMMITTED
        self._desk.committed(self._update_id)

    def _publish(self, record: Lifecycle) -> None:
        self._desk.outbox.publish(lambda _: record)

    @property
    def _is_known(self) -> bool:
        """Whether the ledger may hold rows for an update that is not started."""
        return self._phase is Phase.OPEN or (self._phase is Phase.NEW and self._exchange.unsure)

    def _abort(self, text: str, disposition: AbortDisposition) -> Decision:
        self._renewal.end()
        self._exchange.forget()  # an abort ends the id, whatever became of a command whose decision is unread
        return self._exchange.ask(self._records.abort(text, disposition), self._on_abort)

    def _abort_quietly(self, text: str) -> None:
        try:
            self._abort(text, AbortDisposition.RELEASE)
        except UpdateEnded:
            self._phase = Phase.ABORTED  # its lease was over, or an operator was faster

    def _condemn(self, problem: str) -> StartAnew:
        cause = StartAnew(f"update {self._update_id}: {problem}, so that its rows may be in the weights")
        self._desk.condemn(cause)
        return cause

    def _on_abort(self, _: Decision) -> None:
        self._phase = Phase.ABORTED
