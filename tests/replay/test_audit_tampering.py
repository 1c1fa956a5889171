"""Tampering that changes no record: at the log's end, with chains mended, with what is no decision, with
checkpoints."""

from collections.abc import Callable

import pytest

from rollbook.processors.ledger.fold import chain_of
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.findings import Finding, Kind
from rollbook.replay.history.ranges import OffsetRange
from rollbook.schemas.codec import decode_as, encode
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.update import Reserve, ReserveItem, ReserveMode
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story

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
        assert (finding.kind, finding.place) == (Kind.NO_DECISION, f"{DECISIONS}:0@{here}")
        assert audited(story, run_id).decided == story.end
        story.log.remove(DECISIONS, 0, here)
    middle = decided(story.log)[5][0]
    story.log.tamper(DECISIONS, 0, middle, b"junk")
    finding = found(story, run_id)
    assert (finding.kind, finding.place) == (Kind.NO_DECISION, f"{DECISIONS}:0@{middle}")
    assert audited(story, run_id).decided == 5


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
        assert (finding.kind, finding.place) == (Kind.DECISION_DIFFERS, f"{DECISIONS}:0@{place}")
        assert (finding.said["outcome"], finding.derived["outcome"]) == ("accepted", "rejected")


def forge(log: MemoryLog, place: int, change: Callable[[Decision], Decision]) -> None:
    """Change a decision, and make every link of the chain from there on anew."""
    chain = NO_CHAIN
    for offset, decision in decided(log):
        changed = change(decision) if offset == place else decision
        body = encode(changed.but(chain=NO_CHAIN))[:-66]
        chain = chain_of(chain, changed.source.sha256, body)
        log.tamper(DECISIONS, 0, offset, encode(changed.but(chain=chain)))
