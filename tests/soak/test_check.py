"""The soak's check sees what it is for: each kind of damage, planted in topics that are right otherwise."""

from collections.abc import Callable, Iterator

import pytest

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.keys import position_key
from rollbook.schemas.codec import encode
from rollbook.schemas.records.ledger import Position
from rollbook.tests.processors.history import History
from rollbook.tests.recount import Record
from rollbook.tests.soak import check
from rollbook.tests.soak.check import Task, check_partition

Topics = dict[Topic, list[Record]]


def topics() -> Topics:
    """The topics of a short run, as a processor leaves them."""
    history = History().opened().ready("t0", "t1")
    history.learner()
    history.trained("u0", "t0")
    history.log.append(b"r", b"poison")
    records, folded = history.log.records, history.log.folded
    rows = dict(history.log.ledger.changes())
    rows[position_key(0)] = encode(Position(next_offset=len(records), transactional_id="p0"))
    return {
        Topic.LIFECYCLE: [Record(0, at, one.key or b"", one.value) for at, one in enumerate(records)],
        Topic.DECISIONS: [Record(0, at, one.decision.run_id.encode(), one.encoded) for at, one in enumerate(folded)],
        Topic.DEAD_LETTERS: [Record(0, 0, f"0:{len(records) - 1}".encode(), b"letter")],
        Topic.LEDGER: [Record(0, at, key, value) for at, (key, value) in enumerate(rows.items())],
    }


def violations(monkeypatch: pytest.MonkeyPatch, found: Topics) -> list[str]:
    def read(_: Task, topic: Topic, *, partition: int | None = None, committed: bool = True) -> Iterator[Record]:
        return iter(found[topic])

    monkeypatch.setattr(check, "_topic", read)
    return check_partition(Task(Settings(), 0, 1)).violations


def test_topics_that_are_right_violate_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert violations(monkeypatch, topics()) == []


def lost(found: Topics) -> None:
    del found[Topic.DECISIONS][3]


def lost_at_the_end(found: Topics) -> None:
    del found[Topic.DECISIONS][-1]


def doubled(found: Topics) -> None:
    found[Topic.DECISIONS].insert(3, found[Topic.DECISIONS][3])


def doubled_at_the_end(found: Topics) -> None:
    found[Topic.DECISIONS].append(found[Topic.DECISIONS][-1])


def swapped(found: Topics) -> None:
    found[Topic.DECISIONS][2:4] = reversed(found[Topic.DECISIONS][2:4])


def altered(found: Topics) -> None:
    one = found[Topic.DECISIONS][4]
    found[Topic.DECISIONS][4] = Record(0, one.offset, one.key, (one.value or b"").replace(b"accepted", b"rejected"))
    if found[Topic.DECISIONS][4].value == one.value:  # outcomes are numbers on the wire: any byte of the chain will do
        value = one.value or b""
        found[Topic.DECISIONS][4] = Record(0, one.offset, one.key, value[:-1] + (b"0" if value[-1:] != b"0" else b"1"))


def another_record(found: Topics) -> None:
    one = found[Topic.LIFECYCLE][1]
    found[Topic.LIFECYCLE][1] = Record(0, one.offset, one.key, (one.value or b"") + b"x")


def a_row_is_gone(found: Topics) -> None:
    del found[Topic.LEDGER][0]


def a_row_too_many(found: Topics) -> None:
    found[Topic.LEDGER].append(Record(0, 99, b'["r","trajectory","t9"]', b"row"))


def an_older_row(found: Topics) -> None:
    one = found[Topic.LEDGER][0]
    found[Topic.LEDGER][0] = Record(0, one.offset, one.key, (one.value or b"")[:-1] + b"\x7f")


def another_position(found: Topics) -> None:
    position = encode(Position(next_offset=1, transactional_id="p0"))
    found[Topic.LEDGER][-1] = Record(0, 98, position_key(0), position)


def no_dead_letter(found: Topics) -> None:
    found[Topic.DEAD_LETTERS].clear()


def two_dead_letters(found: Topics) -> None:
    first = found[Topic.DEAD_LETTERS][0]
    found[Topic.DEAD_LETTERS].append(Record(0, 1, first.key, b"another letter"))


@pytest.mark.parametrize(
    "damage",
    [
        *(lost, lost_at_the_end, doubled, doubled_at_the_end, swapped, altered, another_record),
        *(a_row_is_gone, a_row_too_many, an_older_row, another_position, no_dead_letter, two_dead_letters),
    ],
)
def test_each_damage_is_a_violation(monkeypatch: pytest.MonkeyPatch, damage: Callable[[Topics], None]) -> None:
    found = topics()
    damage(found)
    assert len(violations(monkeypatch, found)) == 1
