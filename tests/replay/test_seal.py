"""A sealed range may leave the log: the audit of what follows starts at its anchor, and nobody edits that unseen."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Topic
from rollbook.processors.ledger.figures import SINCE
from rollbook.replay.audit.anchor import Anchor, anchor_of, digest_of
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.findings import FindingKind
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.audit.rules import Instead
from rollbook.replay.audit.seal import seal
from rollbook.replay.audit.whatif import what_if
from rollbook.replay.history.container import AnchorNote, write
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds
from rollbook.schemas.codec import decode, encode
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Tally
from rollbook.schemas.records.ledger import TrajectoryState
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story


@pytest.fixture
def story() -> Story:
    made = Story().opened()
    made.update("u0", [made.group("a"), made.group("b")])
    made.group("c")
    return made


@pytest.fixture
def middle(story: Story) -> int:
    """An offset in the middle of an update."""
    at = story.end
    story.update("u1", [story.group("d")])
    return at


def sealed(story: Story, middle: int, path: Path) -> Anchor:
    stretch = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, None, middle), None)
    done = seal(story.log, SETTINGS, stretch, path)
    assert done.exported is not None
    return anchor_of(path)


def test_what_follows_a_seal_is_audited_from_its_anchor(story: Story, middle: int, tmp_path: Path) -> None:
    anchor = sealed(story, middle, tmp_path / "sealed.avro")
    story.log.lose(LIFECYCLE, 0, middle)
    rest = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)
    with pytest.raises(BadInput, match="give the --anchor"):
        audit(story.log, SETTINGS, rest)
    done = audit(story.log, SETTINGS, rest, anchor=anchor, payloads=False)
    assert done.report.passed
    assert done.report.decided == story.end - middle
    assert done.report.heads[0].chain == story.ledger.run(story.run_id).head.chain
    with FileLog([tmp_path / "sealed.avro"]) as log:
        first = stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)
        assert audit(log, SETTINGS, first, payloads=False).report.passed
        assert list(log.verify()) == []


def test_an_anchor_that_was_edited_is_found_by_its_digest(story: Story, middle: int, tmp_path: Path) -> None:
    anchor = sealed(story, middle, tmp_path / "sealed.avro")
    rows = list(anchor.rows)
    at = next(n for n, (_, value) in enumerate(rows) if isinstance(decode(value), TrajectoryState))
    state = decode(rows[at][1])
    assert isinstance(state, TrajectoryState)
    rows[at] = (rows[at][0], encode(state.but(revision=7)))
    rest = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, middle), None)
    edited = replace(anchor, rows=tuple(rows))
    found = audit(story.log, SETTINGS, rest, anchor=edited, payloads=False).report
    assert FindingKind.ANCHOR_DIFFERS in [one.kind for one in found.findings]
    with pytest.raises(BadInput, match="it was edited"):
        what_if(story.log, rest, Instead(max_lag=1), anchor=edited)
    assert what_if(story.log, rest, Instead(max_lag=1), anchor=anchor).decided


@pytest.mark.parametrize("narrowed", [False, True])
def test_an_anchor_whose_digest_was_made_anew_is_found_by_an_audit_of_its_file(
    story: Story, middle: int, tmp_path: Path, narrowed: bool
) -> None:
    """Whichever of its rows was edited or removed; an audit of what follows says that it took the anchor as it is."""
    run_id = story.run_id if narrowed else None
    whole = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), run_id)
    assert seal(story.log, SETTINGS, replace(whole, within=Bounds(0, middle)), tmp_path / "sealed.avro").exported
    anchor = anchor_of(tmp_path / "sealed.avro")
    ranges = [OffsetRange(LIFECYCLE, 0, 0, middle), OffsetRange(DECISIONS, 0, 0, anchor.note.next_decision)]
    states = [at for at, (_, value) in enumerate(anchor.rows) if isinstance(decode(value), TrajectoryState)]
    assert len(states) == 6
    for at in range(len(anchor.rows)):
        rows = list(anchor.rows)
        state = decode(rows[at][1])
        if isinstance(state, TrajectoryState):
            rows[at] = (rows[at][0], encode(state.but(revision=7)))
        else:
            del rows[at]
        note = anchor.note.model_copy(update={"digest": digest_of(middle, rows)})
        path = tmp_path / f"forged-{at}.avro"
        export(story.log, SETTINGS, ranges, path, run_id=run_id, anchor=note, rows=rows)
        with FileLog([path]) as log:
            stretch = stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), run_id)
            report = audit(log, SETTINGS, stretch, payloads=False).report
        assert [one.kind for one in report.findings] == [FindingKind.ANCHOR_DIFFERS]
        assert report.decided == middle
        rest = replace(whole, within=Bounds(middle, story.end))
        forged = anchor_of(path)
        assert list(forged.check()) == []
        if isinstance(state, TrajectoryState):
            behind = audit(story.log, SETTINGS, rest, anchor=forged, payloads=False).report
            assert f"the anchor's own state: an audit of {path} derives it" in behind.unchecked
            told = audit(
                story.log, SETTINGS, rest, anchor=anchor_of(path, noted=anchor.note.digest), payloads=False
            ).report
            assert [one.kind for one in told.findings] == [FindingKind.ANCHOR_DIFFERS]
            assert told.findings[0].derived == {"digest": anchor.note.digest}


def test_figures_of_an_anchor_that_count_other_decisions_are_said_not_to_be_checked(
    story: Story, middle: int, tmp_path: Path
) -> None:
    """A rollbook that counted none may have written it; so may whoever would like other figures."""
    anchor, path = sealed(story, middle, tmp_path / "sealed.avro"), tmp_path / "forged.avro"
    rows = [(key, encode(Tally(name=SINCE, count=2)) if SINCE.encode() in key else value) for key, value in anchor.rows]
    assert tuple(rows) != anchor.rows
    note = anchor.note.model_copy(update={"digest": digest_of(middle, rows)})
    ranges = [OffsetRange(LIFECYCLE, 0, 0, middle), OffsetRange(DECISIONS, 0, 0, anchor.note.next_decision)]
    export(story.log, SETTINGS, ranges, path, anchor=note, rows=rows)
    with FileLog([path]) as log:
        stretch = stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)
        report = audit(log, SETTINGS, stretch, payloads=False).report
    assert report.passed
    said = f"figures of run {story.run_id} in the anchor of {path}: other decisions are counted there"
    assert said in report.unchecked


def test_by_the_digest_that_its_seal_printed_an_anchor_is_known(
    story: Story, middle: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = sealed(story, middle, tmp_path / "first.avro")
    ranges = [OffsetRange(LIFECYCLE, 0, middle), OffsetRange(DECISIONS, 0, first.note.next_decision)]
    rest = str(export(story.log, SETTINGS, ranges, tmp_path / "rest.avro").path)
    ask = ["audit", rest, "--anchor", str(first.path)]
    own_state = "not checked: the anchor's own state"
    assert rollbook(ask) == 0
    assert own_state in capsys.readouterr().out
    assert rollbook([*ask, "--anchor-digest", f" {first.note.digest.upper()}"]) == 0
    assert own_state not in capsys.readouterr().out
    assert rollbook([*ask, "--anchor-digest", "0" * 64]) == 1
    assert "not the one that was noted elsewhere" in capsys.readouterr().out
    for wrong in ([*ask, "--anchor-digest", "abc"], ["audit", rest, "--anchor-digest", "0" * 64]):
        assert rollbook(wrong) == 2
    assert "give its sealed file with --anchor" in capsys.readouterr().err


def test_a_seal_may_ask_for_the_digest_of_the_anchor_that_it_begins_at(
    story: Story, middle: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a state that was made anew is sealed on, and its digest with it."""
    first, second = sealed(story, middle, tmp_path / "first.avro"), tmp_path / "second.avro"
    ranges = [OffsetRange(LIFECYCLE, 0, middle), OffsetRange(DECISIONS, 0, first.note.next_decision)]
    rest = str(export(story.log, SETTINGS, ranges, tmp_path / "rest.avro").path)
    ask = ["history", "seal", rest, "--anchor", str(first.path), "--out", str(second)]
    assert rollbook([*ask, "--anchor-digest", "0" * 64]) == 1
    assert "not the one that was noted elsewhere" in capsys.readouterr().out
    for wrong in (["abc"], [first.note.digest] * 2):
        assert rollbook([*ask, *(word for one in wrong for word in ("--anchor-digest", one))]) == 2
    assert "1 --anchor and 2 --anchor-digest" in capsys.readouterr().err
    assert not second.exists()
    assert rollbook([*ask, "--anchor-digest", first.note.digest]) == 0
    assert "the anchor's own state" not in capsys.readouterr().out
    assert second.exists()


def test_a_head_that_an_anchor_alone_has_is_known_by_the_digest_of_the_anchor(
    story: Story, middle: int, tmp_path: Path
) -> None:
    """Else whoever rewrites what follows puts the head that was noted into a run of the anchor that nobody has."""
    first = sealed(story, middle, tmp_path / "first.avro")
    rest = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, middle), None)
    noted, made_up = story.ledger.run(story.run_id).head.chain, Story(run_id="dummy").opened()
    made_up.ledger.run("dummy").change_head(chain="e" * 64)
    rows = tuple(sorted([*first.rows, *rows_of(made_up.ledger)]))
    forged = replace(first, rows=rows, note=first.note.model_copy(update={"digest": digest_of(middle, rows)}))
    assert list(forged.check()) == []
    (own,) = (one.chain for one in audit_of_seal(story, middle).heads)
    known = replace(first, noted=first.note.digest)
    for anchor, wanted, kinds in (
        (forged, "e" * 64, [FindingKind.HEAD_UNKNOWN]),
        (replace(forged, noted=first.note.digest), "e" * 64, [FindingKind.ANCHOR_DIFFERS, FindingKind.HEAD_UNKNOWN]),
        (first, own, [FindingKind.HEAD_UNKNOWN]),
        (known, own, []),
        (first, noted, []),
    ):
        report = audit(story.log, SETTINGS, rest, anchor=anchor, heads=[wanted], payloads=False).report
        assert [one.kind for one in report.findings] == kinds
        if anchor is first and kinds:
            assert "--anchor-digest" in report.findings[0].what


def audit_of_seal(story: Story, middle: int) -> AuditReport:
    stretch = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, None, middle), None)
    return audit(story.log, SETTINGS, stretch, payloads=False).report


def test_in_files_that_join_every_anchor_is_derived(story: Story, middle: int, tmp_path: Path) -> None:
    first = sealed(story, middle, tmp_path / "first.avro")
    rest = stretch_of(story.log, SETTINGS, first.begin(OffsetRange(LIFECYCLE, 0)), None)
    rows = list(first.rows)
    del rows[-1]
    note = first.note.model_copy(update={"digest": digest_of(middle, rows)})
    ranges = [OffsetRange(LIFECYCLE, 0, 0, middle), OffsetRange(DECISIONS, 0, 0, note.next_decision)]
    export(story.log, SETTINGS, ranges, tmp_path / "forged.avro", anchor=note, rows=rows)
    assert seal(story.log, SETTINGS, rest, tmp_path / "second.avro", before=first).exported is not None
    for begin, kinds in (("first", []), ("forged", [FindingKind.ANCHOR_DIFFERS])):
        with FileLog([tmp_path / "second.avro", tmp_path / f"{begin}.avro"]) as log:
            found = audit(log, SETTINGS, stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)).report
        assert [one.kind for one in found.findings] == kinds
        assert (found.decided, found.undecided) == (story.end, 0)


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ({"next_offset": 1}, "behind the records"),
        ({"next_offset": -1}, "behind the records"),
        ({"lifecycle": "t.other"}, "behind the records"),
        ({"run": "run-a"}, "behind the records"),
        ({"next_decision": 1}, "behind the decisions"),
        ({"next_decision": -8}, "behind the decisions"),
        ({"partition": 1}, "behind the records"),
        ({"topic_partitions": 1}, "another number of partitions"),
    ],
)
def test_an_anchor_stands_behind_the_records_and_decisions_of_its_file(
    story: Story, middle: int, tmp_path: Path, claim: dict[str, int | str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else it would be derived by no audit of its file, or the next seal begin elsewhere than it ends."""
    honest = sealed(story, middle, tmp_path / "sealed.avro")
    with FileLog([honest.path]) as log:
        contents = log.contents[0]
        records = [list(log.read(one.topic, one.partition, one.start, one.end)) for one in contents.sections[:-1]]
        ((_, _, rows),) = log.anchors()
        sections = [*records, list(rows)]

    def written(name: str, note: AnchorNote) -> Path:
        note = note.model_copy(update={"digest": digest_of(note.next_offset, honest.rows)})
        write(tmp_path / name, contents.model_copy(update={"anchor": note}), sections)
        return tmp_path / name

    note = honest.note
    moved = {name: value if isinstance(value, str) else getattr(note, name) + value for name, value in claim.items()}
    with pytest.raises(BadInput, match=why):
        anchor_of(written("forged.avro", note.model_copy(update=moved)))
    assert rollbook(["audit", str(tmp_path / "forged.avro")]) == 2
    assert why in capsys.readouterr().err
    earlier = written("earlier.avro", note.model_copy(update={"next_decision": 0}))
    rest = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, middle), None)
    assert seal(story.log, SETTINGS, rest, tmp_path / "rest.avro", before=anchor_of(earlier)).exported is not None
    with FileLog([earlier, tmp_path / "rest.avro"]) as log:
        report = audit(log, SETTINGS, stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)).report
    assert (report.findings, report.decided, report.undecided) == ((), story.end, 0)


def test_an_anchor_that_fits_another_place_is_refused(story: Story, middle: int, tmp_path: Path) -> None:
    anchor = sealed(story, middle, tmp_path / "sealed.avro")
    elsewhere = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, middle + 1), None)
    with pytest.raises(BadInput, match=f"is the state before t.lifecycle:0:{middle}-, and the range begins at"):
        audit(story.log, SETTINGS, elsewhere, anchor=anchor)
    with pytest.raises(BadInput, match="give one that fits"):
        audit(story.log, SETTINGS, stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), None), anchor=anchor)


def test_nothing_is_sealed_that_does_not_pass(story: Story, middle: int, tmp_path: Path) -> None:
    changed = next(iter(story.log.read_at(LIFECYCLE, 0, [3])))
    story.log.tamper(LIFECYCLE, 0, 3, (changed.value or b"")[:-1] + b"x")
    stretch = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, None, middle), None)
    done = seal(story.log, SETTINGS, stretch, tmp_path / "sealed.avro")
    assert done.exported is None
    assert [one.kind for one in done.report.findings] == [FindingKind.RECORD_CHANGED]
    assert list(tmp_path.iterdir()) == []


def test_by_command_from_files(story: Story, middle: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranges = [OffsetRange(SETTINGS.topic(topic), 0) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    whole = str(export(story.log, SETTINGS, ranges, tmp_path / "whole.avro", payloads=True).path)
    seal_file, page = str(tmp_path / "sealed.avro"), tmp_path / "audit.html"
    assert rollbook(["history", "seal", whole, f"lifecycle:0:-{middle}", "--out", seal_file]) == 0
    rest = [whole, f"lifecycle:0:{middle}-"]
    capsys.readouterr()
    assert rollbook(["audit", *rest]) == 2
    assert "--anchor" in capsys.readouterr().err
    assert rollbook(["audit", *rest, "--anchor", seal_file, "--json", "--report", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["passed"], found["start"], found["decided"]) == (True, middle, story.end - middle)
    assert "PASS" in page.read_text()
    head = found["heads"][0]["chain"]
    assert rollbook(["audit", whole, "--head", head]) == 0
    assert rollbook(["audit", whole, "--head", "0" * 64, "--report", str(tmp_path / "audit.md")]) == 1
    assert "head_unknown" in (tmp_path / "audit.md").read_text()
    assert rollbook(["audit", whole, "--report", str(tmp_path / "audit.pdf")]) == 2
    assert rollbook(["audit"]) == 2
