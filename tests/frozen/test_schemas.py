"""What was ever written is read for ever: schemas stay, and grow as docs/compatibility.md says and in no other way."""

import json
from collections import defaultdict
from itertools import permutations
from typing import Any

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from rollbook.processors import lifecycle_schema
from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.schemas import codec
from rollbook.schemas.codec import shipped_schemas
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.registry import LIFECYCLE, RECORDS
from rollbook.tests.frozen.schemas import SCHEMAS, schema_written

FREEZE = "python -m rollbook.tests.frozen.freeze"
OF_BEFORE_THE_FREEZE = {"4bf297140ef87430"}
"""A StepRecording whose readers do not know the array `new_values`: a symbol that an enumeration gained later."""


def versions() -> dict[str, list[tuple[str, Any]]]:
    """Every schema that was ever shipped, by record."""
    found: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for schema, raw in shipped_schemas():
        found[raw["name"]].append((schema, raw))
    return found


@pytest.mark.parametrize("name", SCHEMAS.kept())
def test_a_frozen_schema_stays(name: str) -> None:
    assert SCHEMAS.of_today(name) == SCHEMAS.kept()[name], (
        f"{name} has changed or is gone: lay the schema of before into schemas/avro/shipped/ as it was"
    )


def test_nothing_is_written_under_a_schema_that_is_not_frozen() -> None:
    new = SCHEMAS.today().keys() - SCHEMAS.kept().keys()
    assert not new, f"{sorted(new)}: docs/compatibility.md says how a record grows; then run {FREEZE}"
    assert {f"{model.__name__} {schema_written(model)}" for model in RECORDS} <= SCHEMAS.kept().keys()


def test_every_version_of_a_record_reads_every_other() -> None:
    """FULL_TRANSITIVE: what a registry asks of them, for readers of before the growth and of after it."""
    compared = 0
    for name, schemas in versions().items():
        for (reader, reads), (writer, wrote) in permutations(schemas, 2):
            checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # the package leaves some untyped
            theirs, ours = (avro.schema.parse(json.dumps(one)) for one in (wrote, reads))
            found = checker.get_compatibility(reader=ours, writer=theirs)
            is_full = found.compatibility is SchemaCompatibilityType.compatible
            assert is_full or reader in OF_BEFORE_THE_FREEZE, (
                f"{name}: {reader} does not read {writer}: {found.messages}"
            )
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize("record", [*(model.__name__ for model in LIFECYCLE), Decision.__name__])
def test_each_growth_of_what_is_folded_or_decided_has_a_fold_version_of_its_own(record: str) -> None:
    since = [SCHEMAS.of_today(f"{record} {schema}")["since_fold_version"] for schema, _ in versions()[record]]
    assert None not in since
    assert len(since) == len(set(since)), f"{record} grew: name the fold version since which it is read in READ_SINCE"
    assert max(since) <= FOLD_VERSION


def test_what_came_with_a_fold_version_is_a_schema_of_a_lifecycle_record() -> None:
    shipped = versions()
    lifecycle = {schema for model in LIFECYCLE for schema, _ in shipped[model.__name__]}
    assert lifecycle_schema.READ_SINCE.keys() <= lifecycle
    assert all(since > lifecycle_schema.FIRST for since in lifecycle_schema.READ_SINCE.values())


def test_a_lifecycle_record_that_grows_without_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are a schema that is not frozen, and one that is gone."""
    record = LIFECYCLE[0].__name__
    ((schema, raw),) = versions()[record]
    grown = {**raw, "fields": [*raw["fields"], {"name": "more", "type": "string", "default": ""}]}
    _, was = next(one for one in codec._shipped() if one[0]["name"] == record), raw
    others = [one for one in codec._shipped() if one[0]["name"] != record]
    monkeypatch.setattr(codec, "_shipped", lambda: iter([*others, (was, False), (grown, True)]))
    with pytest.raises(AssertionError, match="grew: name the fold version"):
        test_each_growth_of_what_is_folded_or_decided_has_a_fold_version_of_its_own(record)
    with pytest.raises(AssertionError, match=r"docs/compatibility\.md says how"):
        test_nothing_is_written_under_a_schema_that_is_not_frozen()
    monkeypatch.setattr(codec, "_shipped", lambda: iter([*others, (grown, True)]))
    with pytest.raises(AssertionError, match="has changed or is gone"):
        test_a_frozen_schema_stays(f"{record} {schema}")
