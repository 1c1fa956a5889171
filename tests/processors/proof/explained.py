"""Mutants that nobody can tell from the rules, each with the reason; `python -m ...explained` prints the table of
docs/proof.md."""

_NEVER_TOGETHER = "the two never hold together"
_ONE = "a member comes or goes: `by` is 1 or -1, and never 0"
_UNTOLD = "a mass change names what was dropped, and not why"
_TRUTH = "a truth value is the same in either order"
_FALLBACK = "the second of an `or` that the types ask for: the first always holds where this is reached"

EXPLAINED: dict[str, str] = {
    **dict.fromkeys(
        (
            "row reason: update RecordingSealed rolled_back",
            "row outcome accepted: update RecordingSealed rolled_back",
        ),
        "a roll-back begins an epoch, so that not_holder always comes before this row",
    ),
    "order: if lag < 0 | if lag == 0 in gates.freshness_of": _NEVER_TOGETHER,
    "reason: BEYOND_HORIZON #0 in floor._drop_pending": _UNTOLD,
    "bound: ancestor.version > run.head.floor in floor._oldest_within": (
        "it only saves work: the floor never falls, whatever lies at it or below"
    ),
    "order: source.orphaned or undone at 0 in policy._new_policy": _TRUTH,
    "order: run.observes or record.unreserved at 0 in update.commit": _TRUTH,
    "order: if row is None | if trained and (held or row.status is TrajectoryStatus.REWARDED) in update._settle": (
        "an unknown row that is trained on is answered before, and what is held is known"
    ),
    "bound: order < before in policy._last_report": "equal reports are answered before",
    "order: after or before at 0 in rollout._verdict": "only the id is asked for, and the two are one trajectory",
    "bound: record.config_version <= head.config_version in run._refusal": (
        "the version in force is known, and answered before"
    ),
    "bound: fact.offset < since in floor._drop_pending": "no fact lies at the offset of an Activate",
    "bound: by > 0 in groups._Group.count": _ONE,
    "bound: by > 0 in groups.Groups._count": _ONE,
    "guard: if before == after in groups.Groups._move": "it only saves work: what is taken out is put back",
    "order: if member.apart | its elif in groups.Groups._new": (
        "a group that has fallen apart has its whole among its parts, so that to enter it again changes nothing"
    ),
    "order: fact.replaced or known.failure_content at 0 in reward.rewarding": (
        "what waited is applied as its trajectory arrives, which has not failed before: " + _NEVER_TOGETHER
    ),
    "order: if known.content == at.content | if found.outcome is Outcome.ACCEPTED and place != "
    "(identity.group_id, identity.sample_inde in rollout._meet": "the same content has the same place",
    "order: if Reason.PENDING in reasons | if all((reason == Reason.DUPLICATE for reason in reasons)) in "
    "verdict.outcome_of": _NEVER_TOGETHER,
    "order: if found.reason is Reason.UPDATE_ENDED | for sealed in update.sealed in ending.recording_sealed": (
        "what has sealed ranks was started: it is only aborted by what fences its learner, who is refused before"
    ),
    "order: for sealed in update.sealed | if found.outcome is not Outcome.ACCEPTED in ending.recording_sealed": (
        "what is not started has no sealed ranks"
    ),
    "order: if found.outcome is not Outcome.ACCEPTED | if len(update.sealed) >= MAX_ITEMS in ending.recording_sealed": (
        "what is not started has no sealed ranks"
    ),
    "order: if restored is not None and restored.abandoned | if again is not None in policy.policy_prepared": (
        "a roll-back adds no updates: " + _NEVER_TOGETHER
    ),
    "reason: NOTHING_TAKEN #2 in reserve.reserve": _FALLBACK,
}


def table() -> str:
    """The mutants by reason, as a table of the documentation."""
    lines = ["| mutants | why they change nothing |", "|---|---|"]
    for why in dict.fromkeys(EXPLAINED.values()):
        names = (name.replace("|", "\\|") for name, reason in EXPLAINED.items() if reason == why)
        lines.append(f"| {'<br>'.join(f'`{name}`' for name in names)} | {why} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
