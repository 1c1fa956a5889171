"""Acts of a trainer up to the first optimizer step."""

from collections.abc import Mapping

from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.update import (
    Admit,
    AdmitItem,
    Checkpoint,
    Claim,
    ClaimOrder,
    LearnerStarted,
    Reserve,
    ReserveItem,
    ReserveMode,
)
from rollbook.tests.processors.log import LEARNER, Past
from rollbook.tests.processors.parts import sha


class ReserveActs(Past):
    """Learner epochs, reservations and admissions."""

    def learner(
        self,
        learner: str = LEARNER,
        *,
        incarnation: str | None = None,
        expected: int | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Decision:
        """LearnerStarted, by a new process unless an incarnation is named."""
        return self.send(
            LearnerStarted(
                header=self.header(),
                learner_id=learner,
                incarnation=incarnation or f"process-{self.log.next_offset}",
                expected_epoch=self.epoch(learner) if expected is None else expected,
                checkpoint=checkpoint,
            )
        )

    def reserve(
        self,
        update_id: str,
        *trajectory_ids: str,
        revisions: Mapping[str, int] | None = None,
        part: int = 0,
        mode: ReserveMode = ReserveMode.ALL,
        by: PolicyRef | None = None,
        learner: str = LEARNER,
        epoch: int | None = None,
    ) -> Decision:
        """Reserve by name, each at its present revision unless `revisions` says otherwise; `by` the active policy."""
        known = {name: self.revision(name) for name in trajectory_ids} | dict(revisions or {})
        items = tuple(ReserveItem(trajectory_id=name, expected_revision=at) for name, at in known.items())
        return self.send(
            Reserve(
                header=self.header(),
                learner=self._ref(learner, epoch),
                update_id=update_id,
                part=part,
                policy=by or self._active(),
                items=items,
                mode=mode,
            )
        )

    def claim(
        self,
        update_id: str,
        groups: int = 1,
        *,
        order: ClaimOrder = ClaimOrder.OLDEST,
        part: int = 0,
        mode: ReserveMode = ReserveMode.AVAILABLE,
        by: PolicyRef | None = None,
        learner: str = LEARNER,
        epoch: int | None = None,
    ) -> Decision:
        """Reserve by claim."""
        return self.send(
            Reserve(
                header=self.header(),
                learner=self._ref(learner, epoch),
                update_id=update_id,
                part=part,
                policy=by or self._active(),
                claim=Claim(max_groups=groups, order=order),
                mode=mode,
            )
        )

    def admit(
        self,
        update_id: str,
        drifts: Mapping[str, float],
        *,
        part: int = 0,
        by: PolicyRef | None = None,
        own_updates: int = 0,
        active_tokens: int | None = None,
        evidence: str | None = None,
        learner: str = LEARNER,
        epoch: int | None = None,
    ) -> Decision:
        """Admit with a mean drift for each trajectory; its true evidence unless another is given."""
        return self.send(
            Admit(
                header=self.header(),
                learner=self._ref(learner, epoch),
                update_id=update_id,
                part=part,
                policy=by or self._active(),
                own_updates=own_updates,
                items=tuple(self._figures(name, mean, active_tokens, evidence) for name, mean in drifts.items()),
            )
        )

    def _figures(self, name: str, mean: float, active_tokens: int | None, evidence: str | None) -> AdmitItem:
        known = self.run.trajectories.get(name)
        active = active_tokens if active_tokens is not None else known.active_tokens if known is not None else 2
        return AdmitItem(
            trajectory_id=name,
            active_tokens=active,
            sum_abs_log_ratio=mean * active,
            max_abs_log_ratio=mean,
            evidence_digest=evidence or (known.evidence_digest if known is not None else "") or sha("no evidence"),
            current_digest=sha(f"current {name} {mean}"),
        )
