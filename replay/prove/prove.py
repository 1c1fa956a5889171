"""Prove: a policy's lineage out of a run's derived decisions, and everything that was trained on along it.

    with open_history("my-run.avro", run="my-run") as history:
        proof = history.prove(policy=12, asked=read_asked(Path("eval.txt")))
        assert proof.absence.proven

The log is read twice: once to derive every decision and to note policies and commits, once more for the trajectories of
the updates that count. So memory grows with them, and not with all that the run has trained on.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rollbook.processors.ledger.fold import Ledger
from rollbook.replay.audit.chains import Chains, noted_heads
from rollbook.replay.audit.decisions import Deriver, Differs, Stretch
from rollbook.replay.audit.whole import check_begun, check_joined
from rollbook.replay.history.source import LogSource
from rollbook.replay.progress import Watch
from rollbook.replay.prove.asked import Asked
from rollbook.replay.prove.members import Member, lineage_of, members_of, named_by
from rollbook.replay.prove.proof import (
    Absence,
    Doubt,
    DoubtKind,
    Found,
    Hit,
    Proof,
    ProvenPolicy,
    ProvenTrajectory,
    ProvenUpdate,
)
from rollbook.replay.prove.rows import OfCommit, Rows, commits_of
from rollbook.replay.prove.seen import Committed, Seen
from rollbook.replay.prove.vouched import check_vouched, refusal
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.run import ArtifactKind
from rollbook.schemas.text import visible

_OPEN_QUESTIONS = (DoubtKind.NO_COMMIT, DoubtKind.NO_GENERATED, DoubtKind.NOT_PUBLISHED)
"""Doubts behind which a task can hide that was asked for."""
_SHOWN_VERSIONS = 20


@dataclass(frozen=True, slots=True)
class OfPolicy:
    """Which weights: a version, or an artifact's hash."""

    version: int | None = None
    artifact_hash: str | None = None


def prove(
    log: LogSource,
    stretch: Stretch,
    wanted: OfPolicy,
    *,
    asked: Asked | None = None,
    heads: Iterable[str] = (),
    watch: Watch = lambda *_: None,
) -> Proof:
    """What went into the weights of a policy and its ancestors; with `asked` also whether any of these tasks did.

    `stretch` is of one run, from its first record on; `heads`: chain heads noted elsewhere, which some decision must
    have, or the history was rewritten. Raises BadInput where the history does not fit (with the place), does not begin
    with the run, lies in files that do not join, or has no such policy; OutOfRange, EnvironmentFault.
    """
    assert stretch.run_id is not None, "a proof is of one run"
    check_joined(log, stretch)
    check_begun(log, stretch)
    deriver, seen = Deriver(log, stretch, Ledger(stretch.partition, log.partitions(stretch.lifecycle))), Seen(asked)
    run, chains = deriver.ledger.run(stretch.run_id), Chains(noted_heads(heads), None)
    try:
        for derived in deriver.derive(watch=watch):
            chains.take(derived)
            seen.take(derived, run)
    except Differs as first:
        raise refusal(first.finding) from None
    check_vouched(log, stretch, deriver, chains)
    if not seen.policies:
        raise BadInput(
            f"run {visible(stretch.run_id)} has no policy in {stretch.lifecycle}:{stretch.partition}: name another run"
        )
    lineage = lineage_of(seen, _policy(seen, wanted, deriver.decided_to))
    members = members_of(seen, lineage)
    known = {one.update_id: one for one in members if one.update_id in seen.commits}
    rows, found = Rows(seen.late), {one.update_id: _update(seen, one, None) for one in members}
    for commit in commits_of(log, stretch, [seen.commits[name] for name in known]):
        member = known[commit.record.update_id]
        found[member.update_id] = _update(seen, member, commit)
        rows.add(commit, member.membership)
    rows.read(log, stretch, seen, deriver.decided_to, deriver.strays, lambda done, size: watch("read", done, size))
    updates, trajectories = tuple(found.values()), tuple(rows.given(found))
    doubts = tuple(_doubts(seen, lineage, members, updates, trajectories, deriver))
    head = run.head
    return Proof(
        run_id=stretch.run_id,
        lifecycle=stretch.lifecycle,
        partition=stretch.partition,
        observed=seen.observed,
        policies=lineage,
        updates=updates,
        trajectories=trajectories,
        doubts=doubts,
        sequence=head.sequence,
        chain=head.chain,
        fold_version=head.fold_version,
        decided_to=deriver.decided_to,
        absence=None if asked is None else _absence(asked, seen, members, doubts),
    )


def _policy(seen: Seen, wanted: OfPolicy, end: int) -> ProvenPolicy:
    """Of those that were prepared below `end`, where the decided records that were given end."""
    if wanted.version is not None:
        if wanted.version not in seen.policies:
            raise BadInput(
                f"the run has no policy {wanted.version} below offset {end}, only {_versions(sorted(seen.policies))}: "
                "name another, or give what follows, too"
            )
        return seen.policies[wanted.version]
    found = [one for one in seen.policies.values() if one.artifact.hash == wanted.artifact_hash]
    if not found:
        raise BadInput(
            f"the run has no policy with the artifact {visible(wanted.artifact_hash)} below offset {end}: give its "
            "whole hash, or what follows, too"
        )
    contents = {frozenset(one.update_id for one in named_by(lineage_of(seen, policy))) for policy in found}
    if len(contents) > 1:
        versions = ", ".join(str(one.version) for one in found)
        raise BadInput(f"policies {versions} have this artifact, of different updates: name one with --policy")
    return found[-1]


def _versions(known: Sequence[int]) -> str:
    """Of a resumed run, or of a part of it, some in between are missing."""
    if len(known) == 1:
        return f"version {known[0]}"
    if known[-1] - known[0] + 1 == len(known):
        return f"versions {known[0]} to {known[-1]}"
    shown = known if len(known) <= _SHOWN_VERSIONS else (*known[: _SHOWN_VERSIONS - 2], "...", known[-1])
    return f"versions {', '.join(map(str, shown))}"


def _update(seen: Seen, member: Member, commit: OfCommit | None) -> ProvenUpdate:
    standing = seen.standing(member.update_id)
    if commit is None:
        return ProvenUpdate(member.update_id, member.membership, standing, member.policy_version)
    record, where = commit.record, seen.commits[member.update_id]
    return ProvenUpdate(
        member.update_id,
        member.membership,
        standing,
        member.policy_version,
        learner_id=record.learner.learner_id,
        epoch=record.learner.epoch,
        rollout_id=record.steps[0].rollout_id if record.steps else None,
        steps=tuple(len(step.trajectory_ids) for step in record.steps),
        trajectories=len({name for step in record.steps for name in step.trajectory_ids}),
        dropped=record.dropped,
        commit_offset=where.offset,
        decision_offset=where.decision_offset,
        undone_offset=where.undone_offset,
        reason=commit.decision.reason if commit.decision.violation else "",
    )


def _doubts(
    seen: Seen,
    lineage: Sequence[ProvenPolicy],
    members: Sequence[Member],
    updates: Sequence[ProvenUpdate],
    trajectories: Sequence[ProvenTrajectory],
    deriver: Deriver,
) -> Iterator[Doubt]:
    if seen.observed:
        yield Doubt(DoubtKind.TAKEN_AS_FACT, "the whole run was only observed")
    for policy in lineage[-1:]:
        if policy.artifact.kind is ArtifactKind.DECLARED:
            yield Doubt(DoubtKind.DECLARED, f"policy {policy.version}", policy.prepared_offset)
    for member, update in zip(members, updates, strict=True):
        yield from _of_update(member, update, seen)
    for row in trajectories:
        if row.task is None:
            yield Doubt(DoubtKind.NO_GENERATED, f"trajectory {row.trajectory_id} of update {row.update_id}")
        elif row.reward is None:
            yield Doubt(
                DoubtKind.NO_REWARD, f"trajectory {row.trajectory_id} of update {row.update_id}", row.generated_offset
            )
    hidden = Counter[str]()
    if seen.asked is not None:
        truncated = seen.asked.truncated(seen.occurring)
        may_hide = (row for row in trajectories if row.task is not None and seen.asked.may_hide(row.task, truncated))
        hidden.update(row.update_id for row in may_hide)
    for update_id, count in hidden.items():
        yield Doubt(DoubtKind.NOT_PUBLISHED, f"{count:,} of update {update_id}", seen.commits[update_id].offset)
    if deriver.undecided:
        yield Doubt(DoubtKind.UNDECIDED, f"{deriver.undecided:,} records", deriver.decided_to)


def _of_update(member: Member, update: ProvenUpdate, seen: Seen) -> Iterator[Doubt]:
    about = f"update {update.update_id}"
    if update.commit_offset is None:
        by = seen.policies[update.policy_version or 0].prepared_offset if update.policy_version is not None else None
        yield Doubt(DoubtKind.NO_COMMIT, f"{about} ({update.standing}), named by policy {update.policy_version}", by)
    if member.unsure is not None:
        yield Doubt(member.unsure, about, update.commit_offset)
    elif update.undone_offset is not None:
        yield Doubt(DoubtKind.UNDONE, about, update.undone_offset)
    if update.reason:
        yield Doubt(DoubtKind.TAKEN_AS_FACT, f"{about} ({update.reason})", update.commit_offset)
    if update.dropped:
        yield Doubt(DoubtKind.DROPPED, f"{len(update.dropped):,} of {about}", update.commit_offset)


def _absence(asked: Asked, seen: Seen, members: Sequence[Member], doubts: Sequence[Doubt]) -> Absence:
    found = {one.update_id: Found(one.membership.value) for one in members}
    hits = [hit for commit in seen.commits.values() for hit in _hits(seen, commit, found)]
    hashes, ids = asked.counts
    hits.sort(key=lambda hit: list(Found).index(hit.found))
    return Absence(
        prompt_hashes=hashes,
        task_ids=ids,
        known_prompt_hashes=len(seen.occurring & asked.prompt_hashes),
        known_task_ids=len(seen.occurring & asked.task_ids),
        hits=tuple(hits),
        open_questions=tuple(doubt for doubt in doubts if doubt.kind in _OPEN_QUESTIONS),
    )


def _hits(seen: Seen, commit: Committed, found: dict[str, Found]) -> Iterator[Hit]:
    counts = commit.update_id in found
    trained = found.get(commit.update_id, Found.OTHER_WEIGHTS)
    for rows, what in ((seen.trained, trained), (seen.dropped if counts else {}, Found.DROPPED)):
        for row in rows.get(commit.update_id, ()):
            yield Hit(row.asked, what, row.trajectory_id, commit.update_id, row.generated_offset, commit.offset)
