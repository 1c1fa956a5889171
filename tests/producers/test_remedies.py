"""Every refusal that a client can be told says on one line what it was about and what to do."""

import pytest

from rollbook.processors.ledger.matrix import MATRIX
from rollbook.processors.reasons import Reason
from rollbook.producers import EpochConflict, LearnerFenced, NothingTaken, Refused, UpdateEnded, UpdateInDoubt
from rollbook.producers.errors import error_of
from rollbook.producers.remedies import REMEDY, remedy_of
from rollbook.producers.sending.command import YES
from rollbook.schemas.records.decision import Decision, ItemDecision, Outcome, SourcePosition, Subject

NEVER_REFUSED = {
    *(Reason.OK, Reason.DUPLICATE, Reason.PENDING, Reason.ACTIVATED),
    *(Reason.DISPATCHED, Reason.LATE_DISPATCH, Reason.GENERATED, Reason.GENERATION_FAILED),
    *(Reason.REWARDED, Reason.REWARD_FAILED, Reason.DISCARDED, Reason.QUARANTINED),
    *(Reason.RESERVED, Reason.IDEMPOTENT_RETRY, Reason.HELD, Reason.TRAINED, Reason.DROPPED, Reason.RELEASED),
    *(
        Reason.UNRESERVED,
        Reason.TRAINED_TWICE,
        Reason.UPDATE_FAILED,
        Reason.OPERATOR,
        Reason.LEASE_EXPIRED,
        Reason.IN_DOUBT,
    ),
    Reason.UNDECODABLE,  # names no event, so that no client is told
}
"""What records and items are accepted with."""


def test_each_reason_is_a_yes_or_has_a_remedy() -> None:
    assert set(REMEDY) | NEVER_REFUSED == set(Reason)
    assert not set(REMEDY) & NEVER_REFUSED
    assert all(text and "\n" not in text and not text.endswith(".") for text in REMEDY.values())


def test_whatever_a_state_refuses_has_a_remedy() -> None:
    refused = {row.reason for rows in MATRIX.values() for row in rows.values() if row.outcome not in YES}
    assert refused <= set(REMEDY)


def decision(reason: str, *items: tuple[str, str], record: str = "Reserve", about: Subject | None = None) -> Decision:
    return Decision(
        run_id="run-0",
        sequence=1,
        source=SourcePosition(partition=1, offset=7, sha256="0" * 64),
        record_type=record,
        event_id="e",
        outcome=Outcome.REJECTED,
        reason=reason,
        subject=about,
        update_id=None if about else "u",
        config_version=1,
        fold_version=1,
        items=tuple(
            ItemDecision(trajectory_id=name, reason=why, state_after="reserved", revision_after=3)
            for name, why in items
        ),
        chain="0" * 64,
    )


@pytest.mark.parametrize("reason", sorted(REMEDY))
def test_a_refusal_is_one_line_with_its_remedy(reason: Reason) -> None:
    said = str(error_of(decision(reason)))
    assert "\n" not in said
    assert said.startswith(f"Reserve of update u at lifecycle:1@7 was rejected, {reason.value}: ")
    if reason is not Reason.EPOCH_CONFLICT:
        assert said.endswith(f"; {REMEDY[reason]}")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.LEARNER_FENCED, LearnerFenced),
        (Reason.EPOCH_CONFLICT, EpochConflict),
        (Reason.UPDATE_IN_DOUBT, UpdateInDoubt),
        (Reason.UPDATE_ENDED, UpdateEnded),
        (Reason.NOTHING_TAKEN, NothingTaken),
        (Reason.NOT_HELD, Refused),
    ],
)
def test_who_must_act_is_the_errors_type(reason: Reason, kind: type[Refused]) -> None:
    assert type(error_of(decision(reason))) is kind


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            decision("revision_conflict", ("a", "all_or_none"), ("b", "revision_conflict"), ("c", "revision_conflict")),
            "[trajectory b, reserved at revision 3, the first of 2]",
        ),
        (decision("stale_policy", ("a", "stale_policy")), "[trajectory a, reserved at revision 3]"),
        (decision("nothing_taken", ("a", "stale_policy")), "[trajectory a, stale_policy, reserved at revision 3]"),
        (
            decision("conflict", record="CheckpointSaved", about=Subject(kind="checkpoint", id="c-0")),
            "CheckpointSaved of checkpoint c-0 at",
        ),
        (
            decision("wrong_expected", record="Activate", about=Subject(kind="policy", id="3")),
            "Activate of policy 3 at",
        ),
    ],
)
def test_it_names_what_it_is_about(found: Decision, said: str) -> None:
    assert said in str(error_of(found))


def test_where_it_is_about_no_thing_it_names_the_run() -> None:
    plain = decision("run_not_configured", record="LearnerStarted").model_copy(update={"update_id": None})
    assert str(error_of(plain)).startswith("LearnerStarted of run run-0 at ")


def test_a_reason_of_newer_rules_says_where_to_look() -> None:
    assert "reference of reasons" in str(error_of(decision("brand_new")))
    assert remedy_of("ok") == ""
