"""Acts of the weight coordinator."""

from typing import Self

from rollbook.schemas.records.common import SourceKind
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.policy import (
    AbandonReason,
    AckFailure,
    Activate,
    ActivationAck,
    EvidenceKind,
    PolicyAbandoned,
    PolicyCommitted,
    PolicyPrepared,
)
from rollbook.schemas.records.run import (
    Artifact,
    ArtifactKind,
)
from rollbook.tests.processors.log import Past
from rollbook.tests.processors.parts import policy


class PolicyActs(Past):
    """Policies from preparation to activation."""

    def prepared(
        self,
        version: int,
        *updates: str,
        parent: int | None = None,
        rollback_of: int | None = None,
        committed: bool = True,
        artifact_hash: str | None = None,
    ) -> Decision:
        """PolicyPrepared; its parent is the version before it."""
        named = policy(version, artifact_hash)
        return self.send(
            PolicyPrepared(
                header=self.header(SourceKind.COORDINATOR),
                version=version,
                artifact=Artifact(hash=named.artifact_hash, kind=ArtifactKind.DECLARED),
                parent_version=version - 1 if parent is None else parent,
                rollback_of=rollback_of,
                update_ids=updates,
                committed=committed,
            )
        )

    def written(self, version: int, artifact_hash: str | None = None) -> Decision:
        """PolicyCommitted."""
        head = self.header(SourceKind.COORDINATOR)
        return self.send(PolicyCommitted(header=head, policy=policy(version, artifact_hash)))

    def abandoned(self, version: int, reason: AbandonReason = AbandonReason.LOAD_FAILED) -> Decision:
        """PolicyAbandoned."""
        head = self.header(SourceKind.COORDINATOR)
        return self.send(PolicyAbandoned(header=head, version=version, reason=reason))

    def ack(
        self,
        worker: str,
        version: int,
        artifact_hash: str | None = None,
        *,
        incarnation: int = 0,
        seq: int | None = None,
        failure: AckFailure | None = None,
    ) -> Decision:
        """ActivationAck; its number follows that of the worker's last report unless one is given."""
        known = self.run.workers.get(worker)
        return self.send(
            ActivationAck(
                header=self.header(SourceKind.COORDINATOR),
                worker_id=worker,
                incarnation=incarnation,
                report_seq=seq if seq is not None else 0 if known is None else known.report_seq + 1,
                serves=policy(version, artifact_hash) if failure is None else None,
                evidence=EvidenceKind.ENGINE_ECHO if failure is None else None,
                failure=failure,
            )
        )

    def activate(self, version: int, artifact_hash: str | None = None, *, expected: int | None = None) -> Decision:
        """Activate; the active version is expected to be what it is unless another is given."""
        return self.send(
            Activate(
                header=self.header(SourceKind.COORDINATOR),
                policy=policy(version, artifact_hash),
                expected_active_version=self._active().version if expected is None else expected,
            )
        )

    def advanced(self, version: int, *updates: str) -> Self:
        """Prepare (whole) and activate a policy."""
        self.prepared(version, *updates)
        self.activate(version)
        return self
