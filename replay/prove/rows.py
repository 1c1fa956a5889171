"""The trajectories of some updates, read from the log a second time: what is known of them lies all over it."""

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.history.source import LogSource, StoredRecord
from rollbook.replay.prove.proof import Membership, ProvenReward, ProvenTrajectory
from rollbook.replay.prove.seen import Committed, Offsets, Seen
from rollbook.schemas.codec import decode, decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.records.reward import RewardReady
from rollbook.schemas.records.rollout import Generated, Purpose, TaskSource
from rollbook.schemas.records.update import Commit

_WATCH_EVERY = 1_000
V = TypeVar("V")
Told = Callable[[int, int], None]
"""Told how much is read, and how much there is."""


@dataclass(frozen=True, slots=True)
class OfCommit:
    """A Commit with the decision on it."""

    record: Commit
    decision: Decision


def commits_of(log: LogSource, stretch: Stretch, commits: Sequence[Committed]) -> Iterator[OfCommit]:
    """The Commits and the decisions on them, one at a time, in the log's order."""
    in_order = sorted(commits, key=lambda one: one.offset)
    records = log.read_at(stretch.lifecycle, stretch.partition, [one.offset for one in in_order])
    decisions = log.read_at(stretch.decisions, stretch.partition, [one.decision_offset for one in in_order])
    for commit, stored, decided in zip(in_order, records, decisions, strict=True):
        if (stored.sha256, decided.sha256) != (commit.sha256, commit.decision_sha256):
            raise _changed(stored.place)
        yield OfCommit(decode_as(Commit, stored.value or b""), decode_as(Decision, decided.value or b""))


@dataclass(slots=True)
class _Row:
    """A trajectory of an update while what is known of it comes together."""

    trajectory_id: str
    steps: tuple[int, ...]
    lag: int | None
    mean_abs_log_ratio: float | None
    reason: str
    generated_offset: int | None
    reward_offset: int | None
    group_id: str = ""
    task: TaskSource | None = None
    purpose: Purpose | None = None
    behavior: tuple[PolicyRef, ...] = ()
    contract_hash: str = ""
    reward: ProvenReward | None = None


@dataclass(slots=True)
class Rows:
    """What updates trained on: added by their Commits, then filled from the log, then given away."""

    late: dict[str, Offsets]
    _of: dict[str, tuple[Membership, deque[_Row]]] = field(default_factory=dict)
    _generated: dict[int, tuple[_Row, ...]] = field(default_factory=dict)
    _rewards: dict[int, tuple[_Row, ...]] = field(default_factory=dict)
    _shared: dict[object, object] = field(default_factory=dict)
    """Values that many rows have, each kept once."""

    def add(self, commit: OfCommit, membership: Membership) -> None:
        """The rows of a Commit, in the order of its steps."""
        steps: dict[str, tuple[int, ...]] = {}
        for step in commit.record.steps:
            for name in dict.fromkeys(step.trajectory_ids):
                steps[name] = self._once((*steps.get(name, ()), step.step_id))
        items = {one.trajectory_id: one for one in commit.decision.items}
        rows = deque(self._row(items[name], numbers) for name, numbers in steps.items())
        self._of[commit.record.update_id] = membership, rows
        for row in rows:
            for offset, by in ((row.generated_offset, self._generated), (row.reward_offset, self._rewards)):
                if offset is not None:
                    by[offset] = (*by.get(offset, ()), row)

    def read(self, log: LogSource, stretch: Stretch, seen: Seen, end: int, strays: Collection[int], told: Told) -> None:
        """Fill them from the records below `end`, without those at `strays`, from which nothing was derived. Raises
        BadInput where the log is not the one that was derived from."""
        if not self._of:
            return
        digest = hashlib.sha256()
        for stored in _derived(log, stretch, end, frozenset(strays), told):
            digest.update(hashlib.sha256(stored.value or b"").digest())
            self._take(stored)
        if digest.digest() != seen.digest.digest():
            raise _changed(f"{stretch.lifecycle}:{stretch.partition}")

    def given(self, update_ids: Iterable[str]) -> Iterator[ProvenTrajectory]:
        """The rows of these updates; each is let go of."""
        for update_id in update_ids:
            membership, rows = self._of.pop(update_id, (Membership.IN_WEIGHTS, deque[_Row]()))
            while rows:
                yield _proven(rows.popleft(), update_id, membership)

    def _row(self, item: ItemDecision, steps: tuple[int, ...]) -> _Row:
        came = self.late.get(item.trajectory_id, Offsets(None, None))
        generated = item.generated_offset if came.generated is None else came.generated
        reward = item.reward_offset if came.reward is None else came.reward
        reason = self._once(item.reason)
        return _Row(item.trajectory_id, steps, item.lag, item.mean_abs_log_ratio, reason, generated, reward)

    def _take(self, stored: StoredRecord) -> None:
        generated, rewarded = self._generated.pop(stored.offset, ()), self._rewards.pop(stored.offset, ())
        if not generated and not rewarded:
            return
        record = decode(stored.value or b"")
        if isinstance(record, Generated):
            for row in generated:
                self._fill(row, record)
        if isinstance(record, RewardReady):
            items = {one.trajectory_id: one for one in record.items}
            rule, label_hash = self._once(record.reward), self._once(record.label_hash)
            for row in rewarded:
                given = items[row.trajectory_id]
                row.reward = ProvenReward(given.raw_reward, given.components, rule, record.remote, label_hash)

    def _fill(self, row: _Row, record: Generated) -> None:
        spans = [span.policy for segment in record.segments for span in segment.spans]
        behavior = {(policy.version, policy.artifact_hash): policy for policy in spans if policy is not None}
        row.group_id = self._once(record.identity.group_id)
        row.task = self._once(record.task)
        row.purpose = record.purpose
        row.behavior = self._once(tuple(behavior[key] for key in sorted(behavior)))
        row.contract_hash = self._once(record.contract_hash)

    def _once(self, value: V) -> V:
        return self._shared.setdefault(value, value)  # type: ignore[return-value]  # equal values are of one type


def _derived(log: LogSource, stretch: Stretch, end: int, strays: Collection[int], told: Told) -> Iterator[StoredRecord]:
    """The records that decisions were derived from."""
    first = stretch.within.first
    for count, stored in enumerate(stretch.records(log, end)):
        if count % _WATCH_EVERY == 0:
            told(stored.offset - first, end - first)
        if stored.offset not in strays:
            yield stored


def _changed(where: str) -> BadInput:
    return BadInput(f"{where} is not what it was a moment ago: somebody changes the log; run `rollbook audit`")


def _proven(row: _Row, update_id: str, membership: Membership) -> ProvenTrajectory:
    return ProvenTrajectory(
        trajectory_id=row.trajectory_id,
        update_id=update_id,
        membership=membership,
        steps=row.steps,
        group_id=row.group_id,
        task=row.task,
        purpose=row.purpose,
        behavior=row.behavior,
        contract_hash=row.contract_hash,
        reward=row.reward,
        generated_offset=None if row.task is None else row.generated_offset,
        reward_offset=row.reward_offset,
        lag=row.lag,
        mean_abs_log_ratio=row.mean_abs_log_ratio,
        reason=row.reason,
    )
