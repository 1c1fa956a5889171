"""Records as a Kafka client hands them out, made of what a log in memory has decided."""

from collections.abc import Iterable
from dataclasses import dataclass

from rollbook.processors.dashboard.fold.view import View
from rollbook.tests.processors.log import Log

BEGAN_MS = 1_750_000_000_000


@dataclass(frozen=True, slots=True)
class Message:
    """One of them."""

    at: int
    time_ms: int
    run: str
    bytes_: bytes
    of: int = 0

    def partition(self) -> int:
        return self.of

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time_ms

    def key(self) -> bytes:
        return self.run.encode()

    def value(self) -> bytes:
        return self.bytes_


def decisions(log: Log, apart_ms: int = 400, begin: int = 0) -> list[Message]:
    """The decisions of a log, one every so often. Their offsets have gaps, as markers leave them."""
    return [
        Message(at * 2, BEGAN_MS + at * apart_ms, folded.decision.run_id, folded.encoded, log.partition)
        for at, folded in enumerate(log.folded)
        if at >= begin
    ]


def viewed(messages: Iterable[Message]) -> View:
    """What a dashboard has that has read these decisions."""
    view = View()
    view.take_decisions(tuple(messages))
    return view
