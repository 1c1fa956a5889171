"""Mutants that nobody can tell from the rules, each with the reason."""

EXPLAINED: dict[str, str] = {
    **dict.fromkeys(
        (
            "row reason: update RecordingSealed rolled_back",
            "row outcome accepted: update RecordingSealed rolled_back",
        ),
        "a roll-back begins an epoch, so that not_holder always comes before this row",
    ),
    "order: if lag < 0 | if lag == 0 in gates.freshness_of": "the two exclude each other",
}
