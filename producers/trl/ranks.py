"""How the processes of one training speak with one another about the ledger: the main one alone is its client.

They have a group of their own on the CPU, so that nothing is said between the collectives of the training.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from rollbook.schemas.errors import EnvironmentFault

_PATIENCE = timedelta(days=1)
"""The main process may wait for a broker for as long as its client is told to; a process that dies is heard at once."""

T = TypeVar("T")
R = TypeVar("R")


class RankFailed(EnvironmentFault):
    """Another process of the training failed at what all of them do together."""


@dataclass(frozen=True, slots=True)
class _Failure:
    rank: int
    text: str


class Ranks(ABC):
    """All processes of the training, seen from one of them."""

    rank: int
    size: int

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @abstractmethod
    def share(self, mine: Callable[[], T], act: Callable[[Sequence[T]], R]) -> R:
        """What the main process makes of everybody's part, told to everybody. All processes call it at the same place.

        Whatever is raised anywhere is raised everywhere: by that process as it is, by the others as RankFailed. So none
        waits for one that has given up.
        """


class Alone(Ranks):
    rank = 0
    size = 1

    def share(self, mine: Callable[[], T], act: Callable[[Sequence[T]], R]) -> R:
        return act([mine()])


class Wire(ABC):
    """Carries objects between the processes."""

    rank: int
    size: int

    @abstractmethod
    def gather(self, mine: object) -> Sequence[Any]:
        """Everybody's in the order of the ranks, at the main process; elsewhere nothing."""

    @abstractmethod
    def broadcast(self, of_main: object) -> Any:
        """What the main process gave."""


class Several(Ranks):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.rank, self.size = wire.rank, wire.size

    def share(self, mine: Callable[[], T], act: Callable[[Sequence[T]], R]) -> R:
        own: BaseException | None = None
        part: T | _Failure
        try:
            part = mine()
        except BaseException as error:  # the others are told of Ctrl-C too: they would wait for ever
            own, part = error, self._failure(error)
        parts = self._wire.gather(part)
        outcome: R | _Failure | None = None
        if self.is_main:
            outcome = next((one for one in parts if isinstance(one, _Failure)), None)
            if outcome is None:
                try:
                    outcome = act(parts)
                except BaseException as error:
                    own, outcome = error, self._failure(error)
        told: R | _Failure = self._wire.broadcast(outcome)
        if not isinstance(told, _Failure):
            return told
        if own is not None:
            raise own
        raise RankFailed(f"process {told.rank} of the training failed: {told.text}; see its output")

    def _failure(self, error: BaseException) -> _Failure:
        return _Failure(self.rank, f"{type(error).__name__}: {error}")


class GlooWire(Wire):
    """A process group of torch.distributed. Making it is a collective: every process does it at the same place."""

    def __init__(self) -> None:
        self._distributed: Any = importlib.import_module("torch.distributed")
        self._group = self._distributed.new_group(backend="gloo", timeout=_PATIENCE)
        self.rank, self.size = self._distributed.get_rank(), self._distributed.get_world_size()

    def gather(self, mine: object) -> Sequence[Any]:
        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        self._distributed.gather_object(mine, found, dst=0, group=self._group)
        return found or []

    def broadcast(self, of_main: object) -> Any:
        box = [of_main]
        self._distributed.broadcast_object_list(box, src=0, group=self._group)
        return box[0]
