"""The activation board: which policies there are, and why the last activation of each was refused. Who serves what is
in the newest snapshot: a worker that acknowledged a policy may serve another by now."""

from collections.abc import Iterable
from dataclasses import dataclass

from rollbook.processors.dashboard.answers import PolicyLine, WorkerLine
from rollbook.processors.dashboard.fold.counting import ACCEPTED, DUPLICATE
from rollbook.processors.dashboard.fold.lean import Head, Rest

MOST_POLICIES = 50
MOST_NAMES = 256


@dataclass(slots=True)
class _Policy:
    artifact_hash: str
    state: str = "prepared"
    prepared_ms: int | None = None
    committed_ms: int | None = None
    activated_ms: int | None = None
    orphaned: bool = False
    refused: str = ""
    refused_ms: int | None = None
    missing: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()


class Board:
    """The policies of one run, the newest `MOST_POLICIES`."""

    def __init__(self) -> None:
        self._known: dict[int, _Policy] = {}
        self._active: int | None = None

    def begin(self, version: int, artifact_hash: str, at_ms: int) -> None:
        """The initial policy, which is active without an Activate."""
        if self._active is None:
            self._policy(version, artifact_hash).state = "active"
            self._policy(version, artifact_hash).activated_ms = at_ms
            self._active = version

    def take(self, at_ms: int, head: Head, rest: Rest) -> None:
        """A decision about a policy."""
        record_type, accepted = head[3], head[4] == ACCEPTED
        if head[4] == DUPLICATE:
            return
        if not rest.subject_id.isdigit():
            return
        version = int(rest.subject_id)
        if not accepted and version not in self._known:
            return
        policy = self._policy(version, rest.subject_hash.decode(errors="replace"))
        if record_type == b"Activate":
            self._activate(version, policy, accepted, at_ms, head, rest)
        elif accepted and record_type == b"PolicyPrepared":
            policy.prepared_ms = at_ms
        elif accepted and record_type == b"PolicyCommitted":
            policy.committed_ms = at_ms
            policy.state = "committed" if policy.state == "prepared" else policy.state
        elif accepted and record_type == b"PolicyAbandoned":
            policy.state = "abandoned"

    def orphan(self, versions: Iterable[str]) -> None:
        """Policies that contain what was undone."""
        for version in versions:
            policy = self._known.get(int(version)) if version.isdigit() else None
            if policy is not None:
                policy.orphaned = True

    def lines(self, workers: Iterable[WorkerLine]) -> tuple[PolicyLine, ...]:
        """Newest first."""
        serving: dict[tuple[int | None, str], list[str]] = {}
        for worker in workers:
            serving.setdefault((worker.version, worker.artifact_hash), []).append(worker.worker_id)
        newest = sorted(self._known.items(), reverse=True)
        return tuple(_line(version, one, serving.get((version, one.artifact_hash), [])) for version, one in newest)

    def _activate(self, version: int, policy: _Policy, accepted: bool, at_ms: int, head: Head, rest: Rest) -> None:
        if not accepted:
            policy.refused, policy.refused_ms = head[6].decode(errors="replace"), at_ms
            policy.missing = tuple(one.decode(errors="replace") for one in rest.missing[:MOST_NAMES])
            policy.mismatched = tuple(one.decode(errors="replace") for one in rest.mismatched[:MOST_NAMES])
            return
        before = None if self._active is None else self._known.get(self._active)
        if before is not None and self._active != version:
            before.state = "retired"
        self._active, policy.state, policy.activated_ms = version, "active", at_ms
        policy.refused, policy.refused_ms, policy.missing, policy.mismatched = "", None, (), ()

    def _policy(self, version: int, artifact_hash: str) -> _Policy:
        policy = self._known.get(version)
        if policy is None:
            policy = self._known[version] = _Policy(artifact_hash)
            while len(self._known) > MOST_POLICIES:
                del self._known[min(one for one in self._known if one != self._active)]
        return policy


def _line(version: int, policy: _Policy, acks: list[str]) -> PolicyLine:
    return PolicyLine(
        version=version,
        artifact_hash=policy.artifact_hash,
        state=policy.state,
        prepared_ms=policy.prepared_ms,
        committed_ms=policy.committed_ms,
        activated_ms=policy.activated_ms,
        orphaned=policy.orphaned,
        acks=tuple(sorted(acks)),
        refused=policy.refused,
        refused_ms=policy.refused_ms,
        missing_workers=policy.missing,
        mismatched_workers=policy.mismatched,
    )
