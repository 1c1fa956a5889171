"""Which updates count for a policy's weights: those that its lineage names, and those that cannot be ruled out."""

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rollbook.replay.prove.proof import DoubtKind, Membership, ProvenPolicy
from rollbook.replay.prove.seen import Committed, Seen


@dataclass(frozen=True, slots=True)
class Member:
    """An update that counts, and the policy that adds it; or why it cannot be ruled out."""

    update_id: str
    policy_version: int | None = None
    unsure: DoubtKind | None = None

    @property
    def membership(self) -> Membership:
        return Membership.IN_WEIGHTS if self.unsure is None else Membership.NOT_RULED_OUT


def lineage_of(seen: Seen, policy: ProvenPolicy) -> tuple[ProvenPolicy, ...]:
    """The initial policy first."""
    found = [policy]
    while (source := found[-1].source_version) is not None:
        found.append(seen.policies[source])
    return tuple(found[::-1])


def named_by(lineage: Sequence[ProvenPolicy]) -> list[Member]:
    return [Member(name, policy.version) for policy in lineage for name in policy.update_ids]


def members_of(seen: Seen, lineage: Sequence[ProvenPolicy]) -> list[Member]:
    """In the lineage's order, then those that cannot be ruled out, in the log's."""
    named = named_by(lineage)
    unsure = dict.fromkeys(_left_out(seen, lineage), DoubtKind.LEFT_OUT)
    unsure |= dict.fromkeys(_not_named(seen, lineage[-1]), DoubtKind.NOT_NAMED)
    return [*named, *(Member(name, unsure=unsure[name]) for name in seen.commits if name in unsure)]


def _not_named(seen: Seen, policy: ProvenPolicy) -> Iterator[str]:
    """Updates that stood when the policy was prepared, and that nobody names at all."""
    named = {name for one in seen.policies.values() for name in one.update_ids}
    for commit in seen.commits.values():
        before = policy.prepared_offset
        if commit.offset < before and _stood(commit, before) and commit.update_id not in named:
            yield commit.update_id


def _left_out(seen: Seen, lineage: Sequence[ProvenPolicy]) -> Iterator[str]:
    """A learner goes on from its own weights: they have whatever it had committed and that nothing had undone, also
    where only policies beside the lineage name it."""
    inside = {name for policy in lineage for name in policy.update_ids}
    beside = [commit for commit in seen.commits.values() if commit.update_id not in inside]
    latest = _latest(seen) if beside else {}
    learners = frozenset(commit.learner_id for commit in seen.commits.values())
    for policy in lineage if beside else ():
        if policy.source_version is None or policy.rollback_of is not None:
            continue  # those are no learner's weights of that time
        learners = frozenset(one.learner_id for one in _commits(seen, policy)) or learners
        for commit in beside:
            last = latest[policy.version].get(commit.learner_id) if commit.learner_id in learners else None
            if last is not None and commit.offset <= last and _stood(commit, last):
                yield commit.update_id


def _latest(seen: Seen) -> dict[int, dict[str, int]]:
    """By policy, where each learner's last Commit before its weights were written lies: of its own updates, or of those
    in weights that were written before and that stood when it was prepared."""
    named: dict[str, list[tuple[int, int, str]]] = {}
    found: dict[int, dict[str, int]] = {}
    for policy in sorted(seen.policies.values(), key=lambda one: one.prepared_offset):
        before, last = policy.prepared_offset, found.setdefault(policy.version, {})
        for commit in _commits(seen, policy):
            last[commit.learner_id] = max(commit.offset, last.get(commit.learner_id, 0))
            insort(named.setdefault(commit.learner_id, []), (commit.offset, policy.version, commit.update_id))
        for learner_id, of_learner in named.items():
            for offset, version, name in reversed(of_learner):
                if version <= policy.version and offset < before and _stood(seen.commits[name], before):
                    last[learner_id] = max(offset, last.get(learner_id, 0))
                    break
    return found


def _commits(seen: Seen, policy: ProvenPolicy) -> Iterator[Committed]:
    return (seen.commits[name] for name in policy.update_ids if name in seen.commits)


def _stood(commit: Committed, at: int) -> bool:
    return commit.undone_offset is None or commit.undone_offset > at
