"""Acts of a trainer from the first optimizer step on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from rollbook.schemas.records.common import SourceKind
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.update import (
    Abort,
    AbortDisposition,
    AbortReason,
    Checkpoint,
    CheckpointSaved,
    Commit,
    CommitStep,
    Disposition,
    DroppedItem,
    LeaseExpired,
    RecordingRef,
    RecordingSealed,
    Renew,
    UpdateStarted,
)
from rollbook.tests.processors import parts
from rollbook.tests.processors.act_reserve import ReserveActs
from rollbook.tests.processors.log import LEARNER
from rollbook.tests.processors.parts import sha


class UpdateActs(ReserveActs):
    """Starts, commits, recordings and aborts."""

    def started(self, update_id: str, *, learner: str = LEARNER, epoch: int | None = None) -> Decision:
        """UpdateStarted."""
        return self.send(UpdateStarted(header=self.header(), learner=self._ref(learner, epoch), update_id=update_id))

    def commit(
        self,
        update_id: str,
        *trained: str | Sequence[str],
        dropped: Mapping[str, Disposition] | Sequence[tuple[str, Disposition]] = (),
        rollout_id: int = 0,
        ranks: tuple[int, ...] = (),
        unreserved: bool = False,
        learner: str = LEARNER,
        epoch: int | None = None,
    ) -> Decision:
        """Commit: names are the trajectories of one step; each sequence is a step of its own."""
        single = tuple(name for name in trained if isinstance(name, str))
        rows = ([single] if single else []) + [tuple(step) for step in trained if not isinstance(step, str)]
        drops: Iterable[tuple[str, Disposition]] = dropped.items() if isinstance(dropped, Mapping) else dropped
        return self.send(
            Commit(
                header=self.header(),
                learner=self._ref(learner, epoch),
                update_id=update_id,
                steps=tuple(
                    CommitStep(rollout_id=rollout_id, step_id=at, trajectory_ids=row) for at, row in enumerate(rows)
                ),
                dropped=tuple(
                    DroppedItem(trajectory_id=name, reason="not_trained", disposition=kept) for name, kept in drops
                ),
                expected_ranks=ranks,
                unreserved=unreserved,
            )
        )

    def trained(self, update_id: str, *trajectory_ids: str, learner: str = LEARNER) -> Self:
        """Reserve, admit without drift, start and commit."""
        own = len(self.run.updates.open_of(learner)) + self.run.updates.committed_of(learner)
        self.reserve(update_id, *trajectory_ids, learner=learner)
        self.admit(update_id, dict.fromkeys(trajectory_ids, 0.0), own_updates=own, learner=learner)
        self.started(update_id, learner=learner)
        self.commit(update_id, *trajectory_ids, learner=learner)
        return self

    def sealed(
        self,
        update_id: str,
        rank: int = 0,
        *,
        name: str = "recording",
        learner: str = LEARNER,
        epoch: int | None = None,
    ) -> Decision:
        """RecordingSealed."""
        return self.send(
            RecordingSealed(
                header=self.header(),
                learner=self._ref(learner, epoch),
                update_id=update_id,
                rank=rank,
                recordings=(RecordingRef(rollout_id=0, step_id=0, payload=parts.payload_ref(name)),),
                digest=sha(name),
            )
        )

    def renewed(self, update_id: str, *, learner: str = LEARNER, epoch: int | None = None) -> Decision:
        """Renew."""
        return self.send(Renew(header=self.header(), learner=self._ref(learner, epoch), update_id=update_id))

    def expired(self, update_id: str, basis: int | None = None) -> Decision:
        """LeaseExpired, by a clerk that saw the update's last activity unless a basis is given."""
        known = self.run.updates.get(update_id)
        seen = (0 if known is None else known.last_activity_offset) if basis is None else basis
        return self.send(LeaseExpired(header=self.header(SourceKind.PROCESSOR), update_id=update_id, basis=seen))

    def saved(
        self,
        checkpoint_id: str,
        last: str | None = None,
        *,
        digest: str = "",
        version: int = 0,
        learner: str = LEARNER,
        epoch: int | None = None,
    ) -> Decision:
        """CheckpointSaved, whose last update is `last`."""
        return self.send(
            CheckpointSaved(
                header=self.header(),
                learner=self._ref(learner, epoch),
                checkpoint=Checkpoint(id=checkpoint_id, digest=digest or f"digest of {checkpoint_id}"),
                last_update_id=last,
                policy=parts.policy(version),
                chain=self.run.head.chain,
            )
        )

    def abort(
        self,
        update_id: str,
        *,
        operator: bool = False,
        disposition: AbortDisposition = AbortDisposition.RELEASE,
        text: str = "",
        learner: str = LEARNER,
        epoch: int | None = None,
    ) -> Decision:
        """Abort by the learner, or by an operator."""
        return self.send(
            Abort(
                header=self.header(SourceKind.OPERATOR if operator else SourceKind.TRAINER),
                learner=None if operator else self._ref(learner, epoch),
                update_id=update_id,
                reason=AbortReason.OPERATOR if operator else AbortReason.UPDATE_FAILED,
                text=text,
                disposition=disposition,
            )
        )
