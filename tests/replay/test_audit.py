"""Audit of a real run: it passes as it is, and every kind of forgery is found and named."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Settings, Topic
from rollbook.replay.audit.bundles import check_bundles
from rollbook.replay.audit.findings import FindingKind
from rollbook.replay.bundle.reading.cohort import validate
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.materialize.assemble import Ready
from rollbook.replay.materialize.form import BundleFormat, Form
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.publish import Published, publish
from rollbook.schemas.digests import float32_bytes, floats_of
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.ledger import TrajectoryState
from rollbook.schemas.records.payload import CurrentLogProbs
from rollbook.schemas.records.reward import RewardReady
from rollbook.schemas.records.update import Admit
from rollbook.schemas.types import Part
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import processor, world
from rollbook.tests.replay.forged import Forged, exported
from rollbook.tests.replay.reseal import edit_bundle
from rollbook.tests.replay.trained_run import TrainedRun, train
from rollbook.tests.session_broker import own_topics

P = TypeVar("P", bound=Part)


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


@pytest.fixture(scope="module")
def trained(own: Settings) -> TrainedRun:
    with processor(own), world(own) as made:
        return train(made)


@pytest.fixture(scope="module")
def file(own: Settings, trained: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with KafkaLog(own) as log:
        return exported(log, own, trained.run_id, tmp_path_factory.mktemp("audit") / "run.avro")


@pytest.fixture
def forged(file: Path, trained: TrainedRun) -> Forged:
    return Forged.of(file, trained.run_id, trained.partition)


def test_a_run_as_it_was_passes_and_everything_was_checked(forged: Forged) -> None:
    report = forged.audited()
    assert report.findings == ()
    assert report.unchecked == ()
    assert report.decided == len(forged.records(Topic.LIFECYCLE)) > 20
    assert (report.undecided, report.checked.admits, report.checked.recordings) == (0, 8, 4)
    last = forged.of_type(Topic.DECISIONS, "Decision")[-1]
    assert report.heads[0].chain == (last.value or b"")[-64:].decode()
    assert forged.audited(report.heads[0].chain).passed


def decision_changed(forged: Forged) -> None:
    stored = forged.of_type(Topic.DECISIONS, "Decision")[7]
    forged.change(stored, lambda one: field(one, Decision).but(detail="nothing to see here"))


def decision_removed(forged: Forged) -> None:
    remove(forged, Topic.DECISIONS, 9)


def record_removed(forged: Forged) -> None:
    remove(forged, Topic.LIFECYCLE, 5)


def record_added(forged: Forged) -> None:
    """A second Reserve between two records: where the end of a transaction was."""
    reserve = forged.of_type(Topic.LIFECYCLE, "Reserve")[0]
    spread(forged, Topic.LIFECYCLE, reserve.offset)


def records_exchanged(forged: Forged) -> None:
    one, other = forged.of_type(Topic.LIFECYCLE, "Generated")[:2]
    forged.log.tamper(one.topic, one.partition, one.offset, other.value or b"")
    forged.log.tamper(one.topic, one.partition, other.offset, one.value or b"")


def reward_changed(forged: Forged) -> None:
    def better(one: Part) -> Part:
        record = field(one, RewardReady)
        return record.but(items=tuple(item.but(raw_reward=9.0) for item in record.items))

    forged.change(forged.of_type(Topic.LIFECYCLE, "RewardReady")[0], better)


def ledger_changed(forged: Forged) -> None:
    stored = forged.of_type(Topic.LEDGER, "TrajectoryState")[-1]
    forged.change(stored, lambda one: field(one, TrajectoryState).but(revision=99))


def ledger_row_removed(forged: Forged) -> None:
    stored = forged.of_type(Topic.LEDGER, "PolicyState")[-1]
    forged.log.remove(stored.topic, stored.partition, stored.offset)


def drift_understated(forged: Forged) -> None:
    """Consistently: the decisions are written anew."""

    def less(one: Part) -> Part:
        record = field(one, Admit)
        return record.but(items=tuple(item.but(sum_abs_log_ratio=item.sum_abs_log_ratio / 2) for item in record.items))

    forged.change(forged.of_type(Topic.LIFECYCLE, "Admit")[0], less)
    forged.refold()


def log_probs_swapped(forged: Forged) -> None:
    payload = forged.of_type(Topic.PAYLOADS, "CurrentLogProbs")[0]

    def other(one: Part) -> Part:
        record = field(one, CurrentLogProbs)
        return record.but(log_probs=float32_bytes(floats_of(record.log_probs) - 1))

    forged.change(payload, other)


def recording_swapped(forged: Forged) -> None:
    one, other = forged.of_type(Topic.PAYLOADS, "StepRecording")[:2]
    forged.log.tamper(one.topic, one.partition, one.offset, other.value or b"")


@pytest.mark.parametrize(
    ("forge", "kind"),
    [
        (decision_changed, FindingKind.DECISION_CHANGED),
        (decision_removed, FindingKind.RECORD_UNDECIDED),
        (record_removed, FindingKind.RECORD_GONE),
        (record_added, FindingKind.RECORD_CHANGED),
        (records_exchanged, FindingKind.RECORD_CHANGED),
        (reward_changed, FindingKind.RECORD_CHANGED),
        (ledger_changed, FindingKind.LEDGER_DIFFERS),
        (ledger_row_removed, FindingKind.LEDGER_DIFFERS),
        (drift_understated, FindingKind.DRIFT_DIFFERS),
        (log_probs_swapped, FindingKind.EVIDENCE_DIFFERS),
        (recording_swapped, FindingKind.RECORDING_DIFFERS),
    ],
)
def test_every_forgery_is_found_and_named(forged: Forged, forge: Callable[[Forged], None], kind: FindingKind) -> None:
    forge(forged)
    report = forged.audited()
    assert not report.passed
    assert report.findings[0].kind is kind, report.findings[0]


def test_a_history_rewritten_from_some_point_on_fits_itself_and_a_noted_head_tells_it(forged: Forged) -> None:
    noted = forged.audited().heads[0].chain
    reward_changed(forged)
    assert not forged.audited().passed
    forged.refold()
    rewritten = forged.audited()
    assert rewritten.findings == ()
    assert rewritten.heads[0].chain != noted
    assert [one.kind for one in forged.audited(noted).findings] == [FindingKind.HEAD_UNKNOWN]


@pytest.fixture
def bundles(forged: Forged, tmp_path: Path) -> Path:
    out = tmp_path / "bundles"
    assert materialize(forged.log, Wanted.of_run(forged.run_id, forged.log, forged.settings), out).complete
    return out


@pytest.mark.parametrize("form", [Form(), Form(BundleFormat.V1_0), Form(redactor=Redactor())])
def test_bundles_of_every_form_pass(forged: Forged, tmp_path: Path, form: Form) -> None:
    assert materialize(
        forged.log, Wanted.of_run(forged.run_id, forged.log, forged.settings), tmp_path, form=form
    ).complete
    assert check_bundles(forged.log, forged.settings, [tmp_path]).findings == ()


def test_bundles_that_the_log_gives_pass(forged: Forged, bundles: Path) -> None:
    assert check_bundles(forged.log, forged.settings, [bundles]).findings == ()
    one = next(path for path in sorted(bundles.iterdir()) if path.is_dir())
    assert check_bundles(forged.log, forged.settings, [one]).findings == ()


def test_one_update_is_made_again_at_a_time_and_no_other_than_those_of_the_bundles(
    forged: Forged, trained: TrainedRun, bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Path, set[str]]] = []

    def told(out: Path, ready: Sequence[Ready]) -> list[Published]:
        made.append((out, {one.provenance.update_id for one in ready}))
        assert list(out.iterdir()) == []
        return publish(out, ready)

    monkeypatch.setattr("rollbook.replay.audit.bundles.publish", told)
    assert check_bundles(forged.log, forged.settings, [bundles]).findings == ()
    assert [update for _, update in made] == [{one} for one in trained.updates]
    assert not any(folder.exists() for folder, _ in made)
    made.clear()
    of_last = [one for one in sorted(bundles.iterdir()) if one.is_dir() and trained.updates[-1] in one.name]
    assert len(of_last) == 3
    assert check_bundles(forged.log, forged.settings, of_last).findings == ()
    assert [update for _, update in made] == [{trained.updates[-1]}]


def test_how_many_bundles_were_looked_at_is_in_the_answer(
    file: Path, bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "audit.md"
    assert rollbook(["audit", str(file), "--bundle", str(bundles), "--json", "--report", str(page)]) == 0
    assert json.loads(capsys.readouterr().out)["bundles_checked"] == 6
    assert "6 bundles made again from the log" in page.read_text()
    assert rollbook(["audit", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bundles_checked"] == 0


def test_a_reward_that_was_edited_in_a_bundle_is_found_even_when_its_hashes_were_mended(
    forged: Forged, bundles: Path
) -> None:
    step = sorted(path for path in bundles.glob("*-s0") if path.is_dir())[0]

    def better(index: dict[str, Any]) -> None:
        index["samples"][1]["raw_reward"] = 9.0

    edited = bundles / "edited"
    edit_bundle(step, edited, index=better)
    shutil.rmtree(step)
    edited.rename(step)
    assert validate(step).problems == ()
    found = check_bundles(forged.log, forged.settings, [bundles]).findings
    assert {one.kind for one in found} == {FindingKind.BUNDLE_DIFFERS}
    named = {name: value for one in found for name, value in one.said.items()}
    assert named["samples.1.raw_reward"] == "9.0"
    assert {one.place for one in found} == {str(step)}


def test_a_bundle_that_was_made_of_other_records_is_found(forged: Forged, bundles: Path) -> None:
    reward_changed(forged)
    found = check_bundles(forged.log, forged.settings, [bundles]).findings
    assert "which it was made from" in found[0].what
    with pytest.raises(BadInput, match="is no bundle with a provenance"):
        check_bundles(forged.log, forged.settings, [bundles / "nothing"])


def field(record: Part, kind: type[P]) -> P:
    assert isinstance(record, kind)
    return record


def remove(forged: Forged, topic: Topic, number: int) -> None:
    stored = forged.records(topic)[number]
    forged.log.remove(stored.topic, stored.partition, stored.offset)


def spread(forged: Forged, topic: Topic, at: int) -> None:
    """A copy of the record at an offset in front of it, and all that follows one further."""
    records = forged.records(topic)
    end = forged.log.bounds(forged.topic(topic), forged.partition).end
    later = [one if one.offset < at else replace(one, offset=one.offset + 1) for one in records]
    forged.log.put(
        forged.topic(topic), forged.partition, end + 1, [*later, *(one for one in records if one.offset == at)]
    )
