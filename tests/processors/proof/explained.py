"""Mutants that nobody can tell from the rules, each with the reason."""

_NEVER_TOGETHER = "the two never hold together"
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
