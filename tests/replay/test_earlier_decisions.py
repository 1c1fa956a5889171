"""A run whose first decisions were written under an earlier schema, as its fold version had it: each is derived again
byte for byte, and the chain goes on over the bytes as they were written.

The earlier schema is made up: today's has two fields that it did not have, and is that of the next fold version.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbook.processors import decision_schema
from rollbook.processors.decision_schema import DECISION_SCHEMAS, decision_writer
from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.processors.ledger import fold
from rollbook.processors.ledger.fold import STRAYS, Ledger
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.replay.audit.anchor import anchor_of
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.audit.rules import Instead
from rollbook.replay.audit.seal import seal
from rollbook.replay.audit.whatif import what_if
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import StoredRecord
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.schemas import codec
from rollbook.schemas.avro_types import text_of
from rollbook.schemas.codec import decode_as, encode, encoder
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.run import RunConfigured
from rollbook.schemas.registry import RECORDS
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story
from rollbook.tests.replay.story_parts import ADMISSION, INITIAL
from rollbook.tests.replay.test_prove import group, policy
from rollbook.tests.schemas.test_shipped import _forget

NEXT = FOLD_VERSION + 1
NOT_YET = ("released", "mass_changes")
"""Fields that came with the next fold version."""
TODAYS = DECISION_SCHEMAS[max(DECISION_SCHEMAS)]


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The fingerprint of the schema that decisions of this fold version were written under; it is shipped."""
    folder = tmp_path / "avro"
    (folder / "shipped").mkdir(parents=True)
    for model in RECORDS:
        (folder / f"{model.__name__}.avsc").write_text(text_of(model), encoding="utf-8")
    schema: dict[str, Any] = json.loads(text_of(Decision))
    schema["fields"] = [field for field in schema["fields"] if field["name"] not in NOT_YET]
    (folder / "shipped" / "Decision-1.avsc").write_text(json.dumps(schema), encoding="utf-8")
    fingerprint = codec._fingerprint(schema)
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    monkeypatch.setattr(decision_schema, "DECISION_SCHEMAS", {1: fingerprint, NEXT: TODAYS})
    monkeypatch.setattr(fold, "FOLD_VERSION", NEXT)
    _forget()
    decision_writer.cache_clear()
    yield fingerprint
    monkeypatch.undo()
    _forget()
    decision_writer.cache_clear()


def taken_over(ledger: Ledger) -> Ledger:
    """Another host restores the state from the ledger's rows and goes on."""
    rebuild = Rebuild(ledger.partition, ledger.topic_partitions, None)
    for key, value in rows_of(ledger):
        rebuild.take(key, value)
    return rebuild.ledger()


@pytest.fixture
def raised(earlier: str) -> Story:
    """A run that was raised to the next fold version within its training, by a host that had just taken it over."""
    made = Story().opened()
    made.update("u0", [group(made, "a", "sums")])
    policy(made, 1, 0, "u0")
    made.ledger = taken_over(made.ledger)
    made.stray(b"nobody")
    ids = group(made, "c", "roots")
    made.reserve("u1", ids)
    made.accepted(
        RunConfigured,
        config_version=2,
        fold_version=NEXT,
        partition_count=1,
        enforcement=made.enforcement,
        admission=ADMISSION,
        required_workers=("worker-0",),
        initial_policy=INITIAL,
    )
    made.ledger = taken_over(made.ledger)
    made.start_learner()
    made.update("u2", [group(made, "d", "logarithms")])
    policy(made, 2, 1, "u2")
    made.stray(b"nobody")
    return made


def decisions(story: Story) -> list[StoredRecord]:
    bounds = story.log.bounds(DECISIONS, 0)
    return list(story.log.read(DECISIONS, 0, bounds.first, bounds.end))


def decision(stored: StoredRecord) -> Decision:
    return decode_as(Decision, stored.value or b"")


def schema_of(stored: StoredRecord) -> str:
    return (stored.value or b"")[2:10].hex()


def audited(story: Story) -> AuditReport:
    return audit(story.log, SETTINGS, stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)).report


def found(story: Story) -> Finding:
    (finding,) = audited(story).findings
    return finding


def test_a_decision_is_written_under_the_schema_of_the_fold_version_that_it_names(raised: Story, earlier: str) -> None:
    found = {(decision(one).fold_version, schema_of(one)) for one in decisions(raised)}
    assert found == {(0, earlier), (1, earlier), (NEXT, TODAYS)}
    strays = [one for one in decisions(raised) if decision(one).run_id.startswith(STRAYS)]
    assert [schema_of(one) for one in strays] == [earlier] * 2, "no run raises what belongs to none"


def test_decisions_of_two_schemas_are_derived_again_byte_for_byte_and_are_one_chain(raised: Story) -> None:
    report = audited(raised)
    assert (report.findings, report.decided, report.undecided) == ((), raised.end, 0)
    assert [one.chain for one in report.heads if one.run_id == raised.run_id] == [
        raised.ledger.run(raised.run_id).head.chain
    ]


def test_a_later_package_writes_the_bytes_of_the_one_before_until_the_run_is_raised(earlier: str) -> None:
    """So that a partition may go back and forth between both while an upgrade is under way."""
    story = Story().opened()
    story.update("u0", [group(story, "a", "sums")])
    written = [encoder(Decision, earlier)(decision(one)) for one in decisions(story)]
    assert [one.value for one in decisions(story)] == written


def test_a_proof_and_a_what_if_stand_on_both(raised: Story) -> None:
    stretch = stretch_of(raised.log, SETTINGS, None, raised.run_id)
    assert [one.update_id for one in prove(raised.log, stretch, OfPolicy(2)).updates] == ["u0", "u2"]
    assert what_if(raised.log, stretch, Instead()).runs[0].counts


def test_an_anchor_anywhere_is_gone_on_from(raised: Story, tmp_path: Path) -> None:
    for middle in range(3, raised.end, 4):
        first = stretch_of(raised.log, SETTINGS, OffsetRange(LIFECYCLE, 0, None, middle), None)
        path = tmp_path / f"{middle}.avro"
        assert seal(raised.log, SETTINGS, first, path).exported is not None
        rest = stretch_of(raised.log, SETTINGS, OffsetRange(LIFECYCLE, 0, middle), None)
        report = audit(raised.log, SETTINGS, rest, anchor=anchor_of(path), payloads=False).report
        assert (report.findings, report.decided) == ((), raised.end - middle)


def test_an_earlier_decision_that_was_changed_is_found_and_nothing_is_said_of_fields_it_never_had(
    raised: Story, earlier: str
) -> None:
    at = next(one for one in decisions(raised) if decision(one).update_id == "u0")
    changed: Callable[[Decision], bytes] = encoder(Decision, earlier)
    raised.log.tamper(DECISIONS, 0, at.offset, changed(decision(at).but(event_id="another")))
    finding = found(raised)
    assert (finding.kind, finding.place) == (FindingKind.DECISION_CHANGED, at.place)
    assert (set(finding.said), finding.said["event_id"]) == ({"event_id"}, "another")


def test_a_decision_under_the_schema_of_another_fold_version_is_found(raised: Story) -> None:
    """It says the same, and is not what the chain is over."""
    at = decisions(raised)[4]
    raised.log.tamper(DECISIONS, 0, at.offset, encode(decision(at)))
    finding = found(raised)
    assert (finding.kind, finding.place) == (FindingKind.DECISION_CHANGED, at.place)
    assert finding.said == {"schema": "another version's bytes"}


def test_todays_decision_is_that_of_the_newest_fold_version_and_every_one_ends_with_its_chain() -> None:
    """A Decision that grows is a new fold version: ship the schema of before, and name the new one for the new number.

    What is before the chain is what it is over.
    """
    shipped = {fingerprint: raw for fingerprint, raw in codec.shipped_schemas() if raw["name"] == "Decision"}
    assert set(DECISION_SCHEMAS.values()) == set(shipped)
    assert min(DECISION_SCHEMAS) == 1
    assert max(DECISION_SCHEMAS) <= FOLD_VERSION
    assert encoder(Decision, TODAYS) is encode
    for schema in shipped.values():
        assert (schema["fields"][-1]["name"], schema["fields"][-1]["type"]) == ("chain", "string")


def test_a_schema_of_no_version_writes_nothing() -> None:
    with pytest.raises(LookupError, match="0000000000000000 is the schema of no Decision"):
        encoder(Decision, "0" * 16)
