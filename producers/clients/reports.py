"""Reports of what a worker serves: numbered so that the ledger knows the latest, whatever order they arrive in."""

import threading

from rollbook.schemas.records.common import Header, PolicyRef
from rollbook.schemas.records.policy import AckFailure, ActivationAck, EvidenceKind, Probe


class Reports:
    """Numbers the reports of one worker. `incarnation` must rise with each start of the worker."""

    def __init__(self, worker_id: str, incarnation: int) -> None:
        self._worker_id = worker_id
        self._incarnation = incarnation
        self._sequence = 0
        self._lock = threading.Lock()

    def serving(
        self, header: Header, policy: PolicyRef, evidence: EvidenceKind, probe: Probe | None = None
    ) -> ActivationAck:
        """The worker serves this policy, and how it knows. Raises ContractViolation."""
        return self._report(header, serves=policy, evidence=evidence, probe=probe)

    def failing(self, header: Header, failure: AckFailure, text: str = "") -> ActivationAck:
        """The worker does not serve what it should. Raises ContractViolation."""
        return self._report(header, failure=failure, text=text)

    def _report(self, header: Header, **fields: object) -> ActivationAck:
        with self._lock:
            self._sequence += 1
            return ActivationAck(
                header=header,
                worker_id=self._worker_id,
                incarnation=self._incarnation,
                report_seq=self._sequence,
                **fields,
            )
