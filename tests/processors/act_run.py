"""Acts that set up a run."""

from typing import Self

from rollbook.schemas.records.common import PolicyRef, SourceKind
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.run import (
    Admission,
    Artifact,
    ArtifactKind,
    DriftGate,
    Enforcement,
    InitialPolicy,
    LagUnit,
    RewardIdentity,
    RunClosed,
    RunConfigured,
    Unpinned,
)
from rollbook.tests.processors import parts
from rollbook.tests.processors.log import Past
from rollbook.tests.processors.parts import policy


class RunActs(Past):
    """Configurations and contracts."""

    def opened(
        self,
        *,
        max_lag: int = 1,
        lag_unit: LagUnit = LagUnit.DEPTH,
        drift: float = 0.2,
        gate: DriftGate = DriftGate.REQUIRED,
        workers: tuple[str, ...] = (),
        max_live: int = 1000,
        max_pending: int = 100,
        enforcement: Enforcement = Enforcement.GATE,
        unpinned: Unpinned = Unpinned.REFUSE,
        horizon: int = 0,
        lease_ms: int = 0,
    ) -> Self:
        """Configure the run and register the contract that `generated` cites; returns the history itself."""
        self.configured(
            max_lag=max_lag,
            lag_unit=lag_unit,
            drift=drift,
            gate=gate,
            workers=workers,
            max_live=max_live,
            max_pending=max_pending,
            enforcement=enforcement,
            unpinned=unpinned,
            horizon=horizon,
            lease_ms=lease_ms,
        )
        self.contract()
        return self

    def configured(
        self,
        config_version: int = 1,
        *,
        fold_version: int = 1,
        partition_count: int | None = None,
        max_lag: int = 1,
        lag_unit: LagUnit = LagUnit.DEPTH,
        drift: float = 0.2,
        gate: DriftGate = DriftGate.REQUIRED,
        workers: tuple[str, ...] = (),
        initial: PolicyRef | None = None,
        contracts: tuple[str, ...] = (),
        rewards: tuple[RewardIdentity, ...] = (),
        max_live: int = 1000,
        max_pending: int = 100,
        enforcement: Enforcement = Enforcement.GATE,
        unpinned: Unpinned = Unpinned.REFUSE,
        horizon: int = 0,
        lease_ms: int = 0,
    ) -> Decision:
        """RunConfigured."""
        return self.send(
            RunConfigured(
                header=self.header(SourceKind.COORDINATOR),
                config_version=config_version,
                fold_version=fold_version,
                partition_count=self.log.topic_partitions if partition_count is None else partition_count,
                enforcement=enforcement,
                admission=Admission(max_lag=max_lag, lag_unit=lag_unit, max_mean_abs_log_ratio=drift, drift_gate=gate),
                required_workers=workers,
                initial_policy=_initial(initial or policy(0)),
                pinned_contracts=contracts,
                pinned_rewards=rewards,
                max_live=max_live,
                max_pending=max_pending,
                unpinned=unpinned,
                horizon=horizon,
                lease_ms=lease_ms,
            )
        )

    def closed(self, text: str = "") -> Decision:
        """RunClosed."""
        return self.send(RunClosed(header=self.header(SourceKind.OPERATOR), text=text))

    def contract(self, tokenizer: str = "tokenizer", named: str | None = None) -> Decision:
        """GenerationContract under its hash, or under the one named."""
        return self.send(parts.contract(self.header(SourceKind.ROLLOUT_WORKER), tokenizer, named))


def _initial(ref: PolicyRef) -> InitialPolicy:
    return InitialPolicy(version=ref.version, artifact=Artifact(hash=ref.artifact_hash, kind=ArtifactKind.DECLARED))
