"""What holds at every prefix whatever is sent: read off the fold's own state and decisions, not off the naive model."""

from typing import Any

from rollbook.schemas.records.decision import Decision, Outcome

Facts = dict[str, Any]

STATUS, REVISION, OWNER = 0, 1, 5
HELD, TRAINED = 3, 4


def check_step(before: Facts | None, after: Facts, decision: Decision, *, closing: bool) -> None:
    """One record later."""
    assert after["head"]["sequence"] == decision.sequence
    _held_once(after)
    if before is None:
        return
    assert after["head"]["sequence"] == before["head"]["sequence"] + 1
    assert after["head"]["floor"] >= before["head"]["floor"]
    assert after["head"]["commits"] - before["head"]["commits"] in (0, 1)
    _revisions(before, after)
    _refused_changes_nothing(before, after, decision)
    if not closing:
        _tallied(before, after)
        _counts_conserve(before, after, decision)
        _nothing_in_silence(before, after, decision)


def _held_once(after: Facts) -> None:
    """At most one live reservation per trajectory, and at most one standing update that trained on it. What was
    forgotten is in no table; a client that uses its id again has made another trajectory."""
    rows = after["trajectory"]
    held = [
        (name, update_id)
        for update_id, update in after["update"].items()
        for name in update[HELD]
        if update[0] in ("open", "started")
    ]
    assert sorted(held) == sorted((name, row[OWNER][0]) for name, row in rows.items() if row[STATUS] == "reserved")
    for name, row in rows.items():
        if row[STATUS] == "consumed":
            owner = after["update"][row[OWNER][0]]
            assert owner[0] == "committed", f"{name} is consumed by an update that is {owner[0]}"
            assert name in owner[TRAINED][0]
        elif row[STATUS] != "reserved":
            assert row[OWNER][0] == "", f"{name} is {row[STATUS]} and held"
    for update_id, update in after["update"].items():
        if update[0] not in ("open", "started"):
            assert not update[HELD], "an ended update holds nothing"
        for name in update[TRAINED][0]:
            assert update[0] == "committed", f"{update_id} is {update[0]} and names what it trained on"
            assert rows[name][STATUS] == "consumed", f"{name} was trained on by the standing {update_id}"
            assert rows[name][OWNER][0] == update_id


def _revisions(before: Facts, after: Facts) -> None:
    """They rise by one, exactly when the state changes."""
    for name, row in after["trajectory"].items():
        old = before["trajectory"].get(name)
        if old is None:
            assert row[REVISION] == 1
        else:
            changed = row[STATUS] != old[STATUS] or (row[STATUS] == "consumed" and row[OWNER][0] != old[OWNER][0])
            assert row[REVISION] - old[REVISION] == (1 if changed else 0), name


def _refused_changes_nothing(before: Facts, after: Facts, decision: Decision) -> None:
    if decision.outcome in (Outcome.ACCEPTED, Outcome.PENDING):
        return
    for kind in before:
        if kind not in ("head", "tally"):
            assert before[kind] == after[kind], f"a {decision.outcome.value} record changed {kind}"
    same = {name: value for name, value in before["head"].items() if name != "sequence"}
    assert same.items() <= after["head"].items()


ENDS = {
    "generation_failed": "generation_failed",
    "discard": "discarded",
    "quarantine": "quarantined",
    "expire": "offline",
    "commit": "consumed",
    "reserve": "reserved",
}
"""Events, and the states that nothing else leads to."""


def _tallied(before: Facts, after: Facts) -> None:
    """Each event is counted as often as a trajectory came to its state."""

    old, now = before["trajectory"], after["trajectory"]

    def came(state: str) -> list[str]:
        return [
            name
            for name, row in now.items()
            if row[STATUS] == state
            and (
                name not in old or old[name][STATUS] != state or (state == "consumed" and _other_owner(old, now, name))
            )
        ]

    def counted(name: str) -> int:
        return int(after["tally"].get(name, 0) - before["tally"].get(name, 0))

    through = [name for name in came("consumed") if name not in old or _other_owner(old, now, name)]
    for event, state in ENDS.items():
        assert counted(event) == len(came(state)) + (len(through) if event == "reserve" else 0), event
    left = [name for name, row in old.items() if row[STATUS] == "consumed" and name in now]
    left = [name for name in left if now[name][STATUS] != "consumed" or _other_owner(old, now, name)]
    assert counted("roll_back") == len(left)


def _other_owner(old: Facts, now: Facts, name: str) -> bool:
    return bool(old[name][OWNER][0] != now[name][OWNER][0])


def _counts_conserve(before: Facts, after: Facts, decision: Decision) -> None:
    """What was known is known, or was forgotten by a decision that says so."""
    gone = before["trajectory"].keys() - after["trajectory"].keys()
    said = sum(change.count for change in decision.mass_changes if change.predicate.endswith("forgotten"))
    rolled_back = sum(change.count for change in decision.mass_changes if "but forgotten" in change.predicate)
    assert len(gone) == said - rolled_back, f"{sorted(gone)} gone, {said} said"
    came = after["trajectory"].keys() - before["trajectory"].keys()
    assert len(came) <= 1


def _nothing_in_silence(before: Facts, after: Facts, decision: Decision) -> None:
    """Every change of a trajectory is in the decision: as an item, or among a mass change's ids."""
    named = {item.trajectory_id for item in decision.items}
    named.update(name for change in decision.mass_changes for name in change.first_ids)
    for name, row in after["trajectory"].items():
        old = before["trajectory"].get(name)
        if old is None or old[STATUS] != row[STATUS]:
            assert name in named, f"{name} changed without a word"
    for item in decision.items:
        row = after["trajectory"].get(item.trajectory_id)
        if row is not None and decision.outcome in (Outcome.ACCEPTED, Outcome.PENDING):
            assert item.revision_after is None or item.revision_after <= row[REVISION]
