"""The trajectories of some updates, read from the log a second time: what is known of them lies all over it."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.history.source import LogSource, StoredRecord
from rollbook.replay.prove.proof import Membership, ProvenReward, ProvenTrajectory
from rollbook.replay.prove.seen import Committed, Offsets, Seen
from rollbook.schemas.codec import decode, decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.records.reward import RewardReady
from rollbook.schemas.records.rollout import Generated
from rollbook.schemas.records.update import Commit

_WATCH_EVERY = 1_000
Told = Callable[[int, int], None]
"""Told how much is read, and how much there is."""


@dataclass(frozen=True, slots=True)
class OfCommit:
    """A Commit with the decision on it."""

    record: Commit
    decision: Decision


@dataclass(slots=True)
class _Row:
    """A trajectory of an update while what is known of it comes together."""

    update_id: str
    item: ItemDecision
    steps: tuple[int, ...]
    generated_offset: int | None
    reward_offset: int | None
    generated: Generated | None = None
    reward: ProvenReward | None = None


def commits_of(log: LogSource, stretch: Stretch, commits: Sequence[Committed]) -> dict[str, OfCommit]:
    """The Commits and the decisions on them, by update."""
    records = log.read_at(stretch.lifecycle, stretch.partition, [one.offset for one in commits])
    decisions = log.read_at(stretch.decisions, stretch.partition, [one.decision_offset for one in commits])
    found = {}
    in_order = sorted(commits, key=lambda one: one.offset)
    for commit, stored, decided in zip(in_order, records, decisions, strict=True):
        if (stored.sha256, decided.sha256) != (commit.sha256, commit.decision_sha256):
            raise _changed(stored.place)
        found[commit.update_id] = OfCommit(
            decode_as(Commit, stored.value or b""), decode_as(Decision, decided.value or b"")
        )
    return found


def trajectories_of(
    log: LogSource,
    stretch: Stretch,
    seen: Seen,
    decided_to: int,
    commits: Sequence[tuple[OfCommit, Membership]],
    strays: Collection[int] = (),
    told: Told = lambda *_: None,
) -> Iterator[ProvenTrajectory]:
    """What each of these updates trained on, in the order of its steps. Raises BadInput where the log is not the one
    that was derived from.

    `strays`: offsets of records under the run's key from which nothing was derived."""
    rows = [(row, membership) for commit, membership in commits for row in _rows(commit, seen.late)]
    gathered = _Gathered()
    for row, _ in rows:
        gathered.want(row)
    if rows:
        derived = _derived(log, stretch, decided_to, frozenset(strays), told)
        _read(derived, gathered, seen, stretch)
    return (_proven(row, membership) for row, membership in rows)


def _rows(commit: OfCommit, late: dict[str, Offsets]) -> Iterator[_Row]:
    steps: dict[str, list[int]] = {}
    for step in commit.record.steps:
        for name in step.trajectory_ids:
            numbers = steps.setdefault(name, [])
            if step.step_id not in numbers:
                numbers.append(step.step_id)
    items = {one.trajectory_id: one for one in commit.decision.items}
    for name, numbers in steps.items():
        item = items[name]
        came = late.get(name, Offsets(None, None))
        generated = item.generated_offset if came.generated is None else came.generated
        reward = item.reward_offset if came.reward is None else came.reward
        yield _Row(commit.record.update_id, item, tuple(numbers), generated, reward)


@dataclass(slots=True)
class _Gathered:
    """Rows by the offsets at which something of them lies."""

    generated: dict[int, list[_Row]] = field(default_factory=dict)
    rewards: dict[int, list[_Row]] = field(default_factory=dict)

    def want(self, row: _Row) -> None:
        for offset, by in ((row.generated_offset, self.generated), (row.reward_offset, self.rewards)):
            if offset is not None:
                by.setdefault(offset, []).append(row)

    def take(self, stored: StoredRecord) -> None:
        generated, rewards = self.generated.get(stored.offset, ()), self.rewards.get(stored.offset, ())
        if not generated and not rewards:
            return
        record = decode(stored.value or b"")
        if isinstance(record, Generated):
            for row in generated:
                row.generated = record
        if isinstance(record, RewardReady):
            items = {one.trajectory_id: one for one in record.items}
            for row in rewards:
                given = items[row.item.trajectory_id]
                row.reward = ProvenReward(
                    given.raw_reward, given.components, record.reward, record.remote, record.label_hash
                )


def _derived(
    log: LogSource, stretch: Stretch, decided_to: int, strays: Collection[int], told: Told
) -> Iterator[StoredRecord]:
    """The records that decisions were derived from."""
    first = stretch.within.first
    key = None if stretch.run_id is None else stretch.run_id.encode()
    for count, stored in enumerate(log.read(stretch.lifecycle, stretch.partition, first, decided_to)):
        if count % _WATCH_EVERY == 0:
            told(stored.offset - first, decided_to - first)
        if stored.key == key and stored.offset not in strays:
            yield stored


def _read(records: Iterable[StoredRecord], gathered: _Gathered, seen: Seen, stretch: Stretch) -> None:
    digest = hashlib.sha256()
    for stored in records:
        digest.update(hashlib.sha256(stored.value or b"").digest())
        gathered.take(stored)
    if digest.digest() != seen.digest.digest():
        raise _changed(f"{stretch.lifecycle}:{stretch.partition}")


def _changed(where: str) -> BadInput:
    return BadInput(f"{where} is not what it was a moment ago: somebody changes the log; run `rollbook audit`")


def _proven(row: _Row, membership: Membership) -> ProvenTrajectory:
    record, item = row.generated, row.item
    spans = [] if record is None else [span.policy for segment in record.segments for span in segment.spans]
    behavior = {(policy.version, policy.artifact_hash): policy for policy in spans if policy is not None}
    return ProvenTrajectory(
        trajectory_id=item.trajectory_id,
        update_id=row.update_id,
        membership=membership,
        steps=row.steps,
        group_id="" if record is None else record.identity.group_id,
        task=None if record is None else record.task,
        purpose=None if record is None else record.purpose,
        behavior=tuple(behavior[key] for key in sorted(behavior)),
        contract_hash="" if record is None else record.contract_hash,
        reward=row.reward,
        generated_offset=row.generated_offset if record is not None else None,
        reward_offset=row.reward_offset,
        lag=item.lag,
        mean_abs_log_ratio=item.mean_abs_log_ratio,
        reason=item.reason,
    )
