"""The recordings of an update: those of this process's rank, and of other ranks that gave theirs to it."""

from collections.abc import Callable

from rollbook.producers import given
from rollbook.producers.redaction.policy import Redaction
from rollbook.producers.sending.outbox import Outbox
from rollbook.producers.updates.recording import Recorder, StepArrays
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import Header, LearnerRef
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.types import called


class Recorders:
    """One recorder a rank, made when the rank first records. `rank` is this process's own."""

    def __init__(
        self,
        outbox: Outbox,
        header: Callable[[], Header],
        *,
        learner: LearnerRef,
        update_id: str,
        rollout_id: int,
        rank: int,
        redaction: Redaction,
    ) -> None:
        def make(of_rank: int) -> Recorder:
            return Recorder(
                outbox,
                header,
                learner=learner,
                update_id=update_id,
                rollout_id=rollout_id,
                rank=of_rank,
                redaction=redaction,
            )

        self._make = make
        self._rank = rank
        self._by_rank: dict[int, Recorder] = {}

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that recorded anything, and so will be sealed."""
        return tuple(sorted(rank for rank, one in self._by_rank.items() if one.used))

    @property
    def used(self) -> bool:
        """Whether anything was recorded."""
        return bool(self.ranks)

    def record(self, step_id: int, step: StepArrays, rank: int | None = None) -> None:
        """Queue the recording of a rank's share of an optimizer step; by default of this process's rank. What is no
        rank is told as a recording that failed: a commit names the ranks, and must not fail for it."""
        try:
            of = self._of(given.whole(self._rank if rank is None else rank, "rank"))
        except BadInput as error:
            self._of(self._rank).spoil(error)
        else:
            of.record(step_id, step)

    def record_again(self, recording: StepRecording) -> None:
        """Queue what was recorded of a step in another update, which this one takes the place of."""
        if not isinstance(recording, StepRecording):
            problem = f"recording is {called(recording)}, and must be a StepRecording: give one that was read back"
            self._of(self._rank).spoil(BadInput(problem))
            return
        self._of(recording.rank).record_again(recording)

    def seal(self) -> None:
        """Publish for each rank that its recordings are written."""
        for rank in self.ranks:
            self._by_rank[rank].seal()

    def _of(self, rank: int) -> Recorder:
        if rank not in self._by_rank:
            self._by_rank[rank] = self._make(rank)
        return self._by_rank[rank]
