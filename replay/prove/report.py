"""A proof's report: lines for a terminal, JSON lines for scripts."""

from collections.abc import Iterator, Sequence
from typing import Any

from rollbook.replay.prove.proof import (
    DOUBTS,
    Absence,
    Doubt,
    Found,
    Membership,
    Proof,
    ProvenPolicy,
    ProvenTrajectory,
    ProvenUpdate,
)
from rollbook.schemas.text import plural, visible

_HIT = {
    Found.IN_WEIGHTS: "trained on, in these weights",
    Found.NOT_RULED_OUT: "trained on, perhaps in these weights",
    Found.DROPPED: "held and dropped: the trainer says that it was not trained on",
    Found.OTHER_WEIGHTS: "trained on, but in none of the updates of these weights",
}
_HASH_SHOWN = 12
_LONGEST_NAME = 30


def lines(proof: Proof, limit: int) -> Iterator[str]:
    """For a person at a terminal; at most `limit` rows of each table."""
    policy, inside = proof.policy, [one for one in proof.updates if one.membership is Membership.IN_WEIGHTS]
    rows = [one for one in proof.trajectories if one.membership is Membership.IN_WEIGHTS]
    tasks = {(one.task.task_id, one.task.prompt_hash) for one in rows if one.task is not None}
    yield f"policy {policy.version} of run {visible(proof.run_id)}: artifact {visible(policy.artifact.hash)}"
    yield (
        f"  {_many(len(proof.policies), 'policy', 'policies')}, {plural(len(inside), 'update')}, "
        f"{plural(sum(len(one.steps) for one in inside), 'optimizer step')}, "
        f"{_trajectories(len({one.trajectory_id for one in rows}))}, {plural(len(tasks), 'task')}"
    )
    unsure = [one for one in proof.updates if one.membership is Membership.NOT_RULED_OUT]
    if unsure:
        count = sum(one.trajectories for one in unsure)
        told = f"{plural(len(unsure), 'update')} that the lineage does not name, of {_trajectories(count)}"
        yield f"  not ruled out: {told}"
    yield f"  head: {proof.chain} (decision {proof.sequence:,}, fold {proof.fold_version})"
    yield from _cut(_policies(proof), limit, "policies", _POLICIES)
    yield from _cut(_updates(proof), limit, "updates", _UPDATES)
    yield from _cut(_trajectory_rows(proof), limit, "trajectories", _TRAJECTORIES)
    if proof.doubts:
        yield from _doubts("what the log cannot tell:", proof.doubts, limit)
    if proof.absence is not None:
        yield from _absence(proof.absence, limit)


_POLICIES = ("version", "made of", "adds", "prepared", "activated", "artifact")
_UPDATES = ("update", "policy", "state", "learner", "steps", "trajectories", "dropped", "commit")
_TRAJECTORIES = ("trajectory", "update", "task", "prompt", "dataset:row", "behavior", "reward", "rule", "offsets")
Row = Sequence[object]


def _policies(proof: Proof) -> list[Row]:
    return [
        (
            one.version,
            _made_of(one),
            plural(len(one.update_ids), "update"),
            one.prepared_offset,
            "" if one.activated_offset is None else one.activated_offset,
            one.artifact.hash,
        )
        for one in reversed(proof.policies)
    ]


def _made_of(policy: ProvenPolicy) -> str:
    if policy.source_version is None:
        return "initial"
    return f"{policy.source_version}{'' if policy.rollback_of is None else ' (roll-back)'}"


def _updates(proof: Proof) -> list[Row]:
    return [
        (
            one.update_id,
            "not named" if one.policy_version is None else one.policy_version,
            one.standing,
            one.learner_id,
            len(one.steps),
            one.trajectories,
            len(one.dropped),
            "" if one.commit_offset is None else one.commit_offset,
        )
        for one in proof.updates
    ]


def _trajectory_rows(proof: Proof) -> list[Row]:
    return [_trajectory(one) for one in proof.trajectories]


def _trajectory(one: ProvenTrajectory) -> Row:
    task, reward = one.task, one.reward
    return (
        one.trajectory_id,
        one.update_id,
        "not known" if task is None else _short(task.task_id),
        "" if task is None else task.prompt_hash[:_HASH_SHOWN],
        "" if task is None else f"{_short(task.dataset)}:{task.row}",
        " ".join(str(policy.version) for policy in one.behavior),
        "not known" if reward is None else f"{reward.raw_reward:.6g}",
        "" if reward is None else f"{reward.rule.rule_id} {reward.rule.version}",
        " ".join("-" if offset is None else str(offset) for offset in (one.generated_offset, one.reward_offset)),
    )


def _short(text: str) -> str:
    """Names that were redacted are hashes; the JSON has them whole."""
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."


def _cut(rows: Sequence[Row], limit: int, title: str, header: Row) -> Iterator[str]:
    yield from _table(title, header, rows[:limit], len(rows))
    if len(rows) > limit:
        yield f"  ... and {len(rows) - limit:,} more; --limit shows as many as you like, --json all"


def _table(title: str, header: Row, rows: Sequence[Row], count: int | None = None) -> Iterator[str]:
    """Aligned columns; nothing when there are no rows."""
    if not rows:
        return
    yield f"{title} ({len(rows) if count is None else count:,})"
    cells = [[visible(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()


def _doubts(title: str, doubts: Sequence[Doubt], limit: int) -> Iterator[str]:
    yield title
    for kind in dict.fromkeys(doubt.kind for doubt in doubts):
        of_kind = [doubt for doubt in doubts if doubt.kind is kind]
        yield f"  {kind}: {DOUBTS[kind]}"
        for doubt in of_kind[:limit]:
            yield f"    {visible(doubt.about, 1000)}{'' if doubt.offset is None else f', offset {doubt.offset}'}"
        if len(of_kind) > limit:
            yield f"    ... and {len(of_kind) - limit:,} more"


def _absence(absence: Absence, limit: int) -> Iterator[str]:
    asked = f"{_many(absence.prompt_hashes, 'prompt hash', 'prompt hashes')} and {plural(absence.task_ids, 'task id')}"
    present = len({hit.asked for hit in absence.present})
    if absence.proven:
        yield f"{'ABSENT' if absence.occurring else 'ABSENT, BUT NOT KNOWN'}  {asked}: none was trained on in this run"
    elif present:
        rows = len({hit.trajectory_id for hit in absence.present})
        yield f"PRESENT  {asked}: {present:,} of them, in {_trajectories(rows)}"
    else:
        yield f"NOT PROVEN  {asked}: none is known to have been trained on, but the log does not tell it all"
    known = f"{absence.known_prompt_hashes:,} of the prompt hashes, {absence.known_task_ids:,} of the task ids"
    yield f"  known anywhere in the run, trained on or not: {known}"
    if absence.warning:
        yield f"  WARNING: {absence.warning}"
    for hit in absence.hits[:limit]:
        yield (
            f"  {visible(hit.asked)}  trajectory {visible(hit.trajectory_id)} (generated at {hit.generated_offset}), "
            f"update {visible(hit.update_id)} (commit at {hit.commit_offset}): {_HIT[hit.found]}"
        )
    if len(absence.hits) > limit:
        yield f"  ... and {len(absence.hits) - limit:,} more"
    if absence.open_questions:
        yield from _doubts("  open questions:", absence.open_questions, limit)


def _trajectories(count: int) -> str:
    return _many(count, "trajectory", "trajectories")


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def plain(proof: Proof) -> Iterator[dict[str, Any]]:
    """For scripts: the proof, then what it is made of, an object each; keys only ever grow."""
    yield {
        "kind": "proof",
        "run_id": proof.run_id,
        "policy": proof.policy.version,
        "artifact_hash": proof.policy.artifact.hash,
        "lifecycle": proof.lifecycle,
        "partition": proof.partition,
        "decided_to": proof.decided_to,
        "observed": proof.observed,
        "sequence": proof.sequence,
        "chain": proof.chain,
        "fold_version": proof.fold_version,
        "policies": len(proof.policies),
        "updates": len(proof.updates),
        "trajectories": len(proof.trajectories),
        "doubts": len(proof.doubts),
    }
    for policy in proof.policies:
        yield _plain_policy(policy)
    for update in proof.updates:
        yield _plain_update(update)
    for row in proof.trajectories:
        yield _plain_trajectory(row)
    for doubt in proof.doubts:
        yield _plain_doubt("doubt", doubt)
    if proof.absence is not None:
        yield from _plain_absence(proof.absence)


def _plain_policy(policy: ProvenPolicy) -> dict[str, Any]:
    return {
        "kind": "policy",
        "version": policy.version,
        "label": policy.label,
        "artifact_hash": policy.artifact.hash,
        "artifact_kind": policy.artifact.kind.value,
        "artifact_uri": policy.artifact.uri,
        "source_version": policy.source_version,
        "parent_version": policy.parent_version,
        "rollback_of": policy.rollback_of,
        "update_ids": list(policy.update_ids),
        "prepared_offset": policy.prepared_offset,
        "prepared_chain": policy.prepared_chain,
        "activated_offset": policy.activated_offset,
        "abandoned_offset": policy.abandoned_offset,
    }


def _plain_update(update: ProvenUpdate) -> dict[str, Any]:
    return {
        "kind": "update",
        "update_id": update.update_id,
        "membership": update.membership.value,
        "standing": update.standing.value,
        "policy_version": update.policy_version,
        "learner_id": update.learner_id,
        "epoch": update.epoch,
        "rollout_id": update.rollout_id,
        "steps": list(update.steps),
        "trajectories": update.trajectories,
        "dropped": [
            {"trajectory_id": one.trajectory_id, "reason": one.reason, "disposition": one.disposition.value}
            for one in update.dropped
        ],
        "commit_offset": update.commit_offset,
        "decision_offset": update.decision_offset,
        "undone_offset": update.undone_offset,
        "violation": update.reason,
    }


def _plain_trajectory(row: ProvenTrajectory) -> dict[str, Any]:
    task, reward = row.task, row.reward
    rule = None if reward is None else reward.rule
    return {
        "kind": "trajectory",
        "trajectory_id": row.trajectory_id,
        "update_id": row.update_id,
        "membership": row.membership.value,
        "steps": list(row.steps),
        "group_id": row.group_id,
        "task_id": None if task is None else task.task_id,
        "prompt_hash": None if task is None else task.prompt_hash,
        "dataset": None if task is None else task.dataset,
        "row": None if task is None else task.row,
        "purpose": None if row.purpose is None else row.purpose.value,
        "behavior": [{"version": one.version, "artifact_hash": one.artifact_hash} for one in row.behavior],
        "contract_hash": row.contract_hash,
        "raw_reward": None if reward is None else reward.raw_reward,
        "components": None if reward is None else {one.name: one.value for one in reward.components},
        "reward_rule": None if rule is None else {"rule_id": rule.rule_id, "version": rule.version, "hash": rule.hash},
        "reward_remote": None if reward is None else reward.remote,
        "label_hash": None if reward is None else reward.label_hash,
        "generated_offset": row.generated_offset,
        "reward_offset": row.reward_offset,
        "lag": row.lag,
        "mean_abs_log_ratio": row.mean_abs_log_ratio,
        "reason": row.reason,
    }


def _plain_doubt(kind: str, doubt: Doubt) -> dict[str, Any]:
    return {
        "kind": kind,
        "doubt": doubt.kind.value,
        "meaning": DOUBTS[doubt.kind],
        "about": doubt.about,
        "offset": doubt.offset,
    }


def _plain_absence(absence: Absence) -> Iterator[dict[str, Any]]:
    yield {
        "kind": "absence",
        "absent": absence.proven,
        "prompt_hashes": absence.prompt_hashes,
        "task_ids": absence.task_ids,
        "occurring": absence.occurring,
        "known_prompt_hashes": absence.known_prompt_hashes,
        "known_task_ids": absence.known_task_ids,
        "warning": absence.warning,
        "present": len({hit.asked for hit in absence.present}),
        "hits": len(absence.hits),
        "open_questions": len(absence.open_questions),
    }
    for hit in absence.hits:
        yield {
            "kind": "hit",
            "asked": hit.asked,
            "found": hit.found.value,
            "trajectory_id": hit.trajectory_id,
            "update_id": hit.update_id,
            "generated_offset": hit.generated_offset,
            "commit_offset": hit.commit_offset,
        }
