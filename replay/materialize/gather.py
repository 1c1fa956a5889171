"""Collects what the log says about one committed update, from its Commit outwards: back to its Reserve through the
decisions before it, further back to Generated and RewardReady through the offsets that decisions carry, and forward to
its seals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from rollbook.replay.history.decisions import Decided, DecisionLog
from rollbook.replay.history.source import LogSource
from rollbook.replay.materialize.commits import CommittedUpdate
from rollbook.replay.materialize.evidence import Recording, TrajectoryEvidence, UpdateEvidence
from rollbook.replay.materialize.facts import Fact, FactReader
from rollbook.replay.materialize.provenance import UsedRecord
from rollbook.replay.materialize.recordings import read_recordings
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.replay.materialize.segments import read_segments
from rollbook.replay.materialize.trail import Trail
from rollbook.schemas.records.decision import ItemDecision
from rollbook.schemas.records.reward import RewardItem, RewardReady
from rollbook.schemas.records.rollout import Generated
from rollbook.schemas.records.update import Admit, Commit, RecordingSealed, Reserve, UpdateStarted


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Where a trajectory's two records lie, the second only where it was scored; and why it is not in the Commit where
    it is not."""

    trajectory_id: str
    generated: int
    reward: int | None
    refused: str


class Gatherer:
    """Reads updates of one partition."""

    def __init__(self, log: LogSource, lifecycle_topic: str, decisions: DecisionLog) -> None:
        self._log = log
        self._decisions = decisions
        self._facts = FactReader(log, lifecycle_topic, decisions)

    def gather(self, update: CommittedUpdate) -> UpdateEvidence:
        """The evidence of an update. Raises CannotWrite where it cannot be whole."""
        if update.rolled_back_by:
            raise CannotWrite(NotWritten.ROLLED_BACK, f"undone by {update.rolled_back_by}")
        if update.perhaps_rolled_back_by:
            raise CannotWrite(
                NotWritten.DISAGREEMENT,
                f"{update.perhaps_rolled_back_by} undid updates of {update.learner_id}, but its digest is not that of "
                "the last ones committed before it: whether this one stands cannot be told",
            )
        decided = self._decision_at(update.commit)
        commit = self._one(Commit, decided)
        if not commit.record.steps:
            return UpdateEvidence(commit, (), (), {})
        trail = Trail(self._decisions, decided)
        trail.to_start()
        seals = self._seals(commit, [*trail.of_type("RecordingSealed"), *map(self._decision_at, update.seals)])
        of_ranks = [read_recordings(self._log, commit, sealed) for sealed in seals]
        recordings = tuple(zip(*of_ranks, strict=True))
        trail.to_reservation()
        offsets = list(_offsets(commit, decided, chain.from_iterable(recordings), trail))
        trajectories = self._trajectories(offsets)
        records = [
            *self._all(Reserve, trail.of_type("Reserve")),
            *self._all(Admit, trail.of_type("Admit")),
            *self._all(UpdateStarted, trail.of_type("UpdateStarted")),
            commit.used,
            *(sealed.used for sealed in seals),
        ]
        return UpdateEvidence(commit, tuple(records), recordings, trajectories)

    def _decision_at(self, offset: int) -> Decided:
        return next(self._decisions.read(offset, offset + 1))

    def _one(self, model: type[Commit], decided: Decided) -> Fact[Commit]:
        offset = decided.decision.source.offset
        return self._facts.of(model, [decided], [offset])[offset]

    def _all(self, model: type[Reserve | Admit | UpdateStarted], decided: Sequence[Decided]) -> list[UsedRecord]:
        found = self._facts.of(model, decided, [one.decision.source.offset for one in decided])
        return [found[offset].used for offset in sorted(found)]

    def _seals(self, commit: Fact[Commit], decided: Sequence[Decided]) -> list[Fact[RecordingSealed]]:
        """The seals of all expected ranks, in rank order."""
        seals = self._facts.of(RecordingSealed, decided, [one.decision.source.offset for one in decided])
        by_rank = {seal.record.rank: seal for seal in seals.values()}
        expected = commit.record.expected_ranks
        if not expected:
            raise CannotWrite(NotWritten.NOT_RECORDED, f"{commit.place} has no expected_ranks: record the steps")
        missing = sorted(set(expected) - by_rank.keys())
        if missing:
            ranks = ", ".join(map(str, missing[:8]))
            raise CannotWrite(
                NotWritten.RANK_NOT_SEALED,
                f"{commit.place} expects ranks that have no accepted RecordingSealed: {ranks}; wait for them",
            )
        return [by_rank[rank] for rank in sorted(expected)]

    def _trajectories(self, offsets: Sequence[_Offsets]) -> dict[str, TrajectoryEvidence]:
        generated = self._facts.at(Generated, (one.generated for one in offsets))
        rewards = self._facts.at(RewardReady, (one.reward for one in offsets if one.reward is not None))
        segments = read_segments(self._log, [generated[one.generated] for one in offsets])
        found: dict[str, TrajectoryEvidence] = {}
        for one in offsets:
            fact = generated[one.generated]
            if fact.record.identity.trajectory_id != one.trajectory_id:
                raise CannotWrite(
                    NotWritten.DISAGREEMENT,
                    f"{fact.place} is of trajectory {fact.record.identity.trajectory_id}, its decisions say "
                    f"{one.trajectory_id}",
                )
            reward = None if one.reward is None else rewards[one.reward]
            found[one.trajectory_id] = TrajectoryEvidence(
                generated=fact,
                reward=reward,
                reward_item=None if reward is None else _reward_of(reward, one.trajectory_id),
                segments=segments[one.trajectory_id],
                refused=one.refused,
            )
        return found


def _offsets(
    commit: Fact[Commit], decided: Decided, recordings: Iterable[Recording], trail: Trail
) -> Iterable[_Offsets]:
    """Of every recorded trajectory, once: from the Commit's decision, else from the one that refused it."""
    committed = {item.trajectory_id: item for item in decided.decision.items}
    dropped = {drop.trajectory_id: f"{commit.place} dropped it ({drop.reason})" for drop in commit.record.dropped}
    seen: set[str] = set()
    for recording in recordings:
        for index, row in enumerate(recording.step.rows):
            trajectory_id = row.trajectory_id
            if row.padding or trajectory_id in seen:
                continue
            seen.add(trajectory_id)
            item, refused = committed.get(trajectory_id), dropped.get(trajectory_id, "")
            if item is None:
                refusal = trail.refusal_of(trajectory_id)
                if refusal is None:
                    raise CannotWrite(
                        NotWritten.DISAGREEMENT,
                        f"{recording.place} rows.{index} is of trajectory {trajectory_id}, which {commit.place} does "
                        "not name and no decision of the update refused",
                        step_id=recording.step.step_id,
                    )
                where, item = refusal
                refused = f"{where.stored.place} refused it ({item.reason})"
            named = recording.step.conventions
            needs_reward = named is None or named.advantages is None
            yield _located(trajectory_id, item, refused, decided, needs_reward=needs_reward)


def _located(trajectory_id: str, item: ItemDecision, refused: str, decided: Decided, *, needs_reward: bool) -> _Offsets:
    """A named convention says what becomes of a row that nothing scored; format 1.0.0 has none."""
    if item.generated_offset is None or (needs_reward and item.reward_offset is None):
        raise CannotWrite(
            NotWritten.RECORD_GONE,
            f"trajectory {trajectory_id}: its decision has no offset of its Generated and RewardReady "
            f"({refused or decided.stored.place})",
        )
    return _Offsets(trajectory_id, item.generated_offset, item.reward_offset, refused)


def _reward_of(fact: Fact[RewardReady], trajectory_id: str) -> RewardItem:
    for item in fact.record.items:
        if item.trajectory_id == trajectory_id:
            return item
    raise CannotWrite(
        NotWritten.DISAGREEMENT, f"{fact.place} has no reward of trajectory {trajectory_id}, though decisions say so"
    )
