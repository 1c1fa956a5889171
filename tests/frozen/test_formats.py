"""The keys of the bundle formats stay what they are; more keys are another format."""

import pytest

from rollbook.replay.bundle.model import FormatVersion, Index
from rollbook.tests.frozen import formats
from rollbook.tests.frozen.formats import FORMATS


def test_no_key_of_a_format_has_changed_or_is_gone() -> None:
    today = FORMATS.all_today()
    changed = {name: today.get(name) for name, kept in FORMATS.kept().items() if today.get(name) != kept}
    assert changed == {}, "bundles that were written so are kept for ever: add a key, and leave these"


def test_no_format_has_gained_a_key() -> None:
    new = FORMATS.today().keys() - FORMATS.kept().keys()
    assert not new, f"{sorted(new)}: keys that are new belong to a format of their own (docs/compatibility.md)"


def test_every_format_that_can_be_written_is_among_them() -> None:
    frozen = {name.partition(" ")[0] for name in FORMATS.kept()}
    assert frozen == set(FormatVersion.__args__)  # type: ignore[attr-defined]


def test_they_are_the_keys_that_a_bundle_has() -> None:
    """A few of each file, at every depth."""
    named = {name.partition(" ")[2] for name in FORMATS.kept()}
    assert {
        "manifest.json stage_contracts{}.capability",
        "index.json samples[].loss_mask",
        "index.json identity.weight_lineage.actor_weight",
        "index.json config.conventions.whole_batch.tokens",
        "index.json config.conventions.corrections[].reach",
        "index.json context_parallel.order",
        "expected.json loss.value.value_clipfrac",
        "COMPLETE of ranks shards{}.relpath",
        "COMPLETE.N payloads",
        "rollbook-terms.json content.terms",
    } <= named


def test_a_key_that_changes_or_goes_and_one_that_is_new_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = dict(Index.model_fields)
    config, _ = fields.pop("config"), fields.pop("samples")
    fields["another"] = config
    monkeypatch.setattr(Index, "__pydantic_fields__", fields)
    with pytest.raises(AssertionError, match="leave these"):
        test_no_key_of_a_format_has_changed_or_is_gone()
    with pytest.raises(AssertionError, match=r"index\.json another"):
        test_no_format_has_gained_a_key()
    monkeypatch.undo()
    monkeypatch.setattr(formats, "_entry", lambda info: {"value": "anything"})
    with pytest.raises(AssertionError, match="leave these"):
        test_no_key_of_a_format_has_changed_or_is_gone()
