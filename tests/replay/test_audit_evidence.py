"""What an audit computes again from payloads: every row that can be, each alone, and no more bytes at once than fit."""

import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.infra.command import run as rollbook
from rollbook.processors.gates import abs_log_ratio
from rollbook.replay.audit.anchor import Anchor, anchor_of
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.findings import FindingKind
from rollbook.replay.audit.lookup import Lookup, Written
from rollbook.replay.audit.report import lines, plain
from rollbook.replay.audit.seal import seal
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogSource, StoredRecord, read_there
from rollbook.schemas.codec import decode
from rollbook.schemas.digests import digest_of_digests, float32_bytes
from rollbook.schemas.payload_io import PayloadCorrupt
from rollbook.schemas.records.common import PayloadRef
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.payload import CurrentLogProbs
from rollbook.schemas.records.update import AdmitItem, RecordingRef, RecordingSealed
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, PAYLOADS, SETTINGS, Story
from rollbook.tests.replay.story_parts import ROLLOUT_ID


@dataclass
class Shown(Story):
    """Admits come with the log-probs that they are computed from; rows whose name begins with `lie` show half of it,
    those that begin with `other` the evidence of others. `claims`: what their log-probs say of themselves."""

    of_update: str = ""
    claims: dict[str, object] = field(default_factory=dict)

    def reserve(self, update_id: str, *args: Any, **more: Any) -> None:
        self.of_update = update_id
        super().reserve(update_id, *args, **more)

    def _figures(self, name: str, drift: float) -> AdmitItem:
        row, item = self.rows[name], super()._figures(name, drift)
        current = row.log_probs + np.float32(drift)
        active, total, largest = abs_log_ratio(row.log_probs.tolist(), current.tolist(), row.loss_mask.tolist())
        values, of = float32_bytes(current), self.of_update
        shown = CurrentLogProbs(run_id=self.run_id, update_id=of, trajectory_id=name, log_probs=values)
        return item.but(
            active_tokens=active,
            sum_abs_log_ratio=total / 2 if name.startswith("lie") else total,
            max_abs_log_ratio=largest,
            evidence_digest="f" * 64 if name.startswith("other") else item.evidence_digest,
            payload=self.payload(name, shown.but(**self.claims)),
        )


def audited(story: Story, first: int = 0, anchor: Anchor | None = None, sealed: LogSource | None = None) -> AuditReport:
    stretch = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, first), None)
    return audit(story.log, SETTINGS, stretch, anchor=anchor, sealed=sealed).report


@pytest.fixture
def story() -> Shown:
    made = Shown()
    made.opened()
    return made


def sealed_at(story: Story, end: int, path: Path, payloads: bool = True) -> Path:
    stretch = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, 0, end), None)
    assert seal(story.log, SETTINGS, stretch, path, payloads=payloads).exported is not None
    return path


def left_kafka(story: Story, below: int) -> None:
    """The lifecycle below an offset."""
    story.log.lose(LIFECYCLE, 0, below)


def test_a_row_that_was_generated_before_the_anchor_hides_no_other(story: Shown, tmp_path: Path) -> None:
    early = story.group("early")
    middle = story.end
    file = sealed_at(story, middle, tmp_path / "sealed.avro")
    story.update("u0", [early, story.group("lie"), story.group("late")])
    left_kafka(story, middle)
    report = audited(story, middle, anchor_of(file))
    assert [one.kind for one in report.findings] == [FindingKind.DRIFT_DIFFERS] * 2
    assert (report.checked.admits, report.checked.without_generated) == (4, 2)
    assert "drift of 2 admitted rows: generated before the range, and that is not to be had" in report.unchecked


def test_the_sealed_file_has_what_was_generated_before_its_anchor(
    story: Shown, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early = story.group("lie")
    middle = story.end
    file = sealed_at(story, middle, tmp_path / "sealed.avro")
    story.update("u0", [early, story.group("late")])
    left_kafka(story, middle)
    with FileLog([file]) as sealed:
        report = audited(story, middle, anchor_of(file), sealed)
    assert [one.kind for one in report.findings] == [FindingKind.DRIFT_DIFFERS] * 2
    assert (report.checked.admits, report.checked.unmeasured) == (4, 0)
    ranges = [OffsetRange(LIFECYCLE, 0, middle), OffsetRange(DECISIONS, 0)]
    rest = export(story.log, SETTINGS, ranges, tmp_path / "rest.avro", payloads=True).path
    assert rollbook(["audit", str(rest), "--anchor", str(file)]) == 1
    assert "drift of 4 rows" in capsys.readouterr().out


def test_rows_without_log_probs_are_told_from_rows_without_a_generated(story: Shown) -> None:
    story.keep_payloads = False
    bare = story.group("bare")
    story.keep_payloads = True
    story.update("u0", [bare, story.group("kept")])
    report = audited(story)
    assert (report.checked.admits, report.checked.without_log_probs, report.checked.without_generated) == (2, 2, 0)
    assert "drift of 2 admitted rows: no log-probs were kept" in report.unchecked


def test_a_row_that_the_ledger_refused_for_its_evidence_is_no_finding(story: Shown) -> None:
    """Nobody trained on it: that its figures follow from nothing is why it was refused."""
    story.reserve("u0", [*story.group("other"), *story.group("kept")])
    report = audited(story)
    assert report.findings == ()
    assert (report.checked.admits, report.checked.refused) == (2, 2)
    assert "drift of 2 rows: refused for other evidence than was generated" in report.unchecked


@pytest.mark.parametrize(
    "claims", [{"run_id": "run-b"}, {"update_id": "another"}, {"trajectory_id": "another"}, {"log_probs": b"12345"}]
)
def test_log_probs_of_others_are_a_finding(story: Shown, claims: dict[str, object]) -> None:
    """Their digests are as good as any."""
    story.claims = claims
    story.update("u0", [story.group("a")])
    findings = audited(story).findings
    assert [one.kind for one in findings] == [FindingKind.EVIDENCE_DIFFERS] * 2
    for name, said in claims.items():
        assert name == "log_probs" or findings[0].said[name] == said != findings[0].derived[name]


@pytest.mark.parametrize(
    ("claims", "what"),
    [
        ({"run_id": "run-b"}, "the payload is of run run-b"),
        ({"trajectory_id": "another"}, "trajectory another"),
        ({"segment": 7}, "segment 7"),
        ({"prompt_ids": b"1234" * 3}, "tokens_digest that Generated states"),
        ({"response_ids": b"12345"}, "bytes of token ids"),
        ({"action_mask": b"1"}, "bytes of mask"),
    ],
)
def test_segments_of_others_are_a_finding(story: Shown, claims: dict[str, object], what: str) -> None:
    """The drift that is shown does not look at their tokens."""
    story.plant_arrays = lambda arrays: arrays.but(**claims)
    story.update("u0", [story.group("a")])
    findings = audited(story).findings
    assert [one.kind for one in findings] == [FindingKind.EVIDENCE_DIFFERS] * 2
    assert what in findings[0].what


def test_a_recording_of_another_run_is_a_finding(story: Shown) -> None:
    story.update("u0", [story.group("a")], plant=lambda recording: recording.but(run_id="run-b"))
    (found,) = audited(story).findings
    assert (found.kind, found.said["run_id"], found.derived["run_id"]) == (
        FindingKind.RECORDING_DIFFERS,
        "run-b",
        "run-a",
    )


def test_what_is_there_is_read_and_what_is_gone_is_left_out() -> None:
    log = MemoryLog()
    for _ in range(40):
        log.append("t", 0, b"k", b"v")
    log.lose("t", 0, 20)
    for offset in (25, 26, 39):
        log.remove("t", 0, offset)
    wanted = [0, 3, 21, 25, 26, 27, 39, 39, 30, 1000]
    assert [one.offset for one in read_there(log, "t", 0, wanted)] == [21, 27, 30]
    assert list(read_there(log, "t", 1, wanted)) == list(read_there(log, "t", 0, [])) == []


MIB = 1024 * 1024


class Large(MemoryLog):
    """A payload of a size at each offset of its topic, made when it is read."""

    data = b"x" * (4 * MIB)

    def read_at(self, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[StoredRecord]:
        if topic != PAYLOADS:
            yield from super().read_at(topic, partition, offsets)
            return
        for offset in sorted(set(offsets)):
            yield StoredRecord(topic, partition, offset, 0, b"", bytes(bytearray(self.data)))


def test_memory_does_not_grow_with_how_many_recordings_are_sealed() -> None:
    story = Story(log=Large()).opened()
    digest = sha256(Large.data).hexdigest()
    refs = tuple(
        PayloadRef(topic=PAYLOADS, partition=0, offsets=(at,), size=len(Large.data), sha256=digest) for at in range(40)
    )
    group = story.group("a")
    story.reserve("u0", group)
    story.start("u0")
    story.commit("u0", [group])
    recordings = tuple(RecordingRef(rollout_id=ROLLOUT_ID, step_id=at, payload=ref) for at, ref in enumerate(refs))
    story._of(RecordingSealed, "u0", rank=0, recordings=recordings, digest=digest_of_digests([digest] * len(refs)))
    tracemalloc.start()
    report = audited(story)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.checked.recordings == len(refs)
    assert {one.kind for one in report.findings} == {FindingKind.RECORDING_DIFFERS}, "they are no recordings"
    assert 30 * MIB < peak < 60 * MIB, "all of them are 160"


def test_records_without_evidence_are_not_decoded_for_it(story: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the work of the fold, for nothing."""
    story.update("u0", [story.group("a")])
    decoded: list[str] = []

    def counting(value: bytes) -> object:
        record = decode(value)
        decoded.append(type(record).__name__)
        return record

    monkeypatch.setattr("rollbook.replay.audit.decisions.decode", counting)
    assert audited(story).passed
    assert sorted(decoded) == ["Admit", "RecordingSealed"]


def test_payloads_are_looked_for_in_one_place_after_the_other() -> None:
    one, other = MemoryLog(), MemoryLog()
    for log in (one, other):
        for value in (b"a", b"b"):
            log.append(PAYLOADS, 0, b"k", value)
    one.remove(PAYLOADS, 0, 0)
    refs = [
        PayloadRef(topic=topic, partition=0, offsets=offsets, size=2, sha256=sha256(b"ab").hexdigest())
        for topic, offsets in ((PAYLOADS, (0, 1)), (PAYLOADS, (0, 2)), ("elsewhere", (0, 1)))
    ]
    assert Lookup((one, other)).payloads(refs) == [b"ab", None, None]


def test_the_rows_of_a_large_admit_are_looked_up_some_at_a_time(story: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollbook.replay.audit.evidence._AT_ONCE", 2)
    together: list[int] = []
    payloads = Lookup.payloads

    def counting(self: Lookup, refs: Sequence[PayloadRef]) -> list[bytes | PayloadCorrupt | None]:
        together.append(len(refs))
        return payloads(self, refs)

    monkeypatch.setattr(Lookup, "payloads", counting)
    story.reserve("u0", [*story.group("a", [1.0, 0.0, 1.0]), *story.group("b")])
    assert audited(story).checked.admits == 5
    assert together == [4, 4, 2], "the log-probs of each row, and of its segment"


def test_of_very_many_findings_the_rest_is_counted_and_what_differs_behind_them_is_told(
    story: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollbook.replay.audit.evidence._AT_ONCE", 1)
    monkeypatch.setattr("rollbook.replay.audit.findings._MOST", 2)
    story.reserve("u0", [*story.group("lie", [1.0, 0.0, 1.0]), *story.group("lied")])
    story.reserve("u1", story.group("b"))
    story.log.remove(LIFECYCLE, 0, story.end - 1)
    report = audited(story)
    assert [one.kind for one in report.findings] == [FindingKind.DRIFT_DIFFERS] * 2 + [FindingKind.RECORD_GONE]
    assert report.more == 3, "rows of five"
    assert list(lines(report))[-1] == "  ... and 3 more"
    assert plain(report)["more_findings"] == 3


@dataclass
class Claimed(Shown):
    """Admits name what is `claimed`."""

    claimed: dict[str, object] = field(default_factory=dict)

    def _figures(self, name: str, drift: float) -> AdmitItem:
        item = super()._figures(name, drift)
        assert item.payload is not None
        return item.but(payload=item.payload.but(**self.claimed))


@pytest.mark.parametrize(
    ("claimed", "why"),
    [
        ({"offsets": (10**9,)}, "since the partition ends at "),
        ({"offsets": (0, 10**15)}, "since the partition ends at "),
        ({"partition": 7}, "since the topic has 1 partition"),
        ({"topic": "t.nosuch"}, f"since payloads lie in {PAYLOADS} alone"),
    ],
)
def test_payloads_that_nobody_wrote_are_not_those_that_retention_took(
    claimed: dict[str, object], why: str, tmp_path: Path
) -> None:
    """Else who names what is not there understates a drift."""
    story = Claimed(claimed=claimed)
    story.opened()
    story.update("u0", [story.group("lie")])
    ranges = [OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)]
    file = export(story.log, SETTINGS, ranges, tmp_path / "run.avro", payloads=True).path
    with FileLog([file]) as log:
        again = export(log, SETTINGS, ranges, tmp_path / "again.avro", payloads=True).path
    whole = export(story.log, SETTINGS, [*ranges, OffsetRange(PAYLOADS, 0)], tmp_path / "whole.avro").path
    with FileLog([file]) as log, FileLog([again]) as other, FileLog([whole]) as third:
        for of in (story.log, log, other, third):
            report = audit(of, SETTINGS, stretch_of(of, SETTINGS, OffsetRange(LIFECYCLE, 0), None)).report
            assert [one.kind for one in report.findings] == [FindingKind.EVIDENCE_DIFFERS] * 2
            assert all(why in one.what for one in report.findings)
            assert report.checked.gone == 0


def test_what_can_have_been_written_ends_with_the_partition(story: Shown) -> None:
    story.group("a")
    end = story.log.bounds(PAYLOADS, 0).end
    for offset, why in ((end - 1, None), (end, f"the partition ends at {end}")):
        assert Written((story.log,), PAYLOADS).why_not(PAYLOADS, 0, (offset,)) == why


def test_what_was_written_behind_an_earlier_export_is_no_finding(story: Shown, tmp_path: Path) -> None:
    early = export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0)], tmp_path / "early.avro").path
    story.payload("x", story.recording("x", 0, story.group("a")))
    payloads = export(story.log, SETTINGS, [OffsetRange(PAYLOADS, 0)], tmp_path / "payloads.avro").path
    story.update("u0", [story.group("kept")])
    ranges = [OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)]
    late = export(story.log, SETTINGS, ranges, tmp_path / "late.avro").path
    with FileLog([early, payloads, late]) as log:
        report = audit(log, SETTINGS, stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)).report
    assert report.findings == ()
    assert report.checked.gone == 3


def test_what_retention_took_of_payloads_is_no_finding(story: Shown) -> None:
    story.update("u0", [story.group("kept")])
    story.log.lose(PAYLOADS, 0, story.log.bounds(PAYLOADS, 0).end)
    report = audited(story)
    assert report.findings == ()
    assert (report.checked.gone, report.checked.admits, report.checked.recordings) == (3, 0, 0)


def test_a_recording_that_nobody_wrote_is_a_finding_and_a_seal_that_was_refused_is_none(story: Shown) -> None:
    """Anybody can write a seal that the ledger refuses."""
    group = story.group("a")
    story.update("u0", [group])
    ref = story.payload("u0", story.recording("u0", 0, group))
    step = RecordingRef(rollout_id=ROLLOUT_ID, step_id=0, payload=ref)
    fenced = story.learner.but(epoch=99)
    refused = story.say(RecordingSealed, learner=fenced, update_id="u0", rank=0, recordings=(step,), digest="0" * 64)
    assert refused.outcome is Outcome.REJECTED
    assert audited(story).findings == ()
    story.reserve("u1", other := story.group("b"))
    story.start("u1")
    story.commit("u1", [other])
    nothing = step.but(payload=ref.but(offsets=(10**9,)))
    digest = digest_of_digests([nothing.payload.sha256])
    story._of(RecordingSealed, "u1", rank=0, recordings=(nothing,), digest=digest)
    (found,) = audited(story).findings
    assert (found.kind, found.place) == (FindingKind.RECORDING_DIFFERS, f"{PAYLOADS}:0@{10**9}")
    assert "it was never written" in found.what
