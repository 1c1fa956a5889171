"""The activation board: which policies there are, who acknowledged each, and why the last activation was refused."""

from dataclasses import dataclass, field

from rollbook.processors.dashboard.answers import PolicyLine
from rollbook.processors.dashboard.counting import ACCEPTED, DUPLICATE
from rollbook.processors.dashboard.lean import Head, Rest

MOST_POLICIES = 50
MOST_ACKS = 256


@dataclass(slots=True)
class _Policy:
    artifact_hash: str
    state: str = "prepared"
    prepared_ms: int | None = None
    committed_ms: int | None = None
    activated_ms: int | None = None
    acks: dict[str, int] = field(default_factory=dict)
    refused: str = ""
    refused_ms: int | None = None
    missing: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()


class Board:
    """The policies of one run, the newest `MOST_POLICIES`."""

    def __init__(self) -> None:
        self._known: dict[int, _Policy] = {}
        self._waiting: dict[str, dict[str, int]] = {}
        """Acks of artifacts that are not prepared yet, by hash."""
        self._active: int | None = None

    def begin(self, version: int, artifact_hash: str, at_ms: int) -> None:
        """The initial policy, which is active without an Activate."""
        if self._active is None:
            self._policy(version, artifact_hash).state = "active"
            self._policy(version, artifact_hash).activated_ms = at_ms
            self._active = version

    def take(self, at_ms: int, head: Head, rest: Rest) -> None:
        """A decision about a policy, or about what a worker serves."""
        record_type, accepted = head[3], head[4] == ACCEPTED
        if head[4] == DUPLICATE:
            return
        if record_type == b"ActivationAck":
            if accepted and rest.subject_hash:
                self._ack(rest.subject_hash.decode(), rest.subject_id.decode(), at_ms)
            return
        if not rest.subject_id.isdigit():
            return
        version = int(rest.subject_id)
        if not accepted and version not in self._known:
            return
        policy = self._policy(version, rest.subject_hash.decode())
        if record_type == b"Activate":
            self._activate(version, policy, accepted, at_ms, head, rest)
        elif accepted and record_type == b"PolicyPrepared":
            policy.prepared_ms = at_ms
        elif accepted and record_type == b"PolicyCommitted":
            policy.committed_ms = at_ms
            policy.state = "committed" if policy.state == "prepared" else policy.state
        elif accepted and record_type == b"PolicyAbandoned":
            policy.state = "abandoned"

    def orphan(self, versions: tuple[str, ...]) -> None:
        """Policies that contain what was undone."""
        for version in versions:
            policy = self._known.get(int(version)) if version.isdigit() else None
            if policy is not None and policy.state != "active":
                policy.state = "orphaned"

    def lines(self) -> tuple[PolicyLine, ...]:
        """Newest first."""
        return tuple(_line(version, self._known[version]) for version in sorted(self._known, reverse=True))

    def _activate(self, version: int, policy: _Policy, accepted: bool, at_ms: int, head: Head, rest: Rest) -> None:
        if not accepted:
            policy.refused, policy.refused_ms = head[6].decode(), at_ms
            policy.missing = tuple(one.decode() for one in rest.missing[:MOST_ACKS])
            policy.mismatched = tuple(one.decode() for one in rest.mismatched[:MOST_ACKS])
            return
        before = None if self._active is None else self._known.get(self._active)
        if before is not None and self._active != version:
            before.state = "retired"
        self._active, policy.state, policy.activated_ms = version, "active", at_ms
        policy.refused, policy.refused_ms, policy.missing, policy.mismatched = "", None, (), ()

    def _ack(self, artifact_hash: str, worker: str, at_ms: int) -> None:
        found = [policy.acks for policy in self._known.values() if policy.artifact_hash == artifact_hash]
        if not found:
            if artifact_hash not in self._waiting and len(self._waiting) >= MOST_POLICIES:
                del self._waiting[next(iter(self._waiting))]
            found = [self._waiting.setdefault(artifact_hash, {})]
        for acks in found:
            if worker in acks or len(acks) < MOST_ACKS:
                acks[worker] = at_ms

    def _policy(self, version: int, artifact_hash: str) -> _Policy:
        policy = self._known.get(version)
        if policy is None:
            policy = self._known[version] = _Policy(artifact_hash, acks=self._waiting.pop(artifact_hash, {}))
            while len(self._known) > MOST_POLICIES:
                del self._known[min(one for one in self._known if one != self._active)]
        return policy


def _line(version: int, policy: _Policy) -> PolicyLine:
    return PolicyLine(
        version=version,
        artifact_hash=policy.artifact_hash,
        state=policy.state,
        prepared_ms=policy.prepared_ms,
        committed_ms=policy.committed_ms,
        activated_ms=policy.activated_ms,
        acks=tuple(sorted(policy.acks)),
        refused=policy.refused,
        refused_ms=policy.refused_ms,
        missing_workers=policy.missing,
        mismatched_workers=policy.mismatched,
    )
