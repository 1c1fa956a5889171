"""A command on its way: its bytes, the copies sent of them, and which of the answers counts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rollbook.producers.sending.outbox import encode_checked
from rollbook.schemas.codec import Decoded
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Outcome

YES = frozenset({Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.PENDING})


@dataclass(slots=True, eq=False)
class Command:
    """A command and its copies. The ledger remembers only what it accepted: after a refusal the next copy is judged
    anew, so the first answer read need not be the last word."""

    record: Lifecycle
    value: bytes = field(init=False)
    copies: int = field(default=0, init=False)
    last_offset: int | None = field(default=None, init=False)
    """Where the last copy lies; none while it is on its way, or where nobody can say."""
    arrived: bool = field(default=False, init=False)
    """Whether the last copy was acknowledged."""
    failed: bool = field(default=False, init=False)
    """Whether the last copy is known not to have been acknowledged."""

    def __post_init__(self) -> None:
        self.value = encode_checked(self.record)

    @property
    def event_id(self) -> str:
        return self.record.header.event_id

    @property
    def name(self) -> str:
        return type(self.record).__name__

    def next_copy(self) -> int:
        """The number of the copy that is sent next."""
        self.copies += 1
        self.last_offset, self.arrived, self.failed = None, False, False
        return self.copies

    def not_sent(self) -> None:
        """The copy was not even queued."""
        self.copies -= 1
        self.failed = True

    @property
    def is_under_way(self) -> bool:
        """Whether a decision can come without another copy."""
        return self.copies > 0 and not self.failed

    def answer(self, answers: Sequence[Decoded]) -> Decoded | None:
        """The answer that counts among those read: an acceptance of any copy, or the refusal of the last one, since
        decisions come in the log's order and every earlier copy that arrived has been answered by then."""
        for answer in answers:
            if answer.fields["outcome"] in YES:
                return answer
        if self.copies == 1 or (self.arrived and self.last_offset is None):
            # Where its place is unknown the last copy is answered when as many are as were sent.
            return answers[-1] if len(answers) >= self.copies else None
        return next((answer for answer in answers if answer.fields["source"]["offset"] == self.last_offset), None)
