"""Tampering that changes no record: at the log's end, with chains mended, with what is no decision, with
checkpoints."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rollbook.infra.settings import Topic
from rollbook.processors.ledger.fold import chain_of
from rollbook.processors.ledger.keys import position_key
from rollbook.replay.audit.anchor import anchor_of
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.audit.seal import seal
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, LogSource
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.schemas.codec import decode, decode_as, encode
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.ledger import Position, TrajectoryState
from rollbook.schemas.records.update import (
    Checkpoint,
    CheckpointSaved,
    Reserve,
    ReserveItem,
    ReserveMode,
)
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story

LEDGER = SETTINGS.topic(Topic.LEDGER)
NO_CHAIN = "0" * 64


@pytest.fixture
def story() -> Story:
    made = Story().opened()
    made.update("u0", [made.group("a"), made.group("b")])
    return made


def audited(story: Story, run_id: str | None = None) -> AuditReport:
    return audit(story.log, SETTINGS, stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), run_id)).report


def found(story: Story, run_id: str | None = None) -> Finding:
    report = audited(story, run_id)
    assert not report.passed
    return report.findings[0]


def decided(log: MemoryLog) -> list[tuple[int, Decision]]:
    bounds = log.bounds(DECISIONS, 0)
    records = log.read(DECISIONS, 0, bounds.first, bounds.end)
    return [(one.offset, decode_as(Decision, one.value or b"")) for one in records]


@pytest.mark.parametrize("run_id", [None, "run-a"])
def test_what_is_no_decision_is_found_where_it_lies_and_all_before_it_is_derived(
    story: Story, run_id: str | None
) -> None:
    (record,) = story.log.read_at(LIFECYCLE, 0, [3])
    for junk in (b"junk", record.value or b""):
        here = story.log.append(DECISIONS, 0, b"run-a", junk)
        finding = found(story, run_id)
        assert (finding.kind, finding.place) == (FindingKind.NO_DECISION, f"{DECISIONS}:0@{here}")
        assert audited(story, run_id).decided == story.end
        story.log.remove(DECISIONS, 0, here)
    middle = decided(story.log)[5][0]
    story.log.tamper(DECISIONS, 0, middle, b"junk")
    finding = found(story, run_id)
    assert (finding.kind, finding.place) == (FindingKind.NO_DECISION, f"{DECISIONS}:0@{middle}")
    assert audited(story, run_id).decided == 5


@pytest.mark.parametrize("run_id", [None, "run-a"])
def test_a_decision_under_the_key_of_another_run_is_found(story: Story, run_id: str | None) -> None:
    """Who looks at a run would not find it."""
    bounds = story.log.bounds(DECISIONS, 0)
    records = list(story.log.read(DECISIONS, 0, bounds.first, bounds.end))
    for key in (b"run-b", b"", b"\xff", None):
        story.log.put(DECISIONS, 0, bounds.end, [*records[:5], replace(records[5], key=key), *records[6:]])
        finding = found(story, run_id)
        if run_id is None:
            assert (finding.kind, finding.place) == (FindingKind.DECISION_CHANGED, records[5].place)
            assert finding.derived == {"key": "run-a"}
        else:
            assert finding.kind is FindingKind.RECORD_UNDECIDED


def test_a_reservation_whose_decision_was_forged_with_all_chains_mended_is_not_what_the_rules_give(
    story: Story,
) -> None:
    """A second Reserve of rows that are committed already: by the rules it takes none of them."""
    ids = tuple(ReserveItem(trajectory_id=name, expected_revision=2) for name in story.rows)
    refused = story.say(
        Reserve, learner=story.learner, update_id="u1", part=0, policy=story.weights, items=ids, mode=ReserveMode.ALL
    )
    assert refused.outcome is Outcome.REJECTED
    place, _ = decided(story.log)[-1]
    story.group("c")
    assert audited(story).passed
    taken = next(one for _, one in decided(story.log) if one.record_type == "Reserve")
    forge(story.log, place, lambda one: one.but(outcome=Outcome.ACCEPTED, reason=taken.reason, items=taken.items))
    for run_id in (None, story.run_id):
        finding = found(story, run_id)
        assert (finding.kind, finding.place) == (FindingKind.DECISION_DIFFERS, f"{DECISIONS}:0@{place}")
        assert (finding.said["outcome"], finding.derived["outcome"]) == ("accepted", "rejected")


def forge(log: MemoryLog, place: int, change: Callable[[Decision], Decision]) -> None:
    """Change a decision, and make every link of the chain from there on anew."""
    chain = NO_CHAIN
    for offset, decision in decided(log):
        changed = change(decision) if offset == place else decision
        body = encode(changed.but(chain=NO_CHAIN))[:-66]
        chain = chain_of(chain, changed.source.sha256, body)
        log.tamper(DECISIONS, 0, offset, encode(changed.but(chain=chain)))


def test_a_tail_that_was_removed_is_missed_while_its_decisions_are_there(story: Story) -> None:
    last = story.end - 1
    for end in (last, last - 2):
        story.log.cut(LIFECYCLE, 0, end)
        for run_id in (None, story.run_id):
            finding = found(story, run_id)
            assert (finding.kind, finding.place) == (FindingKind.RECORD_GONE, f"{LIFECYCLE}:0@{end}")


def test_decisions_that_were_removed_are_missed_while_the_ledger_stands_behind_them(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollbook.replay.audit.folding._SETTLES_S", 0.0)
    keep_ledger(story)
    assert audited(story).unchecked[1:] == ()
    (place, decision) = decided(story.log)[-2]
    story.log.cut(DECISIONS, 0, place)
    for run_id in (None, story.run_id):
        finding = found(story, run_id)
        assert (finding.kind, finding.place) == (
            FindingKind.RECORD_UNDECIDED,
            f"{LIFECYCLE}:0@{decision.source.offset}",
        )


def test_a_range_that_ends_before_the_log_does_says_nothing_of_its_tail(story: Story) -> None:
    keep_ledger(story)
    end = story.end
    story.log.cut(LIFECYCLE, 0, end - 1)
    within = OffsetRange(LIFECYCLE, 0, None, 12)
    report = audit(story.log, SETTINGS, stretch_of(story.log, SETTINGS, within, None)).report
    assert report.passed
    assert report.decided == 12
    assert f"stands at lifecycle offset {end}, the audit at 12" in report.unchecked[-1]


@pytest.mark.parametrize("stands", [None, 3, 10**9])
def test_a_ledger_that_stands_where_it_cannot_is_a_finding(
    story: Story, monkeypatch: pytest.MonkeyPatch, stands: int | None
) -> None:
    """Else whoever edits its rows would edit that, too, and have them looked at by nobody."""
    monkeypatch.setattr("rollbook.replay.audit.folding._SETTLES_S", 0.0)
    keep_ledger(story, stands)
    finding = found(story)
    assert finding.kind is FindingKind.LEDGER_DIFFERS
    assert "position" in finding.what


def keep_ledger(story: Story, stands: int | None = -1) -> None:
    """As the processor does: all rows, and where the fold stands."""
    for key, value in rows_of(story.ledger):
        story.log.append(LEDGER, 0, key, value)
    if stands is not None:
        position = Position(next_offset=story.end if stands < 0 else stands, transactional_id="teller")
        story.log.append(LEDGER, 0, position_key(0), encode(position))


class Live(MemoryLog):
    """While its ledger is looked for the run goes on, once."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on: Callable[[], None] = lambda: None

    def bounds(self, topic: str, partition: int) -> Bounds:
        if topic == LEDGER:
            goes_on, self.goes_on = self.goes_on, lambda: None
            goes_on()
        return super().bounds(topic, partition)


@pytest.mark.parametrize("run_id", [None, "run-a"])
def test_a_log_that_goes_on_meanwhile_is_folded_on_to_where_its_ledger_stands(run_id: str | None) -> None:
    log = Live()
    story = Story(log=log).opened()
    story.group("a")
    asked = story.end

    def go_on() -> None:
        story.update("u0", [story.group("b")])
        keep_ledger(story)

    log.goes_on = go_on
    report = audited(story, run_id)
    assert (report.findings, report.unchecked[1:]) == ((), ())
    assert report.decided == report.within.end == story.end > asked
    assert report.heads[0].chain == story.ledger.run(story.run_id).head.chain


def test_what_differs_in_the_rows_is_found_where_the_log_has_gone_on(story: Story) -> None:
    keep_ledger(story)
    bounds = story.log.bounds(LEDGER, 0)
    rows = {one.offset: decode(one.value or b"") for one in story.log.read(LEDGER, 0, bounds.first, bounds.end)}
    offset, row = next((at, row) for at, row in rows.items() if isinstance(row, TrajectoryState))
    story.log.tamper(LEDGER, 0, offset, encode(row.but(revision=77)))
    finding = found(story)
    assert (finding.kind, finding.said, finding.derived) == (
        FindingKind.LEDGER_DIFFERS,
        {"revision": "77"},
        {"revision": str(row.revision)},
    )
    for junk in (b"junk", encode(rows[bounds.end - 1])):
        story.log.tamper(LEDGER, 0, offset, junk)
        assert found(story).kind is FindingKind.LEDGER_DIFFERS


@pytest.mark.parametrize("run_id", [None, "run-a"])
@pytest.mark.parametrize("key", [b"garbage", b"", b"[" * 100_000, b'["run-a","trajectory"]', b"\xff", b'["a",7,"b"]'])
def test_what_is_no_row_of_the_ledger_is_found_where_it_lies(story: Story, key: bytes, run_id: str | None) -> None:
    keep_ledger(story)
    at = story.log.append(LEDGER, 0, key, b"x")
    finding = found(story, run_id)
    assert (finding.kind, finding.place) == (FindingKind.LEDGER_DIFFERS, f"{LEDGER}:0@{at}")


def test_a_position_that_is_none_is_found_where_it_lies(story: Story) -> None:
    """Else its rows would be looked at by nobody."""
    keep_ledger(story)
    at = story.log.append(LEDGER, 0, position_key(0), b"x")
    finding = found(story)
    assert (finding.kind, finding.place) == (FindingKind.LEDGER_DIFFERS, f"{LEDGER}:0@{at}")


def test_rows_are_compared_as_what_they_say_not_as_they_were_written(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that no record has touched since is there as the schema was then."""
    keep_ledger(story)
    for stored in list(story.log.read(LEDGER, 0, 0, story.log.bounds(LEDGER, 0).end)):
        story.log.tamper(LEDGER, 0, stored.offset, OLDER + (stored.value or b""))
    older = "rollbook.replay.audit.ledger.decode"
    monkeypatch.setattr(older, lambda value: decode(value.removeprefix(OLDER)))
    monkeypatch.setattr(
        "rollbook.processors.ledger.rebuild.decode_position",
        lambda value: decode_as(Position, value.removeprefix(OLDER)),
    )
    report = audited(story)
    assert (report.findings, report.unchecked[1:]) == ((), ())


OLDER = b"older "


@dataclass
class Cut:
    """A run that was sealed in its midst; behind that a checkpoint notes what was decided before."""

    story: Story
    middle: int
    file: Path

    def audited(self, sealed: LogSource | None = None, noted: str | None = None) -> AuditReport:
        stretch = stretch_of(self.story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, self.middle), None)
        anchor = anchor_of(self.file, noted=noted)
        return audit(self.story.log, SETTINGS, stretch, anchor=anchor, sealed=sealed, payloads=False).report

    def left_kafka(self) -> None:
        """All that was sealed."""
        below = anchor_of(self.file).note.next_decision
        self.story.log.lose(LIFECYCLE, 0, self.middle)
        self.story.log.lose(DECISIONS, 0, below)


def cut(story: Story, file: Path, chain: str | None = None) -> Cut:
    noted = chain or decided(story.log)[9][1].chain
    middle = story.end
    stretch = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, None, middle), None)
    assert seal(story.log, SETTINGS, stretch, file).exported is not None
    checkpoint(story, noted)
    story.update("u1", [story.group("c")])
    return Cut(story, middle, file)


def checkpoint(story: Story, chain: str) -> None:
    story.accepted(
        CheckpointSaved,
        learner=story.learner,
        checkpoint=Checkpoint(id=f"saved-{story.events}", digest="c" * 64),
        last_update_id="u0",
        policy=story.weights,
        chain=chain,
    )


def test_a_checkpoint_notes_the_head_of_a_decision_before_it(story: Story) -> None:
    checkpoint(story, decided(story.log)[4][1].chain)
    assert audited(story).passed
    checkpoint(story, "e" * 64)
    for run_id in (None, story.run_id):
        finding = found(story, run_id)
        assert (finding.kind, finding.place) == (FindingKind.CHECKPOINT_CHAIN, f"{LIFECYCLE}:0@{story.end - 1}")
        assert finding.said == {"chain": "e" * 64}


def test_a_checkpoint_behind_an_anchor_may_note_what_was_decided_before_it(story: Story, tmp_path: Path) -> None:
    at = cut(story, tmp_path / "sealed.avro")
    assert at.audited().findings == ()
    at.left_kafka()
    report = at.audited()
    assert report.findings == ()
    assert "chain heads of 1 checkpoint: of decisions before the anchor, not to be had" in report.unchecked
    with FileLog([at.file]) as sealed:
        report = at.audited(sealed)
    assert report.findings == ()
    assert not any("chain heads" in text for text in report.unchecked)


def test_a_checkpoint_behind_an_anchor_may_note_the_head_that_the_anchor_has(story: Story, tmp_path: Path) -> None:
    """Where its digest was noted; of another one anybody could have made the rows."""
    at = cut(story, tmp_path / "sealed.avro", decided(story.log)[-1][1].chain)
    at.left_kafka()
    report = at.audited(noted=anchor_of(at.file).note.digest)
    assert report.findings == ()
    assert not any("chain heads" in text for text in report.unchecked)
    report = at.audited()
    assert report.findings == ()
    assert "chain heads of 1 checkpoint: of decisions before the anchor, not to be had" in report.unchecked
    with FileLog([at.file]) as sealed:
        report = at.audited(sealed)
    assert report.findings == ()
    assert not any("chain heads" in text for text in report.unchecked)


def test_a_checkpoint_behind_an_anchor_that_notes_what_nobody_decided_is_found(story: Story, tmp_path: Path) -> None:
    at = cut(story, tmp_path / "sealed.avro", "e" * 64)
    assert [one.kind for one in at.audited().findings] == [FindingKind.CHECKPOINT_CHAIN]
    at.left_kafka()
    with FileLog([at.file]) as sealed:
        assert [one.kind for one in at.audited(sealed).findings] == [FindingKind.CHECKPOINT_CHAIN]


@pytest.mark.parametrize("head", ["", "zz", "f" * 63, "f" * 65, "g" * 64])
def test_what_is_no_chain_head_is_told_so(story: Story, head: str) -> None:
    """And not that the history was rewritten."""
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    with pytest.raises(BadInput, match="is no chain head: give its 64 hexadecimal digits"):
        audit(story.log, SETTINGS, stretch, heads=[head])
    with pytest.raises(BadInput, match="is no chain head"):
        prove(story.log, stretch, OfPolicy(0), heads=[head])


def test_a_head_may_be_written_in_capitals(story: Story) -> None:
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    head = decided(story.log)[3][1].chain.upper()
    assert audit(story.log, SETTINGS, stretch, heads=[f" {head}\n"]).report.passed
    assert prove(story.log, stretch, OfPolicy(0), heads=[head]).run_id == story.run_id
