"""An update's record always fits the ledger topic: what would outgrow it is refused before anything changes."""

import pytest

from rollbook.processors.ledger import room
from rollbook.schemas.codec import encode
from rollbook.schemas.records.ledger import UpdateState
from rollbook.schemas.records.update import ReserveMode
from rollbook.tests.processors.history import History, says


def opened(names: list[str]) -> History:
    history = History().opened()
    history.learner()
    return history.ready(*names)


def row(history: History) -> UpdateState:
    found = history.run.updates.get("u0")
    assert found is not None
    return found


def test_a_reserve_that_would_outgrow_the_record_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    history = opened([f"t{at}" for at in range(8)])
    monkeypatch.setattr(room, "ROOM_BYTES", 800)
    assert says(history.reserve("u0", *(f"t{at}" for at in range(8)))) == "rejected update_full"
    assert says(history.claim("u0", 8)) == "rejected update_full"
    assert history.update_status("u0") == "none"
    assert says(history.claim("u0", 4)) == "accepted ok"
    assert says(history.reserve("u0", "t4", "t5", part=1, mode=ReserveMode.AVAILABLE)) == "rejected update_full"
    assert history.status("t4") == "rewarded"
    assert says(history.started("u0")) == "accepted ok", "there is always room for the start"


def test_admissions_of_the_same_rows_again_and_again_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    history = opened(["t0", "t1"])
    monkeypatch.setattr(room, "ROOM_BYTES", 1000)
    history.reserve("u0", "t0", "t1")
    answers = [says(history.admit("u0", {"t0": 0.0, "t1": 0.0}, part=part)) for part in range(8)]
    assert answers == ["accepted ok"] * answers.count("accepted ok") + ["rejected update_full"] * (
        8 - answers.count("accepted ok")
    )
    assert 1 < answers.count("accepted ok") < 8
    history.started("u0")
    assert says(history.commit("u0", "t0", "t1")) == "accepted ok"


@pytest.mark.parametrize("name", ["t", "0198c0de-0000-7000-8000-0000000000", "\U0001f300" * 200])
def test_the_estimate_is_not_below_what_is_written(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    names = [f"{name}{at:02}" for at in range(60)]
    history = opened(names)
    history.log.next_offset = 2**40
    history.reserve("u0", *names)
    history.admit("u0", dict.fromkeys(names, 0.123456789))
    before_start = row(history)
    history.started("u0")
    written = len(encode(row(history)))
    monkeypatch.setattr(room, "ROOM_BYTES", written - 500)
    assert room.outgrows(before_start, ())
