"""What can have become of a trajectory: one fate each, with its meaning; and the parts whose rewards are compared."""

from enum import StrEnum

from rollbook.processors.reasons import Reason


class Fate(StrEnum):
    """Each trajectory has one; the order is that of the page."""

    CONSUMED = "consumed"
    ROLLED_BACK = "rolled_back"
    REFUSED_STALE = "refused_stale"
    REFUSED_DRIFT = "refused_drift"
    REFUSED_OTHER = "refused_other"
    REFUSED_AT_ENTRY = "refused_at_entry"
    DISCARDED = "discarded"
    QUARANTINED = "quarantined"
    EXPIRED = "expired"
    GENERATION_FAILED = "generation_failed"
    REWARD_FAILED = "reward_failed"
    WAITING_STALE = "waiting_stale"
    WAITING = "waiting"
    RESERVED = "reserved"
    UNREWARDED = "unrewarded"
    IN_FLIGHT = "in_flight"
    EVALUATION = "evaluation"


MEANING: dict[Fate, str] = {
    Fate.CONSUMED: "An update that stands trained on it.",
    Fate.ROLLED_BACK: "It was trained on, but that update was undone, and no other has taken it since.",
    Fate.REFUSED_STALE: "The last update that asked for it was refused: it lay more than max_lag behind the learner.",
    Fate.REFUSED_DRIFT: "Its Admit was refused: the learner's policy had drifted too far from the one that wrote it.",
    Fate.REFUSED_OTHER: "The last update that asked for it was refused for another reason of policy or evidence.",
    Fate.REFUSED_AT_ENTRY: "The ledger never took it in: too old when it arrived, too many live, or not as pinned.",
    Fate.DISCARDED: "Filtered out, by whoever filters or by the trainer.",
    Fate.QUARANTINED: "Taken out of use by a person or a check, or since the policy that wrote it was undone.",
    Fate.EXPIRED: "Fell below the horizon before any update that asked for it was refused.",
    Fate.GENERATION_FAILED: "The attempt ended without a trajectory.",
    Fate.REWARD_FAILED: "Nothing could score it, so far.",
    Fate.WAITING_STALE: "Waits with its reward, but more than max_lag behind the active policy.",
    Fate.WAITING: "Waits with its reward, and no update has it.",
    Fate.RESERVED: "An update that has not ended holds it.",
    Fate.UNREWARDED: "Generated, and its reward is awaited.",
    Fate.IN_FLIGHT: "Dispatched, and nothing more was heard of it.",
    Fate.EVALUATION: "Generated for evaluation, which is never trained on.",
}

NOT_OVER = (Fate.WAITING_STALE, Fate.WAITING, Fate.RESERVED, Fate.UNREWARDED, Fate.IN_FLIGHT, Fate.REWARD_FAILED)
"""Fates that a later record may change, unless the run is over."""

REFUSED = (Fate.REFUSED_STALE, Fate.REFUSED_DRIFT, Fate.REFUSED_OTHER, Fate.REFUSED_AT_ENTRY)


class Kind(StrEnum):
    """Fates that are told together where there are many lines."""

    TRAINED = "trained"
    ROLLED_BACK = "rolled_back"
    REFUSED = "refused"
    DISCARDED = "discarded"
    TAKEN_OUT = "taken_out"
    FAILED = "failed"
    OPEN = "open"
    EVALUATION = "evaluation"


OF_KIND: dict[Kind, tuple[Fate, ...]] = {
    Kind.TRAINED: (Fate.CONSUMED,),
    Kind.ROLLED_BACK: (Fate.ROLLED_BACK,),
    Kind.REFUSED: REFUSED,
    Kind.DISCARDED: (Fate.DISCARDED,),
    Kind.TAKEN_OUT: (Fate.QUARANTINED, Fate.EXPIRED),
    Kind.FAILED: (Fate.GENERATION_FAILED, Fate.REWARD_FAILED),
    Kind.OPEN: (Fate.WAITING_STALE, Fate.WAITING, Fate.RESERVED, Fate.UNREWARDED, Fate.IN_FLIGHT),
    Kind.EVALUATION: (Fate.EVALUATION,),
}
KIND_OF: dict[Fate, Kind] = {fate: kind for kind, fates in OF_KIND.items() for fate in fates}

OF_REASON: dict[str, Fate] = {
    Reason.STALE_POLICY: Fate.REFUSED_STALE,
    Reason.POLICY_DRIFT: Fate.REFUSED_DRIFT,
    Reason.FUTURE_POLICY: Fate.REFUSED_OTHER,
    Reason.UNKNOWN_POLICY: Fate.REFUSED_OTHER,
    Reason.POLICY_NOT_ACTIVE: Fate.REFUSED_OTHER,
    Reason.EVIDENCE_MISMATCH: Fate.REFUSED_OTHER,
    Reason.EMPTY_ACTION_MASK: Fate.REFUSED_OTHER,
}
"""The gates' answers that are about the trajectory itself, and not about who asked, when, or beside what."""


class Part(StrEnum):
    """Rewarded trajectories whose rewards are compared; those for evaluation stand alone."""

    ALL = "all"
    CONSUMED = "consumed"
    ROLLED_BACK = "rolled_back"
    NEVER_TRAINED = "never_trained"
    REFUSED = "refused"
    DISCARDED = "discarded"
    EVALUATION = "evaluation"


MEANING_OF_PART: dict[Part, str] = {
    Part.ALL: "Everything that was rewarded, but for evaluation.",
    Part.CONSUMED: "An update that stands trained on it.",
    Part.ROLLED_BACK: "Trained on once, by an update that was undone.",
    Part.NEVER_TRAINED: "No update ever trained on it: refused, discarded, quarantined, expired, or still waiting.",
    Part.REFUSED: "Of those: refused as stale, for drift, for another reason, or at entry.",
    Part.DISCARDED: "Of those: filtered out.",
    Part.EVALUATION: "Generated for evaluation.",
}
