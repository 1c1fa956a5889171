"""Rows between TRL's queue and its packer: which were dropped on the way, and when a group is whole."""

import numpy as np

from rollbook.producers.trl.asynchronous.intake import Arrival, Intake
from rollbook.producers.trl.facts import RowFacts
from rollbook.schemas.records.common import TrajectoryIdentity


class Queue:
    """Rows that leave a queue, named by arrays as TRL's are."""

    def __init__(self, size: int) -> None:
        self.intake = Intake(size)
        self._tokens: list[object] = []

    def take(self, group: int, *, turns: int = 1, trained: bool = True) -> str:
        """The group id of the row."""
        tokens = np.zeros(1)
        self._tokens.append(tokens)
        found: list[str] = []

        def make(identity: TrajectoryIdentity, number: int) -> Arrival | None:
            found.append(identity.group_id)
            return Arrival(number, _row(identity), group, 1, turns) if trained else None

        self.intake.arrived(tokens, group, make)
        return found[0]

    def form(self, *places: int) -> tuple[list[int | None], list[int]]:
        """Numbers of the rows of a micro-batch, and of those that were passed over."""
        formed = self.intake.formed([self._tokens[place] for place in places])
        rows = [None if one is None else one.number for one in formed.rows]
        return rows, [one.number for one in formed.passed_over]


def _row(identity: TrajectoryIdentity) -> RowFacts:
    one = np.ones(1, np.float32)
    return RowFacts(
        identity=identity,
        number=0,
        prompt_hash="0" * 64,
        prompt_ids=np.ones(1, np.int32),
        response_ids=np.ones(1, np.int32),
        action_mask=np.ones(1, np.bool_),
        loss_mask=np.ones(1, np.bool_),
        is_stopped=True,
        behavior=one,
        current=one,
        old=one,
        reference=None,
        raw_reward=1.0,
        components={},
        advantage=0.0,
    )


def test_a_row_that_newer_ones_overtake_was_dropped_and_the_newest_may_still_come() -> None:
    queue = Queue(4)
    for _ in range(6):
        queue.take(0)
    assert queue.form(3, 0, 1) == ([3, 0, 1], [2])
    assert [one.number for one in queue.intake.left()] == [4, 5]
    assert queue.form(4, 5) == ([4, 5], [])
    assert queue.intake.left() == ()


def test_a_row_that_nothing_is_trained_of_has_a_place_in_its_micro_batch_and_no_number() -> None:
    queue = Queue(2)
    queue.take(0)
    queue.take(0, trained=False)
    group_id = queue.take(0)
    assert queue.form(0, 1, 2) == ([0, None, 1], [])
    assert len(queue.intake.members(group_id)) == 2


def test_a_group_of_one_turn_is_settled_when_its_rows_are_there_whatever_comes_between() -> None:
    queue = Queue(2)
    first = queue.take(0)
    queue.take(1)
    assert not queue.intake.is_settled(first)
    assert queue.intake.members(first) == ()
    queue.take(0)
    assert queue.intake.is_settled(first)
    assert len(queue.intake.members(first)) == 2


def test_a_group_of_several_turns_is_settled_when_the_next_begins_and_whole_only_without_forks() -> None:
    queue = Queue(2)
    (forked,) = {queue.take(0, turns=2) for _ in range(3)}
    assert not queue.intake.is_settled(forked)
    (plain,) = {queue.take(1, turns=2) for _ in range(2)}
    assert queue.intake.is_settled(forked)
    assert not queue.intake.is_settled(plain)
    queue.take(2)
    assert queue.intake.is_settled(plain)
    assert [len(queue.intake.members(one)) for one in (forked, plain)] == [0, 2]
