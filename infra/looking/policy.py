"""The history of one policy: what it is made of, who serves it, and how it became active or why it never will."""

from collections import Counter
from dataclasses import dataclass

from rollbook.infra.looking.named import policy_named
from rollbook.infra.looking.noted import Noted, among, note
from rollbook.infra.looking.refold import Step
from rollbook.infra.looking.trajectory import FORGOTTEN
from rollbook.processors.ledger.matrix import PolicyPhase
from rollbook.processors.ledger.policy import phase_of
from rollbook.processors.ledger.store import Run
from rollbook.processors.lifecycle import NONE
from rollbook.schemas.records.ledger import PolicyState, UpdateStatus
from rollbook.schemas.records.policy import ActivationAck, PolicyPrepared

_UNDONE = (UpdateStatus.ABORTED, UpdateStatus.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Contained:
    """An update in the weights, the version that added it, and its state now."""

    update_id: str
    version: int
    state: str


@dataclass(frozen=True, slots=True)
class Ack:
    """A worker's report that it serves the version."""

    worker_id: str
    report: str
    artifact_hash: str
    evidence: str
    offset: int
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """A policy and its history. `phases` has the record that brought it to each of its phases, `undone` the updates for
    which it was orphaned, `serving` the workers that serve it now, `trajectories` those with a span of it, by state."""

    kind: str
    id: str
    state: str
    known: PolicyState | None
    prepared: PolicyPrepared | None
    phases: dict[str, int]
    undone: tuple[str, ...]
    contains: tuple[Contained, ...]
    acks: tuple[Ack, ...]
    serving: tuple[str, ...]
    mismatched: tuple[str, ...]
    trajectories: dict[str, int]
    history: tuple[Noted, ...]


class PolicyWatch:
    """Notes every record that changed the policy or is about it."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._known: PolicyState | None = None
        self._prepared: PolicyPrepared | None = None
        self._before: tuple[PolicyState | None, str] = (None, NONE)
        self._waited = False
        self._phases: dict[str, int] = {}
        self._undone: tuple[str, ...] = ()
        self._contains: tuple[Contained, ...] = ()
        self._acks: list[Ack] = []
        self._history: list[Noted] = []

    def before(self, run: Run) -> None:
        """The policy as it stands."""
        self._before = self._look(run)
        self._waited = self._waits(run)

    def after(self, step: Step) -> None:
        """What became of it."""
        policy, phase = now = self._look(step.run)
        changed = now != self._before or self._waits(step.run) != self._waited
        named = policy_named(step) == self._version
        if changed and phase != self._before[1]:
            self._phases[phase] = step.stored.offset
        if policy is not None and changed:
            self._change(step, policy)
        if named and isinstance(step.record, ActivationAck):
            self._ack(step, step.record)
        if changed or named:
            took = among(step, str(self._version), "policies") if changed else ()
            waited = step.decision.released if named else ()
            self._history.append(note(step, self._before[1], phase, released=waited, among=took))
        self._known = policy or self._known

    def page(self, run: Run) -> PolicyPage | None:
        """The page at the end of the run's log; None when no record was ever about it."""
        if not self._history:
            return None
        wanted = None if self._known is None else self._known.artifact.hash
        serving = _serving(run, self._version)
        return PolicyPage(
            kind="policy",
            id=str(self._version),
            state=self._history[-1].after,
            known=self._known,
            prepared=self._prepared,
            phases=self._phases,
            undone=self._undone,
            contains=self._contains_now(run),
            acks=tuple(self._acks),
            serving=tuple(worker for worker, found in serving.items() if found == wanted),
            mismatched=tuple(worker for worker, found in serving.items() if found != wanted),
            trajectories=_with_span(run, self._version),
            history=tuple(self._history),
        )

    def _change(self, step: Step, policy: PolicyState) -> None:
        if isinstance(step.record, PolicyPrepared) and self._before[0] is None:
            self._prepared = step.record
        self._contains = _contained(step.run, policy)
        if policy.orphaned and (self._before[0] is None or not self._before[0].orphaned):
            self._undone = tuple(found.update_id for found in self._contains if found.state in _UNDONE)

    def _contains_now(self, run: Run) -> tuple[Contained, ...]:
        """After the run was closed, as it was before."""
        policy = run.policies.get(self._version)
        return self._contains if policy is None else _contained(run, policy)

    def _ack(self, step: Step, ack: ActivationAck) -> None:
        assert ack.serves is not None, "an ack that names a version serves it"
        self._acks.append(
            Ack(
                worker_id=ack.worker_id,
                report=f"{ack.incarnation}.{ack.report_seq}",
                artifact_hash=ack.serves.artifact_hash,
                evidence="" if ack.evidence is None else ack.evidence.value,
                offset=step.stored.offset,
                outcome=step.decision.outcome.value,
                reason=step.decision.reason,
            )
        )

    def _look(self, run: Run) -> tuple[PolicyState | None, str]:
        policy = run.policies.get(self._version)
        if policy is None:
            return None, NONE if self._known is None else FORGOTTEN
        phase = phase_of(run, policy)
        return policy, f"{phase}, orphaned" if phase is PolicyPhase.ACTIVE and policy.orphaned else phase.value

    def _waits(self, run: Run) -> bool:
        return any(
            fact.record_type == "PolicyCommitted" and fact.subject_id == str(self._version)
            for fact in run.pending.values()
        )


def _contained(run: Run, policy: PolicyState) -> tuple[Contained, ...]:
    """The updates in the weights, those of the oldest ancestor first."""
    found: list[Contained] = []
    ancestor: PolicyState | None = policy
    while ancestor is not None:
        added = []
        for update_id in ancestor.update_ids:
            update = run.updates.get(update_id)
            added.append(Contained(update_id, ancestor.version, NONE if update is None else update.status.value))
        found[:0] = added
        ancestor = None if ancestor.source_version is None else run.policies.get(ancestor.source_version)
    return tuple(found)


def _serving(run: Run, version: int) -> dict[str, str]:
    """The workers that serve the version now, with the hash that each reported."""
    return {
        worker.worker_id: worker.serves.artifact_hash
        for worker in run.workers.values()
        if worker.serves is not None and worker.serves.version == version
    }


def _with_span(run: Run, version: int) -> dict[str, int]:
    counts = Counter(
        trajectory.status.value
        for trajectory in run.trajectories.values()
        if any(ref.version == version for ref in trajectory.policies)
    )
    return dict(sorted(counts.items()))
