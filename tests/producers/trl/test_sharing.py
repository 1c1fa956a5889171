"""What the processes of a training do together: all hear the same, and none waits for one that has given up."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rollbook.producers.trl.ranks import Alone, RankFailed, Several, Wire
from rollbook.schemas.errors import AnswerNo

SIZE = 3


class ThreadWire(Wire):
    """One end of a wire between threads."""

    size = SIZE

    def __init__(self, rank: int, places: list[Any], told: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self._places, self._told, self._barrier = rank, places, told, barrier

    def gather(self, mine: object) -> Sequence[Any]:
        self._places[self.rank] = mine
        self._barrier.wait(10)
        return list(self._places) if self.rank == 0 else []

    def broadcast(self, of_main: object) -> Any:
        if self.rank == 0:
            self._told[0] = of_main
        self._barrier.wait(10)
        found = self._told[0]
        self._barrier.wait(10)
        return found


def outcomes(mine: Callable[[int], int], act: Callable[[Sequence[int]], int]) -> list[object]:
    """What each of three ranks got, or raised."""
    places: list[Any] = [None] * SIZE
    told: list[Any] = [None]
    barrier = threading.Barrier(SIZE)

    def one(rank: int) -> object:
        try:
            return Several(ThreadWire(rank, places, told, barrier)).share(lambda: mine(rank), act)
        except BaseException as error:
            return error

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(one, range(SIZE)))


def test_all_hear_what_the_main_process_makes_of_everybodys_part() -> None:
    assert outcomes(lambda rank: 10**rank, sum) == [111, 111, 111]
    assert Alone().share(lambda: 7, list) == [7]


def test_what_the_main_process_raises_the_others_raise_too() -> None:
    def refuse(_: Sequence[int]) -> int:
        raise AnswerNo("refused")

    main, *others = outcomes(lambda rank: rank, refuse)
    assert isinstance(main, AnswerNo)
    assert str(main) == "refused"
    assert [str(one) for one in others] == ["process 0 of the training failed: AnswerNo: refused; see its output"] * 2
    assert all(isinstance(one, RankFailed) for one in others)


@pytest.mark.parametrize("error", [ValueError("no tensor"), KeyboardInterrupt()])
def test_what_one_process_cannot_give_the_others_do_not_wait_for(error: BaseException) -> None:
    acted: list[int] = []

    def give(rank: int) -> int:
        if rank == 1:
            raise error
        return rank

    def act(_: Sequence[int]) -> int:
        acted.append(1)
        return 0

    main, failed, other = outcomes(give, act)
    assert failed is error
    assert isinstance(main, RankFailed)
    assert isinstance(other, RankFailed)
    assert "process 1 of the training failed" in str(main)
    assert not acted
