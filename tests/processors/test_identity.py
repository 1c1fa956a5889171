"""Five kinds of information identify a trajectory: a record that lacks one is refused, and the reason names it. What is
not registered or pinned is refused too, or grouped apart."""

from typing import Any

import pytest

from rollbook.schemas.codec import decode, encode
from rollbook.schemas.records.rollout import Origin, Span
from rollbook.schemas.records.run import RewardIdentity, Unpinned
from rollbook.schemas.types import Part
from rollbook.tests.processors.history import History, item, reasons, says
from rollbook.tests.processors.parts import RULE, contract_named

OTHER_RULE = RewardIdentity(rule_id="other", version="1", hash="other-hash")
OTHER = "other tokenizer"
NO_MODEL = (Span(start=0, end=3, origin=Origin.TOOL),)


def lacking(part: Any, place: str, value: object) -> Any:
    """A record as a client would make it that checks nothing, with a value where something else belongs."""
    name, _, rest = place.partition(".")
    if isinstance(part, tuple):
        at = int(name)
        return (*part[:at], lacking(part[at], rest, value), *part[at + 1 :])
    assert isinstance(part, Part)
    return part.but(**{name: lacking(getattr(part, name), rest, value) if rest else value})


def without(history: History, place: str, value: object) -> str:
    """What is said of the history's last record, sent again in this way."""
    key, sent = history.log.records[-1].key, history.log.records[-1].value or b""
    decision = history.log.append(key, encode(lacking(decode(sent), place, value)))
    return f"{says(decision)}: {decision.detail}"


GENERATED: dict[str, dict[str, object]] = {
    "identity and task source": {
        "identity.trajectory_id": "",
        "identity.group_id": "",
        "identity.group_expected": 0,
        "task.task_id": "",
        "task.prompt_hash": "",
        "task.dataset": "",
    },
    "behavior policy": {
        "segments.0.spans.0.policy": None,
        "segments.0.spans.0.policy.artifact_hash": "",
        "segments.0.spans.0.policy.version": -1,
        "segments.0.spans": (),
    },
    "generation conditions": {"contract_hash": ""},
    "action evidence": {
        "segments": (),
        "segments.0.evidence_digest": "",
        "segments.0.tokens_digest": "",
        "segments.0.response_length": 0,
        "segments.0.active_tokens": -1,
    },
}
FIELDS = [(kind, place, value) for kind, places in GENERATED.items() for place, value in places.items()]


@pytest.mark.parametrize(("kind", "place", "value"), FIELDS, ids=[f"{kind}: {place}" for kind, place, _ in FIELDS])
def test_a_trajectory_that_lacks_one_kind_of_information_is_invalid_by_its_field(
    kind: str, place: str, value: object
) -> None:
    history = History().opened()
    history.generated("t0")
    assert without(history, place, value) == f"invalid contract_violation: {place}"
    assert list(history.run.trajectories.values()) == [history.trajectory("t0")]


def test_a_trajectory_without_a_token_of_any_policy_is_invalid() -> None:
    history = History().opened()
    history.generated("t0", active_tokens=0)
    assert without(history, "segments.0.spans", NO_MODEL) == "invalid contract_violation: segments"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("items", ()),
        ("items.0.trajectory_id", ""),
        ("items.0.raw_reward", float("nan")),
        ("reward.rule_id", ""),
        ("reward.version", ""),
        ("reward.hash", ""),
    ],
)
def test_a_reward_without_its_figure_or_identity_is_invalid_by_its_field(place: str, value: object) -> None:
    history = History().opened()
    history.generated("t0")
    history.rewarded("t1")
    assert without(history, place, value) == f"invalid contract_violation: {place}"
    assert history.status("t0") == "generated"


@pytest.mark.parametrize("place", ["items.0.evidence_digest", "items.0.current_digest", "policy.artifact_hash"])
def test_an_admission_without_its_evidence_or_policy_is_invalid_by_its_field(place: str) -> None:
    history = History().opened().ready("t0")
    history.learner()
    history.reserve("u0", "t0")
    history.admit("u0", {"t9": 0.0})
    assert without(history, place, "") == f"invalid contract_violation: {place}"
    assert history.trajectory("t0").admitted_ratio is None


def test_an_unregistered_contract_is_refused_and_named() -> None:
    history = History().opened()
    decision = history.generated("t0", contract=contract_named(OTHER))
    assert says(decision) == "rejected unregistered_contract"
    assert history.status("t0") == "none"


def test_what_is_not_pinned_is_refused() -> None:
    history = History()
    history.configured(contracts=(contract_named(),), rewards=(RULE,))
    history.contract()
    history.contract(OTHER)
    assert says(history.generated("t0", contract=contract_named(OTHER))) == "rejected contract_not_pinned"
    history.generated("t0")
    assert says(history.rewarded("t0", rule=OTHER_RULE)) == "rejected reward_not_pinned"
    assert history.status("t0") == "generated"


def apart() -> History:
    """A run that pins a contract and a rule, and keeps apart what is of others."""
    history = History()
    history.configured(contracts=(contract_named(),), rewards=(RULE,), unpinned=Unpinned.APART)
    history.contract()
    history.contract(OTHER)
    history.learner()
    return history


@pytest.mark.parametrize("other", [OTHER, "registered by nobody"])
def test_a_group_never_mixes_a_pinned_contract_with_another(other: str) -> None:
    history = apart()
    for at, tokenizer in enumerate(("tokenizer", other)):
        history.generated(f"half{at}", group="half", sample=at, of=2, contract=contract_named(tokenizer))
        for tokenizer_of_all in ("tokenizer", other):
            name = f"{tokenizer_of_all}{at}"
            history.generated(name, group="twice", sample=at, of=2, contract=contract_named(tokenizer_of_all))
            history.rewarded(name)
    history.rewarded("half0", "half1")
    claims = [set(reasons(history.claim(f"u{at}"))) for at in range(3)]
    assert claims == [{"tokenizer0", "tokenizer1"}, {f"{other}0", f"{other}1"}, set()]
    assert (history.status("half0"), history.status("half1")) == ("rewarded", "rewarded")


def test_a_group_never_mixes_rewards_of_a_pinned_rule_with_those_of_another() -> None:
    history = apart()
    for at, rule in enumerate((RULE, OTHER_RULE)):
        history.generated(f"t{at}", group="g", sample=at, of=2)
        history.rewarded(f"t{at}", rule=rule)
    assert says(history.claim("u0")) == "rejected nothing_taken"


def test_rewards_of_two_rules_that_came_early_keep_a_group_apart_as_well() -> None:
    history = apart()
    for at, rule in enumerate((RULE, OTHER_RULE)):
        history.rewarded(f"t{at}", rule=rule)
        history.generated(f"t{at}", group="g", sample=at, of=2)
    assert says(history.claim("u0")) == "rejected nothing_taken"


def test_what_is_kept_apart_can_still_be_reserved_by_name() -> None:
    history = apart()
    history.generated("t0", contract=contract_named(OTHER))
    history.rewarded("t0", rule=OTHER_RULE)
    assert item(history.reserve("u0", "t0"), "t0").reason == "reserved"
