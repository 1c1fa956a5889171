"""The client of the weight coordinator: configures the run, and takes policies from preparation to activation."""

import time
from collections.abc import Sequence

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.processors.reasons import Reason
from rollbook.producers import given
from rollbook.producers.clients.client import Client, Options
from rollbook.producers.clients.reports import Reports
from rollbook.producers.errors import Refused
from rollbook.producers.identity import now_ms
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PolicyRef, Source, SourceKind
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.policy import (
    AbandonReason,
    AckFailure,
    Activate,
    EvidenceKind,
    PolicyAbandoned,
    PolicyCommitted,
    PolicyPrepared,
    Probe,
)
from rollbook.schemas.records.reward import Quarantine
from rollbook.schemas.records.run import (
    Admission,
    Artifact,
    Enforcement,
    InitialPolicy,
    RewardIdentity,
    RunClosed,
    RunConfigured,
    Unpinned,
)
from rollbook.schemas.records.update import Abort, AbortDisposition, AbortReason

_WAITS_FOR = ("ActivationAck", "PolicyCommitted")
_ACKS = (Reason.MISSING_WORKER_ACK, Reason.WORKER_MISMATCH)
_PAUSE_S = 0.05


class Coordinator(Client):
    """Sends commands and returns their decisions; a refusal is raised as Refused."""

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        coordinator_id: str,
        *,
        incarnation: int | None = None,
        options: Options | None = None,
    ) -> None:
        source = Source(kind=SourceKind.COORDINATOR, id=coordinator_id)
        super().__init__(settings, run_id, source, options, commands=True)
        self._incarnation = now_ms() if incarnation is None else incarnation
        self._reports: dict[str, Reports] = {}

    def configure(
        self,
        *,
        admission: Admission,
        required_workers: Sequence[str],
        initial_policy: InitialPolicy,
        config_version: int = 1,
        fold_version: int = FOLD_VERSION,
        enforcement: Enforcement = Enforcement.GATE,
        pinned_contracts: Sequence[str] = (),
        pinned_rewards: Sequence[RewardIdentity] = (),
        unpinned: Unpinned = Unpinned.REFUSE,
        **limits: int,
    ) -> Decision:
        """Open the run, or change its limits with a higher config_version.

        Raises BadInput for a `fold_version` that this package does not have: it would end the processor.

        `limits`: horizon, max_live, max_pending, lease_ms of `RunConfigured`; the partition count is the topic's.
        """
        if given.whole(fold_version, "fold_version") > FOLD_VERSION:
            raise BadInput(
                f"fold_version is {fold_version}, and this rollbook has {FOLD_VERSION}: install a newer one first"
            )
        return self._command(
            RunConfigured(
                header=self._header(),
                config_version=config_version,
                fold_version=fold_version,
                partition_count=self._connection.partitions(Topic.LIFECYCLE),
                enforcement=enforcement,
                admission=admission,
                required_workers=given.listed(required_workers, "RunConfigured", "required_workers"),
                initial_policy=self._redaction.initial_policy(
                    given.a(InitialPolicy, initial_policy, "RunConfigured", "initial_policy")
                ),
                pinned_contracts=given.listed(pinned_contracts, "RunConfigured", "pinned_contracts"),
                pinned_rewards=tuple(
                    self._redaction.rule(given.a(RewardIdentity, rule, "RunConfigured", "pinned_rewards"))
                    for rule in given.listed(pinned_rewards, "RunConfigured", "pinned_rewards")
                ),
                unpinned=unpinned,
                **limits,
            )
        )

    def prepare(
        self,
        *,
        version: int,
        artifact: Artifact,
        parent_version: int,
        update_ids: Sequence[str],
        label: str = "",
        rollback_of: int | None = None,
        committed: bool = False,
    ) -> Decision:
        """Announce new weights and what they are made of; `committed` where the artifact is already written whole."""
        return self._command(
            PolicyPrepared(
                header=self._header(),
                version=version,
                label=self._redaction.name(label),
                artifact=self._redaction.artifact(given.a(Artifact, artifact, "PolicyPrepared", "artifact")),
                parent_version=parent_version,
                rollback_of=rollback_of,
                update_ids=given.listed(update_ids, "PolicyPrepared", "update_ids"),
                committed=committed,
            )
        )

    def committed(self, policy: PolicyRef) -> Decision:
        """The artifact of a policy is written whole."""
        return self._command(PolicyCommitted(header=self._header(), policy=policy))

    def activate(self, policy: PolicyRef, expected_active_version: int, *, wait_for_acks_s: float = 0.0) -> Decision:
        """Make a policy the active one. With `wait_for_acks_s`, ask again on each report until the workers serve it.

        Raises Refused; its decision names the missing and the mismatched workers.
        """
        end = time.monotonic() + given.seconds(wait_for_acks_s, "wait_for_acks_s")
        while True:
            mark = self._decisions.activity(_WAITS_FOR)
            record = Activate(header=self._header(), policy=policy, expected_active_version=expected_active_version)
            try:
                return self._command(record)
            except Refused as refusal:
                left = max(0.0, end - time.monotonic())
                if refusal.decision.reason not in _ACKS or not self._decisions.wait_for_activity(
                    _WAITS_FOR, mark, left
                ):
                    raise
                # Reports of many workers come in a burst, and each attempt stays in the log for ever.
                time.sleep(min(_PAUSE_S, left))

    def acknowledge(
        self,
        worker_id: str,
        policy: PolicyRef,
        *,
        evidence: EvidenceKind = EvidenceKind.ENGINE_ECHO,
        probe: Probe | None = None,
    ) -> None:
        """Publish which policy a worker serves that has no client of its own, from what its engine says."""
        self._publish(self._reports_of(worker_id).serving(self._header(), policy, evidence, probe))

    def acknowledge_failure(self, worker_id: str, failure: AckFailure, *, text: str = "") -> None:
        """Publish that such a worker does not serve what it should."""
        self._publish(self._reports_of(worker_id).failing(self._header(), failure, self._redaction.text(text)))

    def abort(self, update_id: str, *, text: str, disposition: AbortDisposition = AbortDisposition.RELEASE) -> Decision:
        """An operator ends an update; if it was started, its learner is fenced."""
        return self._command(
            Abort(
                header=self._header(SourceKind.OPERATOR),
                learner=None,
                update_id=update_id,
                reason=AbortReason.OPERATOR,
                text=self._redaction.text(text),
                disposition=disposition,
            )
        )

    def abandon(self, version: int, reason: AbandonReason) -> Decision:
        """Give a policy up that will never be active; trajectories that it wrote are quarantined. Raises Refused."""
        return self._command(PolicyAbandoned(header=self._header(), version=version, reason=reason))

    def quarantine(self, trajectory_ids: Sequence[str], reason: str) -> Decision:
        """Take trajectories out of use, for good. Raises Refused when none of them could be."""
        reason = self._redaction.name(reason)
        ids = given.listed(trajectory_ids, "Quarantine", "trajectory_ids")
        return self._command(Quarantine(header=self._header(), trajectory_ids=ids, reason=reason))

    def close_run(self, *, text: str = "") -> Decision:
        """End the run: its open updates are aborted, its trajectories forgotten, every later record is refused."""
        return self._command(RunClosed(header=self._header(), text=self._redaction.text(text)))

    def _reports_of(self, worker_id: str) -> Reports:
        worker_id = given.a(str, worker_id, "ActivationAck", "worker_id")
        return self._reports.setdefault(worker_id, Reports(worker_id, self._incarnation))
