"""One update of a learner: reserve, load, admit, start, step, commit. Each command returns the decision it got."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy.typing as npt

from rollbook.producers import given
from rollbook.producers.errors import NothingTaken, OutOfOrder, Refused
from rollbook.producers.reading.loading import LoadedTrajectory
from rollbook.producers.redaction.identifiers import check_update
from rollbook.producers.updates.drift import Evidence, admit_items, current_payloads
from rollbook.producers.updates.exchange import FEEDS, Desk, Exchange
from rollbook.producers.updates.handle import UpdateHandle
from rollbook.producers.updates.holdings import Holdings
from rollbook.producers.updates.leaving import Leaving
from rollbook.producers.updates.phase import Phase, remedy
from rollbook.producers.updates.recorders import Recorders
from rollbook.producers.updates.recording import StepArrays
from rollbook.producers.updates.records import UpdateRecords
from rollbook.producers.updates.renewal import Renewal
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.update import (
    AbortDisposition,
    Claim,
    ClaimOrder,
    Disposition,
    ReserveItem,
    ReserveMode,
)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Update(Leaving):
    """An update as a context manager, made by `Trainer.update`.

    Leaving the block without an exception commits the steps that were taken and releases rows that were held and never
    stepped; a started update that raises makes `StartAnew`; one not yet started is aborted, and its rows are released.
    """

    def __init__(
        self,
        desk: Desk,
        update_id: str,
        rollout_id: int,
        *,
        needs_admission: bool,
        rank: int = 0,
        renew_every_s: float = 0.0,
    ) -> None:
        check_update(update_id, rollout_id)
        self._desk = desk
        self._update_id = update_id
        self._rollout_id = rollout_id
        self._phase = Phase.NEW
        self._holdings = Holdings(update_id, rollout_id, needs_admission=needs_admission)
        self._reserve_part = 0
        self._admit_part = 0
        self._exchange = Exchange(desk, update_id)
        self._records = UpdateRecords(desk, update_id)
        self._renewal = Renewal(desk, self._records.renew, renew_every_s, self)
        self._loaded: dict[str, LoadedTrajectory] = {}
        self._recorders = Recorders(
            desk.outbox,
            desk.header,
            learner=desk.learner,
            update_id=update_id,
            rollout_id=rollout_id,
            rank=rank,
            redaction=desk.redaction,
        )

    @property
    def update_id(self) -> str:
        return self._update_id

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def held(self) -> tuple[ItemDecision, ...]:
        """What the ledger says this update holds, with lag, freshness and offsets, in the order it was reserved."""
        return self._holdings.held

    @property
    def admitted(self) -> MappingProxyType[str, ItemDecision]:
        """Answers to Admit that were ok, by trajectory."""
        return self._holdings.admitted

    @property
    def refused(self) -> MappingProxyType[str, ItemDecision]:
        """The last refusal of a trajectory, by a Reserve or an Admit."""
        return self._holdings.refused

    @property
    def trainable(self) -> tuple[str, ...]:
        """Trajectories that may enter an optimizer step now."""
        return self._holdings.trainable

    def claim(
        self,
        policy: PolicyRef,
        max_groups: int,
        *,
        order: ClaimOrder = ClaimOrder.OLDEST,
        mode: ReserveMode = ReserveMode.AVAILABLE,
        wait_s: float = 0.0,
    ) -> Decision:
        """Let the ledger choose whole groups for a learner with this policy. Raises NothingTaken.

        With `wait_s` it asks again, at most that long, whenever something happened that could have made one claimable.
        """
        claim = Claim(max_groups=max_groups, order=order)
        end = time.monotonic() + given.seconds(wait_s, "wait_s")
        pause = _FIRST_PAUSE_S
        while True:
            mark = self._desk.activity(FEEDS)
            try:
                record = self._records.reserve(self._reserve_part, policy, mode, claim=claim)
                return self._exchange.ask(record, self._on_reserve)
            except NothingTaken:
                if not self._desk.wait_for_activity(FEEDS, mark, max(0.0, end - time.monotonic())):
                    raise
                # Each attempt stays in the log for ever, so a busy run must not make them many.
                time.sleep(min(pause, max(0.0, end - time.monotonic())))
                pause = min(pause * 2, _LONGEST_PAUSE_S)

    def reserve(
        self, items: Sequence[ReserveItem], policy: PolicyRef, *, mode: ReserveMode = ReserveMode.ALL
    ) -> Decision:
        """Reserve trajectories by name at the revisions last seen. Raises Refused."""
        record = self._records.reserve(self._reserve_part, policy, mode, items=given.listed(items, "Reserve", "items"))
        return self._exchange.ask(record, self._on_reserve)

    def load(self) -> tuple[LoadedTrajectory, ...]:
        """All that is held, read back and verified, in the order of `held`; what was read before is not read again.

        Raises PayloadLost, PayloadCorrupt or EnvironmentFault.
        """
        missing = [item for item in self.held if item.trajectory_id not in self._loaded]
        self._loaded.update({one.trajectory_id: one for one in self._desk.read(missing)})
        return tuple(self._loaded[item.trajectory_id] for item in self.held)

    def admit(
        self,
        current_log_probs: Mapping[str, npt.ArrayLike],
        policy: PolicyRef,
        *,
        own_updates: int | None = None,
        keep_log_probs: bool = True,
        evidence: Iterable[Evidence] = (),
    ) -> Decision:
        """Show the drift of loaded trajectories: `current_log_probs` [T] real by trajectory, segments joined in order.

        `evidence` is of trajectories that this process published itself, which need not be loaded: the ledger compares
        its digest with that of Generated.

        `policy` and `own_updates` (default: all that this process committed) say which weights gave them;
        `keep_log_probs` publishes them too, so that the audit can compute the figures again. Refused rows leave the
        update where the drift gate is required: see `refused`. Raises ContractViolation, Refused.
        """
        self._exchange.check_all_read()
        given.a(Mapping, current_log_probs, "Admit", "current_log_probs")  # type: ignore[type-abstract]
        published = {one.trajectory_id: one for one in given.listed(evidence, "Admit", "evidence")}
        items = admit_items({**published, **self._loaded}, current_log_probs)
        if keep_log_probs:
            refs = self._desk.deliver(current_payloads(self._desk.run_id, self._update_id, current_log_probs))
            items = [item.model_copy(update={"payload": ref}) for item, ref in zip(items, refs, strict=True)]
        own_updates = self._desk.own_updates if own_updates is None else own_updates
        record = self._records.admit(self._admit_part, policy, own_updates, items)
        return self._exchange.ask(record, self._on_admit)

    def renew(self) -> Decision:
        """Start the lease anew, where nothing does it in the background. Raises UpdateEnded, LearnerFenced."""
        return self._exchange.ask(self._records.renew(), lambda _: None)

    def handle(self) -> UpdateHandle:
        """Hand the update over, reserved and not started: nothing more can be done with it here.

        Leaving the block leaves it alone. `Trainer.adopt` goes on with it in another process of this learner's epoch;
        that process is then the one whose weights change and may be exported. This one has no longer the learner's
        weights: it may reserve and hand over further updates, to that same process, but it starts none and exports
        nothing until it starts anew from a checkpoint. Raises OutOfOrder between a step and its commit.
        """
        self._check_phase(Phase.OPEN)
        after = self._desk.hand_over(self._update_id)
        self._renewal.end()
        self._phase = Phase.HANDED_OVER
        return UpdateHandle(
            run_id=self._desk.run_id,
            learner=self._desk.learner,
            update_id=self._update_id,
            rollout_id=self._rollout_id,
            held=self.held,
            admitted=tuple(self.admitted.values()),
            refused=tuple(self.refused.values()),
            reserve_part=self._reserve_part,
            admit_part=self._admit_part,
            own_updates=self._desk.own_updates,
            after=after,
        )

    def resume(self, handle: UpdateHandle) -> None:
        """Go on where the handle left off; `Trainer.adopt` calls it."""
        self._holdings.resume(handle.held, handle.admitted, handle.refused)
        self._reserve_part, self._admit_part = handle.reserve_part, handle.admit_part
        self._phase = Phase.OPEN
        self._renewal.begin()

    def start(self) -> Decision:
        """Announce that rows enter the weights from here on; the decision lists what is held. Raises Refused, and
        OutOfOrder in a process that has handed an update over."""
        self._check_phase(Phase.OPEN)
        self._desk.check_trains()
        return self._exchange.ask(self._records.started(), self._on_start)

    def proceed_unreserved(self, trajectory_ids: Collection[str]) -> None:
        """Train on these rows although no decision can be had; the trainer must have been made for that.

        Leaving the block then publishes, whenever the broker takes it, a Commit marked `unreserved`: what was stepped
        is taken as a fact and a violation, and nobody is offered it again. Until it arrives another learner may train
        on the same rows. Raises OutOfOrder where a decision is not missing.
        """
        missing = self._is_known and self._exchange.unread is not None and not self._exchange.may_be_started
        if not missing or not self._desk.may_proceed_unreserved:
            raise OutOfOrder(
                f"update {self._update_id} may not go on unreserved: only where the decision on a Reserve or Admit has "
                "not come, and with on_unavailable=proceed_unreserved"
            )
        self._desk.check_trains()
        self._renewal.end()
        self._exchange.forget()
        self._holdings.unreserved(trajectory_ids)
        self._phase = Phase.UNRESERVED

    def step(self, trajectory_ids: Collection[str]) -> int:
        """Call before each optimizer step, with its rows; returns its step id. Raises NotTrainable, OutOfOrder.

        This is the gate: a row passes that `UpdateStarted` listed and, with the drift gate, an Admit has let through.
        """
        if self._phase is not Phase.UNRESERVED:
            self._check_phase(Phase.STARTED)
        self._desk.check_trains()
        step = self._holdings.step(trajectory_ids)
        self._exchange.weights_changed()
        self._desk.changed_weights()
        return step.step_id

    def drop(
        self, trajectory_ids: Collection[str], reason: str, *, disposition: Disposition = Disposition.RELEASE
    ) -> None:
        """Name held rows that will not be trained on, for the Commit to say so. Raises NotTrainable."""
        self._holdings.drop(trajectory_ids, self._desk.redaction.name(reason), disposition)

    def record_step(self, step_id: int, step: StepArrays, *, rank: int | None = None) -> None:
        """Queue the recording of an optimizer step, for replay; its troubles never reach the training. `rank`: whose
        share of it, where one process records for others; by default this process's."""
        self._recorders.record(step_id, step, rank)

    def record_again(self, recording: StepRecording) -> None:
        """Queue what was recorded of a step under an update that was undone or given up, where this one has its rows
        and the step is in the weights: `step` it first, under the same step id."""
        self._recorders.record_again(recording)

    def seal(self) -> None:
        """Publish that the recordings are written; leaving the block does it after the commit."""
        self._recorders.seal()

    def commit(self, *, expected_ranks: Sequence[int] | None = None) -> Decision:
        """Say that the steps are in the weights. Raises StartAnew when it is refused.

        `expected_ranks` are the ranks that will seal recordings; by default those that recorded anything here.
        """
        named = None if expected_ranks is None else given.listed(expected_ranks, "Commit", "expected_ranks")
        self._check_phase(Phase.STARTED)
        self._renewal.end()
        steps, dropped = self._holdings.settle()
        ranks = self._recorders.ranks if named is None else named
        record = self._records.commit(steps, dropped, ranks)
        return self._exchange.ask(record, self._on_commit)

    def abort(self, text: str = "", *, disposition: AbortDisposition = AbortDisposition.RELEASE) -> Decision:
        """End the update before it was started. Raises UpdateInDoubt afterwards."""
        return self._abort(self._desk.redaction.text(text), disposition)

    def renewal_refused(self, refusal: Refused) -> None:
        """The background renews no more; the training hears of it at its next call."""
        self._exchange.note(refusal)

    def resend(self) -> Decision:
        """After DecisionTimeout: send the same bytes again, and take in whichever copy was accepted, if one was."""
        return self._exchange.resend()

    def _on_reserve(self, decision: Decision) -> None:
        self._phase = Phase.OPEN
        self._renewal.begin()
        self._reserve_part += 1
        self._holdings.reserved(decision.items)

    def _on_admit(self, decision: Decision) -> None:
        self._admit_part += 1
        self._holdings.judged(decision.items)

    def _on_start(self, decision: Decision) -> None:
        self._phase = Phase.STARTED
        self._holdings.started(decision.items)

    def _on_commit(self, _: Decision) -> None:
        self._phase = Phase.COMMITTED
        self._desk.committed(self._update_id)

    def _check_phase(self, wanted: Phase) -> None:
        self._exchange.check_all_read()
        if self._phase is not wanted:
            raise OutOfOrder(
                f"update {self._update_id} is {self._phase.value}, this needs one that is {wanted.value}: "
                f"{remedy(self._phase, wanted)}"
            )
