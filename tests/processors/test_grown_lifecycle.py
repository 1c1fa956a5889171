"""A lifecycle record that grew is read in runs of its fold version alone: until then every package decides it as one
does that does not know the new schema. The growth is made up: today's RewardFailed has a text that the earlier one had
not."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollbook.processors import lifecycle_schema
from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.processors.ledger import fold
from rollbook.processors.ledger.fold import Ledger, NewerFoldVersion, SourceRecord
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.history.source import StoredRecord
from rollbook.replay.history.strays import is_stray
from rollbook.schemas import codec
from rollbook.schemas.avro_types import text_of
from rollbook.schemas.codec import encode, encoder
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.reward import RewardFailed
from rollbook.schemas.registry import RECORDS
from rollbook.tests.processors.history import History
from rollbook.tests.schemas.test_shipped import FAILED, _forget

NEXT = FOLD_VERSION + 1
KEY = FAILED.header.run_id.encode()
Package = Callable[[], AbstractContextManager[None]]


@contextmanager
def package(folder: Path, *, read_since: dict[str, int], fold_version: int) -> Iterator[None]:
    """Until its end the contract is that of the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.resources.files", lambda package: folder)
        patch.setattr(lifecycle_schema, "READ_SINCE", read_since)
        patch.setattr(fold, "FOLD_VERSION", fold_version)
        _forget()
        yield
    _forget()


def lay(folder: Path, failed: str, shipped: dict[str, str]) -> Path:
    """Schemas in a folder: today's, another for RewardFailed, and those that were shipped before."""
    (folder / "avro" / "shipped").mkdir(parents=True)
    for model in RECORDS:
        text = failed if model is RewardFailed else text_of(model)
        (folder / "avro" / f"{model.__name__}.avsc").write_text(text, encoding="utf-8")
    for name, text in shipped.items():
        (folder / "avro" / "shipped" / name).write_text(text, encoding="utf-8")
    return folder


def earlier() -> str:
    schema: dict[str, Any] = json.loads(text_of(RewardFailed))
    assert schema["fields"].pop()["name"] == "text"
    return json.dumps(schema)


@pytest.fixture
def old(tmp_path: Path) -> Package:
    """A package of before."""
    folder = lay(tmp_path / "old", earlier(), {})
    return lambda: package(folder, read_since={}, fold_version=FOLD_VERSION)


@pytest.fixture
def new(tmp_path: Path) -> Package:
    """The package that the record grew in."""
    folder = lay(tmp_path / "new", text_of(RewardFailed), {"RewardFailed-1.avsc": earlier()})
    schema = codec._fingerprint(json.loads(text_of(RewardFailed)))
    return lambda: package(folder, read_since={schema: NEXT}, fold_version=NEXT)


@pytest.fixture
def grown(new: Package) -> bytes:
    with new():
        return encode(FAILED)


@pytest.fixture
def before(new: Package) -> bytes:
    """The same record under the earlier schema."""
    with new():
        return encoder(RewardFailed, codec._fingerprint(json.loads(earlier())))(FAILED)


def begun(fold_version: int = FOLD_VERSION) -> History:
    """A run with a trajectory that waits for its reward."""
    history = History().opened()
    if fold_version > FOLD_VERSION:
        history.configured(2, fold_version=fold_version)
    history.generated(FAILED.trajectory_id)
    return history


def handed_over(ledger: Ledger) -> Ledger:
    """Another host restores the state from the ledger's rows."""
    rebuild = Rebuild(ledger.partition, ledger.topic_partitions)
    for key, value in rows_of(ledger):
        rebuild.take(key, value)
    return rebuild.ledger()


def decide(history: History, *records: tuple[bytes, bytes]) -> list[bytes]:
    for key, value in records:
        history.log.append(key, value)
    return history.log.decisions


def test_until_the_run_is_raised_a_package_that_knows_it_decides_as_one_that_does_not(
    old: Package, new: Package, grown: bytes, before: bytes
) -> None:
    nobodys = (grown[:10] + b"\0" + grown[10:], grown[:10] + b"\xff" * 40)
    records = [(KEY, grown), (b"another", grown), *((KEY, bad) for bad in nobodys), (KEY, before), (KEY, grown)]
    with old():
        first = decide(begun(), *records)
    with new():
        assert decide(begun(), *records) == first
        history = begun()
        found = [history.log.append(*record).outcome for record in records]
    assert found == [*[Outcome.UNDECODABLE] * 4, Outcome.ACCEPTED, Outcome.UNDECODABLE]


def test_a_run_that_is_nowhere_does_not_read_it(old: Package, new: Package, grown: bytes) -> None:
    with old():
        first = decide(History(), (KEY, grown))
    with new():
        assert decide(History(), (KEY, grown)) == first


def test_once_the_run_is_raised_it_is_read(new: Package, grown: bytes) -> None:
    with new():
        decision = begun(NEXT).log.append(KEY, grown)
    assert (decision.outcome, decision.record_type, decision.fold_version) == (Outcome.ACCEPTED, "RewardFailed", NEXT)


def test_a_dead_letter_says_what_is_to_be_done(new: Package, grown: bytes) -> None:
    with new():
        folded = begun().log.ledger.fold(SourceRecord(0, 99, KEY, grown))
    assert folded.undecodable is not None
    assert f"which runs of fold version {NEXT} read: configure the run with that version first" in folded.undecodable


def test_a_package_that_does_not_know_it_makes_no_dead_letter_of_it_in_a_run_that_was_raised(
    old: Package, new: Package, grown: bytes
) -> None:
    """As where the newer one leaves, and the older one restores what it wrote: it stops there."""
    with new():
        history = begun(NEXT)
    with old():
        ledger = handed_over(history.log.ledger)
        with pytest.raises(NewerFoldVersion):
            ledger.fold(SourceRecord(0, 99, KEY, grown))
        assert ledger.fold(SourceRecord(0, 99, b"another", grown)).decision.outcome is Outcome.UNDECODABLE


def test_whether_it_belongs_to_a_run_hangs_on_the_run(new: Package, grown: bytes, before: bytes) -> None:
    with new():
        assert not is_stray(StoredRecord("t", 0, 0, 0, KEY, grown), 1)
        assert not is_stray(StoredRecord("t", 0, 0, 0, KEY, before), 1)
        assert is_stray(StoredRecord("t", 0, 0, 0, KEY, b"nothing"), 1)
