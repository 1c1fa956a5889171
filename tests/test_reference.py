"""The reference pages are generated from the tables, and the tables are whole."""

from rollbook.processors.reasons import BY_STAGE, STAGES, TABLE, Reason, Stage

OF_THE_ISSUE = ("generation", "reward", "admission", "update", "artifact", "distribution", "activation")


def test_every_reason_has_exactly_one_stage() -> None:
    listed = [reason for reasons in BY_STAGE.values() for reason in reasons]
    assert sorted(listed) == sorted(Reason)
    assert all(reason.stage is stage for stage, reasons in BY_STAGE.items() for reason in reasons)
    assert all(TABLE[reason].text == reason.meaning for reason in Reason)


def test_every_stage_of_the_pipeline_has_reasons() -> None:
    assert set(OF_THE_ISSUE) < set(Stage)
    assert list(BY_STAGE) == list(STAGES) == list(Stage)
    assert all(BY_STAGE.values())
