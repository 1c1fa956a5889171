"""Acts of rollout workers and reward services."""

from typing import Self

from rollbook.schemas.records.common import PolicyRef, SourceKind
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.reward import (
    Discarded,
    DiscardReason,
    Quarantine,
    RewardFailed,
    RewardFailure,
    RewardItem,
    RewardReady,
)
from rollbook.schemas.records.rollout import (
    Dispatched,
    FinishReason,
    Generated,
    GenerationFailed,
    GenerationFailure,
    Purpose,
)
from rollbook.schemas.records.run import (
    RewardIdentity,
)
from rollbook.tests.processors import parts
from rollbook.tests.processors.log import Past
from rollbook.tests.processors.parts import policy


class RolloutActs(Past):
    """Trajectories and their rewards."""

    def generated(
        self,
        trajectory_id: str,
        *policies: int | PolicyRef,
        group: str | None = None,
        sample: int = 0,
        of: int = 1,
        purpose: Purpose = Purpose.TRAIN,
        segments: int = 1,
        active_tokens: int | None = None,
        contract: str | None = None,
    ) -> Decision:
        """Generated. `policies` wrote its model spans: versions or references; of several segments each has one."""
        wrote = [ref if isinstance(ref, PolicyRef) else policy(ref) for ref in policies or (0,)]
        rows = [wrote] if segments == 1 else [[wrote[at % len(wrote)]] for at in range(segments)]
        return self.send(
            Generated(
                header=self.header(SourceKind.ROLLOUT_WORKER),
                identity=parts.identity(trajectory_id, group or f"group of {trajectory_id}", sample, of),
                purpose=purpose,
                task=parts.task(group or trajectory_id),
                contract_hash=contract or parts.contract_named(),
                segments=tuple(
                    parts.segment(f"{trajectory_id} {at}", row, active_tokens) for at, row in enumerate(rows)
                ),
                finish_reason=FinishReason.STOP,
                provenance=parts.PROVENANCE,
            )
        )

    def dispatched(
        self, trajectory_id: str, version: int = 0, *, group: str | None = None, sample: int = 0, of: int = 1
    ) -> Decision:
        """Dispatched."""
        return self.send(
            Dispatched(
                header=self.header(SourceKind.ROLLOUT_WORKER),
                identity=parts.identity(trajectory_id, group or f"group of {trajectory_id}", sample, of),
                task=parts.task(group or trajectory_id),
                policy=policy(version),
                worker_id="w",
            )
        )

    def failed(
        self, trajectory_id: str, version: int = 0, *, group: str | None = None, sample: int = 0, of: int = 1
    ) -> Decision:
        """GenerationFailed."""
        return self.send(
            GenerationFailed(
                header=self.header(SourceKind.ROLLOUT_WORKER),
                identity=parts.identity(trajectory_id, group or f"group of {trajectory_id}", sample, of),
                policy=policy(version),
                reason=GenerationFailure.TIMEOUT,
            )
        )

    def rewarded(
        self, *trajectory_ids: str, reward: float = 1.0, rule: RewardIdentity = parts.RULE, label: str = ""
    ) -> Decision:
        """RewardReady, one item a trajectory."""
        items = tuple(RewardItem(trajectory_id=name, raw_reward=reward) for name in trajectory_ids)
        head = self.header(SourceKind.REWARD_SERVICE)
        return self.send(RewardReady(header=head, items=items, reward=rule, remote=False, label_hash=label))

    def reward_failed(self, trajectory_id: str, reason: RewardFailure = RewardFailure.TIMEOUT) -> Decision:
        """RewardFailed."""
        head = self.header(SourceKind.REWARD_SERVICE)
        return self.send(RewardFailed(header=head, trajectory_id=trajectory_id, reason=reason, retriable=True))

    def discarded(self, *trajectory_ids: str, reason: DiscardReason = DiscardReason.SURPLUS) -> Decision:
        """Discarded."""
        return self.send(Discarded(header=self.header(), trajectory_ids=trajectory_ids, reason=reason))

    def quarantined(self, *trajectory_ids: str, reason: str = "suspicious") -> Decision:
        """Quarantine."""
        head = self.header(SourceKind.OPERATOR)
        return self.send(Quarantine(header=head, trajectory_ids=trajectory_ids, reason=reason))

    def ready(
        self, *trajectory_ids: str, version: int = 0, group: str | None = None, purpose: Purpose = Purpose.TRAIN
    ) -> Self:
        """Generate and reward trajectories: each a group of its own, or together one complete group."""
        for at, name in enumerate(trajectory_ids):
            sample, of = (0, 1) if group is None else (at, len(trajectory_ids))
            self.generated(name, version, group=group, sample=sample, of=of, purpose=purpose)
        self.rewarded(*trajectory_ids)
        return self
