"""What a record may say, the limits of the fold and its tables stay: an earlier decision stands on each of them."""

import pytest

from rollbook.processors.ledger import room
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.run import RunConfigured
from rollbook.tests.frozen.rules import RULES


def test_no_rule_has_changed_or_is_gone() -> None:
    today = RULES.all_today()
    changed = {name: today.get(name) for name, kept in RULES.kept().items() if today.get(name) != kept}
    assert changed == {}, "what was decided by it is derived again for ever: docs/compatibility.md"


def test_none_has_come_that_is_not_frozen() -> None:
    new = RULES.today().keys() - RULES.kept().keys()
    assert not new, f"{sorted(new)}: a fold version says since when; then python -m rollbook.tests.frozen.freeze"


def test_they_are_of_every_record() -> None:
    named = RULES.kept().keys()
    assert {"field Header.run_id", "field AdmitItem.active_tokens", "field RunConfigured.fold_version"} <= named
    assert {f"field RunConfigured.{name}" for name in RunConfigured.model_fields} <= named
    assert RULES.kept()["field Header.run_id"]["value"]["pattern"].startswith("^[A-Za-z0-9]")
    assert len([name for name in named if name.startswith("reason ")]) == len(Reason)


def test_a_limit_that_changes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ROOM_BYTES", room.ROOM_BYTES + 1)
    with pytest.raises(AssertionError, match="is derived again for ever"):
        test_no_rule_has_changed_or_is_gone()
